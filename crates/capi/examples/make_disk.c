/* Makes a disk, writes a file, lists its directory and reads the file back. */
#include <extant.h>
#include <stdio.h>

static extant_error error;

/* Reports a failure and passes the result on. */
static int64_t tell(int64_t result)
{
    if (result < 0)
        fprintf(stderr, "%s\n", error.message);
    return result;
}

static int use(extant_fs *fs)
{
    extant_file *file;
    extant_dir *dir;
    extant_dirent entry;
    char buf[64];
    int64_t bytes;

    if (tell(extant_mkdir(fs, "/etc", 0755, &error)) < 0
        || tell(extant_open(fs, "/etc/hostname", EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE, 0644, &file, &error)) < 0)
        return 1;
    bytes = tell(extant_write(file, "guest\n", 6, &error));
    if (bytes >= 0)
        bytes = tell(extant_pread(file, buf, sizeof buf, 0, &error));
    extant_close(file);
    if (bytes < 0 || tell(extant_opendir(fs, "/etc", &dir, &error)) < 0)
        return 1;
    while (tell(extant_readdir(dir, &entry, &error)) > 0)
        printf("%s\n", entry.name);
    extant_closedir(dir);
    printf("it says: %.*s", (int)bytes, buf);
    return 0;
}

int main(int argc, char **argv)
{
    extant_device *device;
    extant_fs *fs;
    int failed = 1;

    if (argc != 2)
        return 2;
    if (tell(extant_device_create(argv[1], 64 << 20, &device, &error)) < 0)
        return 1;
    if (tell(extant_mkfs(device, NULL, &error)) == 0 && tell(extant_mount(device, NULL, &fs, &error)) == 0) {
        failed = use(fs);
        if (tell(extant_unmount(fs, &error)) < 0)
            failed = 1;
    }
    extant_device_close(device);
    return failed;
}
