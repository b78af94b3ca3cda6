/* Every operation that succeeds, on a disk in the directory argv[1]. */
#include "check.h"

static void files(extant_fs *fs)
{
    extant_file *file = NULL, *log = NULL;
    extant_attributes found;
    char buf[64] = {0};
    OK(extant_open(fs, "/file", EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE, 0640, &file, &failure));
    IS(extant_write(file, "hello, ", 7, &failure), 7);
    IS(extant_write(file, "world", 5, &failure), 5);
    IS(extant_pwrite(file, "W", 1, 7, &failure), 1);
    IS(extant_seek(file, 0, EXTANT_SEEK_CUR, &failure), 12);
    IS(extant_seek(file, -5, EXTANT_SEEK_END, &failure), 7);
    IS(extant_read(file, buf, sizeof buf, &failure), 5);
    OK(strcmp(buf, "World"));
    IS(extant_read(file, buf, sizeof buf, &failure), 0);
    IS(extant_pread(file, buf, 5, 0, &failure), 5);
    OK(memcmp(buf, "hello", 5));
    IS(extant_pwrite(file, "end", 3, 1 << 20, &failure), 3);
    IS(extant_seek(file, 0, EXTANT_SEEK_HOLE, &failure), 4096);
    IS(extant_seek(file, 4096, EXTANT_SEEK_DATA, &failure), 1 << 20);
    OK(extant_truncate(file, 100, &failure));
    OK(extant_fsync(file, 0, &failure));
    OK(extant_fsync(file, EXTANT_DATA_ONLY, &failure));
    OK(extant_fstat(file, &found, &failure));
    IS(found.size, 100);
    IS(found.mode, S_IFREG | 0640);
    IS(found.links, 1);
    IS(found.crtime.nanoseconds != EXTANT_TIME_OMIT, 1);
    extant_close(file);
    for (int i = 0; i < 2; i++) {
        OK(extant_open(fs, "log", EXTANT_APPEND | EXTANT_CREATE, 0600, &log, &failure));
        IS(extant_write(log, "line\n", 5, &failure), 5);
        extant_close(log);
    }
    OK(extant_stat(fs, "/log", 0, &found, &failure));
    IS(found.size, 10);
}

static void names(extant_fs *fs)
{
    extant_attributes found, other;
    char buf[16];
    OK(extant_mkdir(fs, "/dir", 0755, &failure));
    OK(extant_link(fs, "/file", "/dir/link", &failure));
    OK(extant_symlink(fs, "../file", "/dir/symlink", &failure));
    OK(extant_mknod(fs, "/dir/null", S_IFCHR | 0666, 1, 3, &failure));
    OK(extant_mknod(fs, "/dir/fifo", S_IFIFO | 0600, 0, 0, &failure));
    OK(extant_mknod(fs, "/dir/empty", 0600, 0, 0, &failure));
    OK(extant_mkdir(fs, "/dir/\xff\xfe", 0700, &failure));
    IS(extant_readlink(fs, "/dir/symlink", NULL, 0, &failure), 7);
    IS(extant_readlink(fs, "/dir/symlink", buf, sizeof buf, &failure), 7);
    OK(memcmp(buf, "../file", 7));
    OK(extant_stat(fs, "/dir/symlink", 0, &found, &failure));
    OK(extant_stat(fs, "/file", 0, &other, &failure));
    IS(found.inode, other.inode);
    IS(found.links, 2);
    OK(extant_stat(fs, "/dir/symlink", EXTANT_NOFOLLOW, &found, &failure));
    IS(found.mode & S_IFMT, S_IFLNK);
    OK(extant_stat(fs, "/dir/null", 0, &found, &failure));
    IS(found.mode, S_IFCHR | 0666);
    IS(found.device_major * 256 + found.device_minor, 256 + 3);
    OK(extant_rename(fs, "/dir/link", "/renamed", &failure));
    OK(extant_unlink(fs, "/renamed", &failure));
    OK(extant_rmdir(fs, "/dir/\xff\xfe", &failure));
}

static void attributes(extant_fs *fs)
{
    extant_attributes found;
    extant_time times[2] = {{0, EXTANT_TIME_OMIT, 0}, {1000000000, 5, 0}};
    char buf[64];
    OK(extant_chmod(fs, "/file", S_IFREG | 04755, 0, &failure));
    OK(extant_chown(fs, "/file", 1000, UINT32_MAX, 0, &failure));
    OK(extant_utimens(fs, "/file", times, 0, &failure));
    OK(extant_stat(fs, "/file", 0, &found, &failure));
    IS(found.mode, S_IFREG | 0755);
    IS(found.uid, 1000);
    IS(found.gid, 0);
    IS(found.mtime.seconds, 1000000000);
    IS(found.mtime.nanoseconds, 5);
    IS(found.atime.seconds > 1000000000, 1);
    OK(extant_utimens(fs, "/file", NULL, 0, &failure));
    OK(extant_stat(fs, "/file", 0, &found, &failure));
    IS(found.mtime.seconds > 1000000000, 1);
    OK(extant_chown(fs, "/dir/symlink", 7, 8, EXTANT_NOFOLLOW, &failure));
    OK(extant_stat(fs, "/dir/symlink", EXTANT_NOFOLLOW, &found, &failure));
    IS(found.gid, 8);

    OK(extant_setxattr(fs, "/file", "user.one", "1\0001", 3, EXTANT_XATTR_CREATE, &failure));
    OK(extant_setxattr(fs, "/file", "user.two", NULL, 0, 0, &failure));
    IS(extant_getxattr(fs, "/file", "user.one", NULL, 0, 0, &failure), 3);
    IS(extant_getxattr(fs, "/file", "user.one", buf, sizeof buf, 0, &failure), 3);
    OK(memcmp(buf, "1\0001", 3));
    IS(extant_listxattr(fs, "/file", buf, sizeof buf, 0, &failure), 18);
    OK(extant_removexattr(fs, "/file", "user.one", 0, &failure));
    IS(extant_listxattr(fs, "/file", buf, sizeof buf, 0, &failure), 9);
    OK(strcmp(buf, "user.two"));
}

