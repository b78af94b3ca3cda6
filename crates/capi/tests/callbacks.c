/* A disk in memory behind callbacks: it works, its failures keep their errno, and it is closed once. */
#include "check.h"

enum { BYTES = 16 << 20 };

struct memory {
    char *bytes;
    int read_result, write_result, flush_result;
    int writes, flushes, closes;
};

static int read_memory(void *context, uint64_t offset, void *buf, uint64_t size)
{
    struct memory *memory = context;
    IS(offset + size <= BYTES, 1);
    if (!memory->read_result)
        memcpy(buf, memory->bytes + offset, size);
    return memory->read_result;
}

static int write_memory(void *context, uint64_t offset, const void *buf, uint64_t size)
{
    struct memory *memory = context;
    IS(offset + size <= BYTES, 1);
    memory->writes++;
    if (!memory->write_result)
        memcpy(memory->bytes + offset, buf, size);
    return memory->write_result;
}

static int flush_memory(void *context)
{
    struct memory *memory = context;
    memory->flushes++;
    return memory->flush_result;
}

static void close_memory(void *context)
{
    ((struct memory *)context)->closes++;
}

static void write_file(extant_fs *fs, const char *path)
{
    extant_file *file = NULL;
    OK(extant_open(fs, path, EXTANT_WRITE | EXTANT_CREATE, 0644, &file, &failure));
    IS(extant_write(file, path, strlen(path), &failure), strlen(path));
    OK(extant_fsync(file, 0, &failure));
    extant_close(file);
}

int main(void)
{
    struct memory memory;
    extant_callbacks callbacks;
    extant_mount_options mount;
    extant_device *device = NULL;
    extant_file *file = NULL;
    extant_fs *fs = NULL;
    char buf[8] = {0};
    memset(&memory, 0, sizeof memory);
    memset(&callbacks, 0, sizeof callbacks);
    memset(&mount, 0, sizeof mount);
    memory.bytes = calloc(1, BYTES);
    callbacks.context = &memory;
    callbacks.bytes = BYTES;
    callbacks.close = close_memory;
    FAILS(extant_device_custom(&callbacks, &device, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    callbacks.read = read_memory;
    callbacks.write = write_memory;
    FAILS(extant_device_custom(&callbacks, &device, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    callbacks.flush = flush_memory;
    callbacks.reserved0 = 1;
    FAILS(extant_device_custom(&callbacks, &device, &failure), EINVAL, EXTANT_ERROR_ARGUMENT);
    IS(memory.closes, 0);
    callbacks.reserved0 = 0;
    OK(extant_device_custom(&callbacks, &device, &failure));

    memory.write_result = -ENXIO;
    FAILS(extant_mkfs(device, NULL, &failure), ENXIO, EXTANT_ERROR_DEVICE);
    memory.write_result = 0;
    OK(extant_mkfs(device, NULL, &failure));
    OK(extant_mount(device, NULL, &fs, &failure));
    write_file(fs, "/kept");
    IS(memory.writes > 0 && memory.flushes > 0, 1);
    OK(extant_unmount(fs, &failure));

    /* A read that fails, by the errno of the callback, and by one that C programmers confuse with it. */
    memory.read_result = -EIO;
    FAILS(extant_mount(device, NULL, &fs, &failure), EIO, EXTANT_ERROR_DEVICE);
    memory.read_result = -ETIMEDOUT;
    FAILS(extant_mount(device, NULL, &fs, &failure), ETIMEDOUT, EXTANT_ERROR_DEVICE);
    memory.read_result = 512;
    FAILS(extant_mount(device, NULL, &fs, &failure), EIO, EXTANT_ERROR_DEVICE);
    IS(strstr(failure.message, "512") != NULL, 1);
    memory.read_result = 0;

    /* A flush that fails ends all writing; what was durable before is there afterwards. */
    mount.flags = EXTANT_NO_BACKGROUND;
    OK(extant_mount(device, &mount, &fs, &failure));
    OK(extant_open(fs, "/lost", EXTANT_WRITE | EXTANT_CREATE, 0644, &file, &failure));
    memory.flush_result = -EREMOTEIO;
    FAILS(extant_fsync(file, 0, &failure), EREMOTEIO, EXTANT_ERROR_DEVICE);
    memory.flush_result = 0;
    FAILS(extant_mkdir(fs, "/dir", 0755, &failure), EROFS, EXTANT_ERROR_REFUSED);
    extant_close(file);
    IS(extant_unmount(fs, &failure) < 0, 1);

    /* Without `write` the device can only be read. */
    OK(memory.closes);
    extant_device_close(device);
    IS(memory.closes, 1);
    callbacks.write = NULL;
    callbacks.flush = NULL;
    OK(extant_device_custom(&callbacks, &device, &failure));
    FAILS(extant_mount(device, NULL, &fs, &failure), EROFS, EXTANT_ERROR_REFUSED);
    mount.flags = EXTANT_READ_ONLY;
    OK(extant_mount(device, &mount, &fs, &failure));
    OK(extant_open(fs, "/kept", EXTANT_READ, 0, &file, &failure));
    IS(extant_read(file, buf, sizeof buf, &failure), 5);
    OK(strcmp(buf, "/kept"));

    /* The device lives as long as what was opened on it. */
    extant_device_close(device);
    OK(extant_unmount(fs, &failure));
    IS(memory.closes, 1);
    extant_close(file);
    IS(memory.closes, 2);
    free(memory.bytes);
    return 0;
}
