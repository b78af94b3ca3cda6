/* Four threads on one file system, in directories of their own and in one file that they share. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 4, FILES = 50, RECORDS = 2000 };

static extant_fs *fs;
static extant_file *shared;
static pthread_barrier_t all_ready;

static void *work(void *argument)
{
    int number = (int)(intptr_t)argument, count = 0;
    char path[64], record[16], found[16];
    extant_attributes attributes;
    extant_file *file = NULL;
    extant_dir *dir = NULL;
    extant_dirent entry;
    snprintf(path, sizeof path, "/thread%d", number);
    OK(extant_mkdir(fs, path, 0755, &failure));
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "/thread%d/%d", number, i);
        OK(extant_open(fs, path, EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE, 0644, &file, &failure));
        IS(extant_write(file, path, strlen(path), &failure), strlen(path));
        extant_close(file);
        OK(extant_stat(fs, path, 0, &attributes, &failure));
        IS(attributes.size, strlen(path));
        if (i % 2)
            OK(extant_unlink(fs, path, &failure));
        /* A failure of one thread does not show in those of others. */
        snprintf(path, sizeof path, "/none%d", number);
        FAILS(extant_unlink(fs, path, &failure), ENOENT, EXTANT_ERROR_REFUSED);
        OK(strncmp(failure.message, path, strlen(path)));
    }
    /* Records at the position of the shared handle: none is lost or torn. */
    snprintf(record, sizeof record, "record of %d....", number);
    record[15] = '\n';
    pthread_barrier_wait(&all_ready);
    for (int i = 0; i < RECORDS; i++)
        IS(extant_write(shared, record, sizeof record, &failure), sizeof record);
    for (int i = 0; i < RECORDS; i++)
        IS(extant_pread(shared, found, sizeof found, (uint64_t)i * sizeof found, &failure), sizeof found);
    snprintf(path, sizeof path, "/thread%d", number);
    OK(extant_opendir(fs, path, &dir, &failure));
    while (extant_readdir(dir, &entry, &failure) == 1)
        count++;
    extant_closedir(dir);
    IS(count, FILES / 2);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    extant_device *device = NULL;
    int counts[THREADS] = {0};
    char record[16];
    IS(argc, 2);
    fs = new_disk(argv[1], "threads.img", &device);
    OK(extant_open(fs, "/shared", EXTANT_READ | EXTANT_WRITE | EXTANT_CREATE, 0644, &shared, &failure));
    OK(pthread_barrier_init(&all_ready, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        OK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i));
    for (int i = 0; i < THREADS; i++)
        OK(pthread_join(threads[i], NULL));
    for (int i = 0; i < THREADS * RECORDS; i++) {
        IS(extant_pread(shared, record, sizeof record, (uint64_t)i * sizeof record, &failure), sizeof record);
        OK(memcmp(record, "record of ", 10));
        counts[record[10] - '0']++;
    }
    for (int i = 0; i < THREADS; i++)
        IS(counts[i], RECORDS);
    extant_close(shared);
    IS(extant_check(fs, NULL, NULL, &failure), 0);
    OK(extant_unmount(fs, &failure));
    extant_device_close(device);
    return 0;
}