/* More entries than are read at once, and each seen once. */
static void directory(extant_fs *fs)
{
    enum { COUNT = 300 };
    static char seen[COUNT];
    extant_dir *dir = NULL;
    extant_dirent entry;
    char name[32];
    int result, count = 0;
    OK(extant_mkdir(fs, "/many", 0755, &failure));
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "/many/%d", i);
        OK(extant_mknod(fs, name, S_IFREG | 0644, 0, 0, &failure));
    }
    OK(extant_opendir(fs, "/many", &dir, &failure));
    while ((result = extant_readdir(dir, &entry, &failure)) == 1) {
        IS(entry.name_bytes, strlen(entry.name));
        IS(entry.file_type, S_IFREG);
        IS(entry.inode != 0, 1);
        OK(seen[atoi(entry.name)]++);
        count++;
    }
    IS(result, 0);
    IS(extant_readdir(dir, &entry, &failure), 0);
    IS(count, COUNT);
    extant_closedir(dir);
}

static void whole(const char *dir)
{
    extant_time then = {1700000000, 0, 0};
    extant_mkfs_options format;
    extant_mount_options mount;
    extant_device *device = NULL;
    extant_fs *fs = NULL;
    extant_usage usage;
    memset(&format, 0, sizeof format);
    memset(&mount, 0, sizeof mount);
    format.label = "guest";
    format.features = "^has_journal";
    format.uuid = "01234567-89ab-cdef-0123-456789abcdef";
    format.time = &then;
    format.block_size = 1024;
    format.bytes = 8 << 20;
    mount.flags = EXTANT_NO_BACKGROUND | EXTANT_DISCARD;
    mount.cache_bytes = 16 << 20;
    mount.page_cache_bytes = 1 << 20;
    mount.commit_interval_ms = 1000;
    OK(extant_device_create(in_dir(dir, "options.img"), 16 << 20, &device, &failure));
    OK(extant_mkfs(device, &format, &failure));
    OK(extant_mount(device, &mount, &fs, &failure));
    OK(extant_statfs(fs, &usage, &failure));
    OK(strcmp(usage.label, "guest"));
    IS(usage.uuid[0] * 256 + usage.uuid[15], 0x01ef);
    IS(usage.block_size, 1024);
    IS(usage.blocks < 8192 && usage.free_blocks > 7000, 1);
    IS(usage.flags, 0);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);

    /* A part of a larger file: the disk that was just made, behind 1 MiB. */
    FILE *whole = fopen(in_dir(dir, "options.img"), "rb");
    FILE *part = fopen(in_dir(dir, "part.img"), "wb");
    static char content[8 << 20];
    IS(fread(content, 1, sizeof content, whole), sizeof content);
    OK(fseek(part, 1 << 20, SEEK_SET));
    IS(fwrite(content, 1, sizeof content, part), sizeof content);
    OK(fclose(whole) | fclose(part));
    OK(extant_device_open(in_dir(dir, "part.img"), 0, 1 << 20, 8 << 20, &device, &failure));
    OK(extant_mount(device, NULL, &fs, &failure));
    IS(extant_check(fs, NULL, NULL, &failure), 0);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);
}

int main(int argc, char **argv)
{
    extant_device *device = NULL;
    extant_file *file = NULL;
    extant_fs *fs;
    char byte;
    IS(argc, 2);
    OK(strncmp(extant_version(), "0.", 2));
    fs = new_disk(argv[1], "operations.img", &device);
    files(fs);
    names(fs);
    attributes(fs);
    directory(fs);
    OK(extant_sync(fs, &failure));
    IS(extant_check(fs, NULL, NULL, &failure), 0);
    /* Handles are closed in any order. */
    OK(extant_open(fs, "/log", EXTANT_READ | EXTANT_WRITE, 0, &file, &failure));
    extant_device_close(device);
    OK(extant_unmount(fs, &failure));
    IS(extant_pread(file, &byte, 1, 0, &failure), 1);
    FAILS(extant_pwrite(file, &byte, 1, 0, &failure), EROFS, EXTANT_ERROR_REFUSED);
    extant_close(file);
    whole(argv[1]);
    return 0;
}
