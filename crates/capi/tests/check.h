/* What the test programs share: a check that names what failed. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "extant.h"

/* The failure of the call that a check is about. */
static __thread extant_error failure;

/* Ends the program unless an expression has a value. */
#define IS(expression, value)                                                                      \
    do {                                                                                           \
        int64_t found_ = (int64_t)(expression), wanted_ = (int64_t)(value);                        \
        if (found_ != wanted_) {                                                                   \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 " (%s)\n", __FILE__,          \
                    __LINE__, #expression, found_, wanted_, failure.message);                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(expression) IS(expression, 0)

/* Ends the program unless a call fails with this errno, which the failure repeats, and this kind. */
#define FAILS(expression, number, why)                                                             \
    do {                                                                                           \
        memset(&failure, 0, sizeof failure);                                                       \
        IS(expression, -(number));                                                                 \
        IS(failure.code, number);                                                                  \
        IS(failure.kind, why);                                                                     \
        IS(failure.message[0] != 0, 1);                                                            \
    } while (0)

/* A file in a directory of the host. */
static inline const char *in_dir(const char *dir, const char *name)
{
    static __thread char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* A new image of 32 MiB in a directory, mounted. */
static inline extant_fs *new_disk(const char *dir, const char *name, extant_device **device)
{
    extant_fs *fs = NULL;
    OK(extant_device_create(in_dir(dir, name), 32 << 20, device, &failure));
    OK(extant_mkfs(*device, NULL, &failure));
    OK(extant_mount(*device, NULL, &fs, &failure));
    return fs;
}

#endif
