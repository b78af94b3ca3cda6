/* Failures: their errno, kind and message. Images are in the directory argv[1]; argv[2] is a damaged one, whose inode argv[3] has a
 * wrong checksum and is /damaged. */
#include "check.h"

static int findings;

static void count_finding(void *context, const char *finding)
{
    IS(strlen(finding) > 10, 1);
    IS(context == &findings, 1);
    findings++;
}

/* NULL in place of each pointer, and unknown flags. */
static void arguments(extant_fs *fs, extant_device *device)
{
    extant_file *file = NULL;
    extant_dir *dir = NULL;
    extant_fs *other = NULL;
    extant_attributes attributes;
    extant_mount_options mount;
    extant_mkfs_options format;
    extant_dirent entry;
    extant_usage usage;
    char buf[8];
    enum extant_error_kind why = EXTANT_ERROR_ARGUMENT;
    FAILS(extant_device_open(NULL, 0, 0, 0, &device, &failure), EINVAL, why);
    FAILS(extant_device_open("/", 0, 0, 0, NULL, &failure), EINVAL, why);
    FAILS(extant_device_open("/", 0x80, 0, 0, &device, &failure), EINVAL, why);
    FAILS(extant_device_create(NULL, 1, &device, &failure), EINVAL, why);
    FAILS(extant_device_custom(NULL, &device, &failure), EINVAL, why);
    FAILS(extant_mkfs(NULL, NULL, &failure), EINVAL, why);
    FAILS(extant_mount(NULL, NULL, &other, &failure), EINVAL, why);
    FAILS(extant_mount(device, NULL, NULL, &failure), EINVAL, why);
    FAILS(extant_sync(NULL, &failure), EINVAL, why);
    FAILS(extant_statfs(NULL, &usage, &failure), EINVAL, why);
    FAILS(extant_statfs(fs, NULL, &failure), EINVAL, why);
    FAILS(extant_check(NULL, NULL, NULL, &failure), EINVAL, why);
    FAILS(extant_stat(NULL, "/", 0, &attributes, &failure), EINVAL, why);
    FAILS(extant_stat(fs, NULL, 0, &attributes, &failure), EINVAL, why);
    FAILS(extant_stat(fs, "/", 0, NULL, &failure), EINVAL, why);
    FAILS(extant_stat(fs, "/", 2, &attributes, &failure), EINVAL, why);
    FAILS(extant_mkdir(NULL, "/d", 0, &failure), EINVAL, why);
    FAILS(extant_mkdir(fs, NULL, 0, &failure), EINVAL, why);
    FAILS(extant_mkdir(fs, "/", 0, &failure), EINVAL, why);
    FAILS(extant_mknod(fs, "/d", S_IFDIR, 0, 0, &failure), EINVAL, why);
    FAILS(extant_rmdir(fs, NULL, &failure), EINVAL, why);
    FAILS(extant_unlink(fs, NULL, &failure), EINVAL, why);
    FAILS(extant_rename(fs, "/a", NULL, &failure), EINVAL, why);
    FAILS(extant_link(fs, NULL, "/a", &failure), EINVAL, why);
    FAILS(extant_symlink(fs, NULL, "/a", &failure), EINVAL, why);
    FAILS(extant_readlink(fs, NULL, buf, sizeof buf, &failure), EINVAL, why);
    FAILS(extant_chmod(fs, NULL, 0, 0, &failure), EINVAL, why);
    FAILS(extant_chown(NULL, "/", 0, 0, 0, &failure), EINVAL, why);
    FAILS(extant_utimens(fs, NULL, NULL, 0, &failure), EINVAL, why);
    FAILS(extant_getxattr(fs, "/", NULL, buf, sizeof buf, 0, &failure), EINVAL, why);
    FAILS(extant_setxattr(fs, "/", "user.a", NULL, 1, 0, &failure), EINVAL, why);
    FAILS(extant_listxattr(NULL, "/", buf, sizeof buf, 0, &failure), EINVAL, why);
    FAILS(extant_removexattr(fs, "/", NULL, 0, &failure), EINVAL, why);
    FAILS(extant_opendir(fs, "/", NULL, &failure), EINVAL, why);
    FAILS(extant_readdir(NULL, &entry, &failure), EINVAL, why);
    FAILS(extant_open(fs, "/f", EXTANT_READ, 0, NULL, &failure), EINVAL, why);
    FAILS(extant_open(fs, "/f", 0, 0, &file, &failure), EINVAL, why);
    FAILS(extant_open(fs, "/f", EXTANT_READ | EXTANT_TRUNCATE, 0, &file, &failure), EINVAL, why);
    FAILS(extant_open(fs, "/f", 0x1001, 0, &file, &failure), EINVAL, why);
    FAILS(extant_read(NULL, buf, 1, &failure), EINVAL, why);
    FAILS(extant_write(NULL, buf, 1, &failure), EINVAL, why);
    FAILS(extant_pread(NULL, buf, 1, 0, &failure), EINVAL, why);
    FAILS(extant_pwrite(NULL, buf, 1, 0, &failure), EINVAL, why);
    FAILS(extant_seek(NULL, 0, 0, &failure), EINVAL, why);
    FAILS(extant_truncate(NULL, 0, &failure), EINVAL, why);
    FAILS(extant_fsync(NULL, 0, &failure), EINVAL, why);
    FAILS(extant_fstat(NULL, &attributes, &failure), EINVAL, why);
    memset(&mount, 0, sizeof mount);
    mount.reserved[3] = 1;
    FAILS(extant_mount(device, &mount, &other, &failure), EBUSY, EXTANT_ERROR_IN_USE);
    memset(&format, 0, sizeof format);
    format.features = "no_such_feature";
    FAILS(extant_mkfs(device, &format, &failure), EINVAL, why);
    IS(strstr(failure.message, "no_such_feature") != NULL, 1);
    /* Without a place for the failure, and nothing to close. */
    IS(extant_mkdir(fs, NULL, 0, NULL), -EINVAL);
    OK(extant_unmount(NULL, NULL));
    extant_close(NULL);
    extant_closedir(dir);
    extant_device_close(NULL);
}

static void refusals(extant_fs *fs, extant_device *device)
{
    enum extant_error_kind why = EXTANT_ERROR_REFUSED;
    extant_file *file = NULL;
    extant_dir *dir = NULL;
    extant_fs *other = NULL;
    char buf[4], long_path[3000];
    FAILS(extant_open(fs, "/no/file", EXTANT_READ, 0, &file, &failure), ENOENT, why);
    OK(strcmp(failure.message, "/no/file: no such file or directory"));
    FAILS(extant_rename(fs, "/a", "/b", &failure), ENOENT, why);
    OK(strcmp(failure.message, "/a -> /b: no such file or directory"));
    FAILS(extant_rmdir(fs, "/lost+found/x", &failure), ENOENT, why);
    FAILS(extant_open(fs, "/", EXTANT_WRITE, 0, &file, &failure), EISDIR, why);
    OK(extant_open(fs, "/f", EXTANT_WRITE | EXTANT_CREATE | EXTANT_EXCLUSIVE, 0644, &file, &failure));
    FAILS(extant_read(file, buf, 1, &failure), EBADF, why);
    FAILS(extant_seek(file, -1, EXTANT_SEEK_SET, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    FAILS(extant_seek(file, 0, 9, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    FAILS(extant_seek(file, 0, EXTANT_SEEK_DATA, &failure), ENXIO, why);
    FAILS(extant_write(file, NULL, 1, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    FAILS(extant_write(file, buf, UINT64_MAX, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    FAILS(extant_pwrite(file, buf, 1, UINT64_MAX, &failure), EFBIG, why);
    OK(extant_write(file, NULL, 0, &failure));
    extant_close(file);
    FAILS(extant_open(fs, "/f", EXTANT_WRITE | EXTANT_CREATE | EXTANT_EXCLUSIVE, 0, &file, &failure), EEXIST, why);
    OK(extant_open(fs, "/f", EXTANT_READ, 0, &file, &failure));
    FAILS(extant_pwrite(file, buf, 1, 0, &failure), EBADF, why);
    FAILS(extant_truncate(file, 0, &failure), EBADF, why);
    extant_close(file);
    FAILS(extant_opendir(fs, "/f", &dir, &failure), ENOTDIR, why);
    FAILS(extant_readlink(fs, "/f", buf, sizeof buf, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    FAILS(extant_getxattr(fs, "/f", "user.none", buf, sizeof buf, 0, &failure), ENODATA, why);
    OK(extant_setxattr(fs, "/f", "user.a", "12345", 5, 0, &failure));
    FAILS(extant_getxattr(fs, "/f", "user.a", buf, sizeof buf, 0, &failure), ERANGE, why);
    FAILS(extant_setxattr(fs, "/f", "user.a", "1", 1, EXTANT_XATTR_CREATE, &failure), EEXIST, why);
    memset(long_path, 'n', sizeof long_path - 1);
    long_path[0] = '/';
    long_path[sizeof long_path - 1] = 0;
    FAILS(extant_mkdir(fs, long_path, 0755, &failure), ENAMETOOLONG, why);
    IS(strstr(failure.message, "name too long") != NULL, 1);
    FAILS(extant_mount(device, NULL, &other, &failure), EBUSY, EXTANT_ERROR_IN_USE);
    FAILS(extant_mkfs(device, NULL, &failure), EBUSY, EXTANT_ERROR_IN_USE);
}

static void read_only(const char *dir)
{
    extant_mount_options mount;
    extant_device *device = NULL, *locked = NULL;
    extant_file *file = NULL;
    extant_fs *fs = NULL;
    extant_usage usage;
    memset(&mount, 0, sizeof mount);
    OK(extant_device_open(in_dir(dir, "errors.img"), EXTANT_READ_ONLY, 0, 0, &device, &failure));
    FAILS(extant_device_open(in_dir(dir, "errors.img"), 0, 0, 0, &locked, &failure), EBUSY, EXTANT_ERROR_IN_USE);
    FAILS(extant_mkfs(device, NULL, &failure), EROFS, EXTANT_ERROR_REFUSED);
    FAILS(extant_mount(device, NULL, &fs, &failure), EROFS, EXTANT_ERROR_REFUSED);
    mount.flags = EXTANT_NO_RECOVERY;
    FAILS(extant_mount(device, &mount, &fs, &failure), EROFS, EXTANT_ERROR_REFUSED);
    mount.flags = EXTANT_READ_ONLY;
    mount.reserved[3] = 1;
    FAILS(extant_mount(device, &mount, &fs, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    mount.reserved[3] = 0;
    OK(extant_mount(device, &mount, &fs, &failure));
    OK(extant_statfs(fs, &usage, &failure));
    IS(usage.flags, EXTANT_READ_ONLY);
    FAILS(extant_mkdir(fs, "/dir", 0755, &failure), EROFS, EXTANT_ERROR_REFUSED);
    FAILS(extant_open(fs, "/f", EXTANT_WRITE, 0, &file, &failure), EROFS, EXTANT_ERROR_REFUSED);
    FAILS(extant_unlink(fs, "/f", &failure), EROFS, EXTANT_ERROR_REFUSED);
    FAILS(extant_chmod(fs, "/f", 0, 0, &failure), EROFS, EXTANT_ERROR_REFUSED);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);
}

static void devices(const char *dir)
{
    extant_device *device = NULL;
    extant_fs *fs = NULL;
    FAILS(extant_device_open(in_dir(dir, "none.img"), 0, 0, 0, &device, &failure), ENOENT, EXTANT_ERROR_DEVICE);
    IS(strstr(failure.message, "none.img") != NULL, 1);
    FAILS(extant_device_open(dir, 0, 0, 0, &device, &failure), EINVAL, EXTANT_ERROR_DEVICE);
    FAILS(extant_device_create(in_dir(dir, "errors.img"), 1, &device, &failure), EEXIST, EXTANT_ERROR_DEVICE);
    OK(extant_device_create(in_dir(dir, "zeroes.img"), 1 << 20, &device, &failure));
    FAILS(extant_mount(device, NULL, &fs, &failure), EUCLEAN, EXTANT_ERROR_CORRUPT);
    extant_device_close(device);
    FAILS(extant_device_open(in_dir(dir, "zeroes.img"), 0, 1 << 19, 1 << 20, &device, &failure), EINVAL,
          EXTANT_ERROR_ARGUMENT);
    OK(extant_device_create(in_dir(dir, "small.img"), 4096, &device, &failure));
    FAILS(extant_mkfs(device, NULL, &failure), ENOSPC, EXTANT_ERROR_ARGUMENT);
    extant_device_close(device);
}

static void damaged(const char *path, uint64_t inode)
{
    extant_mount_options mount;
    extant_device *device = NULL;
    extant_file *file = NULL;
    extant_fs *fs = NULL;
    memset(&mount, 0, sizeof mount);
    mount.flags = EXTANT_READ_ONLY;
    OK(extant_device_open(path, EXTANT_READ_ONLY, 0, 0, &device, &failure));
    OK(extant_mount(device, &mount, &fs, &failure));
    FAILS(extant_open(fs, "/damaged", EXTANT_READ, 0, &file, &failure), EUCLEAN, EXTANT_ERROR_CORRUPT);
    IS(failure.inode, inode);
    IS(extant_check(fs, count_finding, &findings, &failure) > 0, 1);
    IS(findings > 0, 1);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);
}

int main(int argc, char **argv)
{
    extant_device *device = NULL;
    extant_fs *fs;
    IS(argc, 4);
    fs = new_disk(argv[1], "errors.img", &device);
    arguments(fs, device);
    refusals(fs, device);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);
    read_only(argv[1]);
    devices(argv[1]);
    damaged(argv[2], strtoull(argv[3], NULL, 10));
    return 0;
}
