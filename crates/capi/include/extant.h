/*
 * libextant: ext4 in user space. Made of crates/capi/src by cbindgen; changes here are lost.
 *
 * Results. A function returns 0, a count, or a negative errno: -ENOENT, -EUCLEAN (the disk is damaged or holds no ext4), -EINVAL (NULL
 * or a wrong flag). Each takes as its last argument a structure in which it describes a failure, or NULL. It writes the structure only
 * if it fails. -ENOTRECOVERABLE is a defect of the library, which ended the function but not the program.
 *
 * Handles. extant_device, extant_fs, extant_file and extant_dir belong to the caller, who closes each once. They may be closed in any
 * order. A function that makes a handle writes it only if it succeeds. `const` marks the handles that a function does not free.
 *
 * Threads. All functions may be called from several threads at once, also with one handle, except that the thread that closes or
 * unmounts a handle must be the only one that uses it. A program that forks must not use handles in the child.
 *
 * Strings end with NUL, and their bytes are those on the disk, in no encoding. Paths begin at the root of the disk, with or without '/';
 * symbolic links are followed inside the disk only. All operations run as root of the disk: permissions are not checked.
 *
 * Durability. A change is durable at the next commit, 5 s later at most, or after extant_fsync, extant_sync or extant_unmount. A crash
 * before leaves the state before it.
 *
 * Structures. Fields named reserved are 0 in what the caller gives, else the function fails with -EINVAL. So later versions can give them
 * a meaning, and no structure changes its size while the library is libextant.so.0.
 */

#ifndef EXTANT_H
#define EXTANT_H

#include <stdint.h>

/**
 * A symbolic link at the end of a path is not followed.
 */
#define EXTANT_NOFOLLOW 1

/**
 * The device or the file system is opened for reading only. A dirty journal is replayed in memory.
 */
#define EXTANT_READ_ONLY 1

/**
 * Opened for reading.
 */
#define EXTANT_READ 1

/**
 * Opened for writing.
 */
#define EXTANT_WRITE 2

/**
 * Opened for writing, each time at the end.
 */
#define EXTANT_APPEND 4

/**
 * Made if it does not exist.
 */
#define EXTANT_CREATE 8

/**
 * With `EXTANT_CREATE`: an error if it exists.
 */
#define EXTANT_EXCLUSIVE 16

/**
 * Cut to nothing. Only if opened for writing.
 */
#define EXTANT_TRUNCATE 32

/**
 * `extant_fsync` makes only the data durable, and what is needed to read it back.
 */
#define EXTANT_DATA_ONLY 1

/**
 * `extant_seek`: from the beginning.
 */
#define EXTANT_SEEK_SET 0

/**
 * From the position.
 */
#define EXTANT_SEEK_CUR 1

/**
 * From the end.
 */
#define EXTANT_SEEK_END 2

/**
 * To the first data at or behind the offset.
 */
#define EXTANT_SEEK_DATA 3

/**
 * To the first hole at or behind the offset, or the end.
 */
#define EXTANT_SEEK_HOLE 4

/**
 * A dirty journal is left alone, and the disk shown as it is. Only with `EXTANT_READ_ONLY`.
 */
#define EXTANT_NO_RECOVERY 2

/**
 * Blocks are discarded on the device once their freeing is durable.
 */
#define EXTANT_DISCARD 4

/**
 * The library starts no threads: only `extant_sync`, `extant_fsync` and a full log commit.
 */
#define EXTANT_NO_BACKGROUND 8

/**
 * Files are not kept in memory, whatever the device.
 */
#define EXTANT_NO_PAGE_CACHE 16

/**
 * In place of nanoseconds: `extant_utimens` leaves this time, and an inode has no room for this one.
 */
#define EXTANT_TIME_OMIT 4294967295

/**
 * The attribute must not exist.
 */
#define EXTANT_XATTR_CREATE 16

/**
 * The attribute must exist.
 */
#define EXTANT_XATTR_REPLACE 32

/**
 * The cause of a failure, where the `errno` alone does not say it. Values stay; later versions may add some.
 */
enum extant_error_kind
#ifdef __cplusplus
  : uint32_t
#endif // __cplusplus
 {
    /**
     * The operation was refused in the way of POSIX; the `errno` says why.
     */
    EXTANT_ERROR_REFUSED = 1,
    /**
     * An argument is wrong: NULL, an unknown flag, a value out of range.
     */
    EXTANT_ERROR_ARGUMENT = 2,
    /**
     * The device failed, or cannot be opened. The `errno` is the host's, or that of the callback.
     */
    EXTANT_ERROR_DEVICE = 3,
    /**
     * The disk is damaged, or holds no ext4; `inode` and `block` say where, if that is known.
     */
    EXTANT_ERROR_CORRUPT = 4,
    /**
     * The disk has features that are not supported.
     */
    EXTANT_ERROR_INCOMPATIBLE = 5,
    /**
     * Another program, another host or another handle uses the device.
     */
    EXTANT_ERROR_IN_USE = 6,
    /**
     * A defect of the library. What was under way is undone by the next mount; close all handles.
     */
    EXTANT_ERROR_PANIC = 7,
};
#ifndef __cplusplus
typedef uint32_t extant_error_kind;
#endif // __cplusplus

/**
 * A device: an image file, a block device, a part of one, or one of your own.
 */
typedef struct extant_device extant_device;

/**
 * An open directory.
 */
typedef struct extant_dir extant_dir;

/**
 * An open file.
 */
typedef struct extant_file extant_file;

/**
 * A mounted file system.
 */
typedef struct extant_fs extant_fs;

/**
 * A moment after the start of 1970, in UTC.
 */
typedef struct extant_time {
    /**
     * Whole seconds, rounded down.
     */
    int64_t seconds;
    /**
     * Nanoseconds beyond them, below 10^9.
     */
    uint32_t nanoseconds;
    /**
     * 0.
     */
    uint32_t reserved;
} extant_time;

/**
 * What `extant_stat` and `extant_fstat` report.
 */
typedef struct extant_attributes {
    /**
     * The inode's number.
     */
    uint64_t inode;
    /**
     * Bytes of content.
     */
    uint64_t size;
    /**
     * Space taken, in units of 512 bytes.
     */
    uint64_t blocks_512;
    /**
     * Counts changes.
     */
    uint64_t version;
    /**
     * Type, set-id, sticky and permission bits, as those of `S_IFMT` and others in `<sys/stat.h>`.
     */
    uint32_t mode;
    /**
     * Names; of a directory 2 and its subdirectories, or 1 if they are too many to count.
     */
    uint32_t links;
    /**
     * The owner.
     */
    uint32_t uid;
    /**
     * The group.
     */
    uint32_t gid;
    /**
     * The major number of a device, else 0.
     */
    uint32_t device_major;
    /**
     * The minor number of a device, else 0.
     */
    uint32_t device_minor;
    /**
     * Distinguishes this use of the inode's number from others.
     */
    uint32_t generation;
    /**
     * The flags of `chattr`, as those of `FS_IOC_GETFLAGS` in `<linux/fs.h>`.
     */
    uint32_t flags;
    /**
     * The project.
     */
    uint32_t project;
    /**
     * 0.
     */
    uint32_t reserved0;
    /**
     * The last access.
     */
    struct extant_time atime;
    /**
     * The last change of the content.
     */
    struct extant_time mtime;
    /**
     * The last change of the inode.
     */
    struct extant_time ctime;
    /**
     * When it was made; `nanoseconds` is `EXTANT_TIME_OMIT` if the inode has no room for that.
     */
    struct extant_time crtime;
    /**
     * 0.
     */
    uint64_t reserved[4];
} extant_attributes;

/**
 * A failure. The library writes it only if the function fails.
 */
typedef struct extant_error {
    /**
     * The `errno`, as a positive number. The function returned it as a negative one.
     */
    int32_t code;
    /**
     * An `extant_error_kind`.
     */
    uint32_t kind;
    /**
     * The inode that is damaged or could not be read; 0 if the failure has none.
     */
    uint64_t inode;
    /**
     * The block of the file system that is damaged or could not be read; 0 if the failure has none.
     */
    uint64_t block;
    /**
     * What is wrong and where, in English, ended by NUL. Begins with the path that was given. Bytes of names are as they are, so
     * it need not be UTF-8.
     */
    char message[1000];
} extant_error;

/**
 * A device of your own. Functions return 0, or a negative `errno`, which the operation that needed the device returns. They are called
 * from several threads at once, threads of the library among them, with ranges inside the device. They must not unwind (C++ exceptions,
 * `longjmp`), nor call the library for the file system on this device.
 */
typedef struct extant_callbacks {
    /**
     * Passed to each function.
     */
    void *context;
    /**
     * The size of the device in bytes. It stays.
     */
    uint64_t bytes;
    /**
     * Fills `buf` with the `size` bytes at `offset`.
     */
    int (*read)(void *context, uint64_t offset, void *buf, uint64_t size);
    /**
     * Writes the `size` bytes of `buf` at `offset`. NULL: the device can only be read.
     */
    int (*write)(void *context, uint64_t offset, const void *buf, uint64_t size);
    /**
     * Returns when all writes that returned before are durable. Needed if there is `write`.
     */
    int (*flush)(void *context);
    /**
     * Learns that the `size` bytes at `offset` are not needed any more. NULL: the device cannot discard.
     */
    int (*discard)(void *context, uint64_t offset, uint64_t size);
    /**
     * Called once, when no other function will be called any more. May be NULL.
     */
    void (*close)(void *context);
    /**
     * Other than 0 if requests wait for a disk or a network, so that it pays to keep files in memory above the device.
     */
    uint32_t has_latency;
    /**
     * 0.
     */
    uint32_t reserved0;
    /**
     * 0.
     */
    uint64_t reserved[4];
} extant_callbacks;

/**
 * An entry of a directory.
 */
typedef struct extant_dirent {
    /**
     * The inode's number.
     */
    uint64_t inode;
    /**
     * The type bits of the inode's mode (`S_IFMT`); 0 if the directory does not say.
     */
    uint32_t file_type;
    /**
     * Bytes of the name, without its NUL.
     */
    uint32_t name_bytes;
    /**
     * The name, ended by NUL.
     */
    char name[256];
} extant_dirent;

/**
 * How to make a file system. Fields that are 0 or NULL have the defaults of mke2fs.
 */
typedef struct extant_mkfs_options {
    /**
     * The volume's name, up to 16 bytes.
     */
    const char *label;
    /**
     * Features to add, and after `^` to remove, separated by commas, as of `mke2fs -O`.
     */
    const char *features;
    /**
     * Extended options, as of `mke2fs -E`.
     */
    const char *extended;
    /**
     * The UUID in its usual text form; NULL: a random one.
     */
    const char *uuid;
    /**
     * The time of all that is made; NULL: the host's clock. With a fixed time the same options give the same bytes.
     */
    const struct extant_time *time;
    /**
     * The size in bytes; 0: the whole device.
     */
    uint64_t bytes;
    /**
     * Bytes of a block: a power of two from 1024 to 65536.
     */
    uint32_t block_size;
    /**
     * Bytes of the disk for each inode.
     */
    uint32_t inode_ratio;
    /**
     * 0.
     */
    uint64_t reserved[4];
} extant_mkfs_options;

/**
 * How to mount. Fields that are 0 have defaults.
 */
typedef struct extant_mount_options {
    /**
     * `EXTANT_READ_ONLY`, `EXTANT_NO_RECOVERY`, `EXTANT_DISCARD`, `EXTANT_NO_BACKGROUND`, `EXTANT_NO_PAGE_CACHE`.
     */
    uint32_t flags;
    /**
     * Milliseconds between commits in the background; 5000 by default.
     */
    uint32_t commit_interval_ms;
    /**
     * Bytes of memory for metadata; 256 MiB by default, or 16 MiB for each CPU if that is more.
     */
    uint64_t cache_bytes;
    /**
     * Bytes of memory for files, where the device has latency; 256 MiB by default. Image files are in the host's memory already.
     */
    uint64_t page_cache_bytes;
    /**
     * 0.
     */
    uint64_t reserved[4];
} extant_mount_options;

/**
 * How full a file system is.
 */
typedef struct extant_usage {
    /**
     * Blocks, without those that the file system needs for itself.
     */
    uint64_t blocks;
    /**
     * Free blocks.
     */
    uint64_t free_blocks;
    /**
     * Free blocks without those that are kept for root.
     */
    uint64_t available_blocks;
    /**
     * Inodes.
     */
    uint64_t inodes;
    /**
     * Free inodes.
     */
    uint64_t free_inodes;
    /**
     * Bytes of a block.
     */
    uint32_t block_size;
    /**
     * Bytes of a name at most.
     */
    uint32_t name_bytes_max;
    /**
     * `EXTANT_READ_ONLY` if changes are refused, because it was mounted so or since an error.
     */
    uint32_t flags;
    /**
     * The label, ended by NUL.
     */
    char label[20];
    /**
     * The UUID.
     */
    uint8_t uuid[16];
    /**
     * 0.
     */
    uint64_t reserved[4];
} extant_usage;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Reports the attributes of what is at a path. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: ENOENT, ENOTDIR, ELOOP; EUCLEAN; those of the device.
 */
int extant_stat(const struct extant_fs *fs,
                const char *path,
                uint32_t flags,
                struct extant_attributes *out,
                struct extant_error *error);

/**
 * Sets permission, set-id and sticky bits; other bits of `mode` are ignored. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: as `extant_stat`; EPERM for an immutable inode; EROFS.
 */
int extant_chmod(const struct extant_fs *fs,
                 const char *path,
                 uint32_t mode,
                 uint32_t flags,
                 struct extant_error *error);

/**
 * Sets owner and group; UINT32_MAX leaves the one that it is given for. A program loses its set-id bits. `flags` is 0 or
 * `EXTANT_NOFOLLOW`.
 *
 * Errors: as `extant_chmod`.
 */
int extant_chown(const struct extant_fs *fs,
                 const char *path,
                 uint32_t uid,
                 uint32_t gid,
                 uint32_t flags,
                 struct extant_error *error);

/**
 * Sets the times of the last access, `times[0]`, and of the last change of the content, `times[1]`. `EXTANT_TIME_OMIT` as nanoseconds
 * leaves one; NULL sets both to now. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: as `extant_chmod`.
 */
int extant_utimens(const struct extant_fs *fs,
                   const char *path,
                   const struct extant_time *times,
                   uint32_t flags,
                   struct extant_error *error);

/**
 * Opens an image file or a block device, and locks it against other programs.
 *
 * `flags` is 0 or `EXTANT_READ_ONLY`. The file system lies at `offset` and takes `bytes`, or all up to the end if `bytes` is 0; of a whole
 * image both are 0. Only the parts of a partition table that the caller names are used.
 *
 * Errors: those of open(2); EBUSY if it is in use; EINVAL if it is neither a file nor a block device, or ends before the part.
 */
int extant_device_open(const char *path,
                       uint32_t flags,
                       uint64_t offset,
                       uint64_t bytes,
                       struct extant_device **device,
                       struct extant_error *error);

/**
 * Makes an image file of `bytes`, sparse and empty, and opens it for reading and writing. `extant_mkfs` makes the file system.
 *
 * Errors: those of open(2), EEXIST among them.
 */
int extant_device_create(const char *path,
                         uint64_t bytes,
                         struct extant_device **device,
                         struct extant_error *error);

/**
 * Makes a device of functions of your own. The structure is copied. If this fails, `close` is not called.
 *
 * Errors: EINVAL if `read` is NULL, if there is `write` but no `flush`, or if a reserved field is not 0.
 */
int extant_device_custom(const struct extant_callbacks *callbacks,
                         struct extant_device **device,
                         struct extant_error *error);

/**
 * Closes a device; NULL is ignored. A file system that is mounted on it goes on, and the device ends with it and its open files.
 */
void extant_device_close(struct extant_device *device);

/**
 * Opens a directory.
 *
 * Errors: ENOENT, ENOTDIR, ELOOP; EUCLEAN; those of the device.
 */
int extant_opendir(const struct extant_fs *fs,
                   const char *path,
                   struct extant_dir **dir,
                   struct extant_error *error);

/**
 * Gives the next entry, without "." and "..": returns 1 and fills `entry`, or 0 behind the last one. A name that is there throughout is
 * seen once, whatever else comes and goes.
 *
 * Errors: EUCLEAN; those of the device.
 */
int extant_readdir(const struct extant_dir *dir,
                   struct extant_dirent *entry,
                   struct extant_error *error);

/**
 * Closes a directory; NULL is ignored.
 */
void extant_closedir(struct extant_dir *dir);

/**
 * Opens a file. `flags` has `EXTANT_READ`, `EXTANT_WRITE` or `EXTANT_APPEND`, and perhaps `EXTANT_CREATE`, `EXTANT_EXCLUSIVE` and
 * `EXTANT_TRUNCATE`. Symbolic links are followed. A file that is made has the permission bits of `mode`, without any umask, and belongs
 * to root.
 *
 * Errors: ENOENT, EEXIST, EISDIR, ENOTDIR, ELOOP, ENOSPC, EROFS; EINVAL for flags that exclude each other; EUCLEAN; those of the device.
 */
int extant_open(const struct extant_fs *fs,
                const char *path,
                uint32_t flags,
                uint32_t mode,
                struct extant_file **file,
                struct extant_error *error);

/**
 * Reads up to `size` bytes at the position and moves it behind them. Returns how many; fewer only at the end of the file.
 *
 * Errors: EBADF, EISDIR; EUCLEAN; those of the device.
 */
int64_t extant_read(const struct extant_file *file,
                    void *buf,
                    uint64_t size,
                    struct extant_error *error);

/**
 * Writes `size` bytes at the position, or at the end if opened to append, and moves the position behind them. Returns how many were
 * written; fewer only if the disk is full.
 *
 * Errors: EBADF, ENOSPC, EFBIG, EROFS; EUCLEAN; those of the device.
 */
int64_t extant_write(const struct extant_file *file,
                     const void *buf,
                     uint64_t size,
                     struct extant_error *error);

/**
 * Reads up to `size` bytes at `offset`, whatever the position. Several threads may read and write a file at once.
 *
 * Errors: as `extant_read`.
 */
int64_t extant_pread(const struct extant_file *file,
                     void *buf,
                     uint64_t size,
                     uint64_t offset,
                     struct extant_error *error);

/**
 * Writes `size` bytes at `offset`, whatever the position; at the end if opened to append.
 *
 * Errors: as `extant_write`.
 */
int64_t extant_pwrite(const struct extant_file *file,
                      const void *buf,
                      uint64_t size,
                      uint64_t offset,
                      struct extant_error *error);

/**
 * Moves the position, and returns it. `whence` is one of `EXTANT_SEEK_SET` and those after it.
 *
 * Errors: EINVAL before the beginning; ENXIO if there is neither data nor a hole at or behind `offset`.
 */
int64_t extant_seek(const struct extant_file *file,
                    int64_t offset,
                    uint32_t whence,
                    struct extant_error *error);

/**
 * Cuts a file to `bytes`, or extends it with a hole.
 *
 * Errors: EBADF if not opened for writing; EFBIG, EROFS; EUCLEAN; those of the device.
 */
int extant_truncate(const struct extant_file *file, uint64_t bytes, struct extant_error *error);

/**
 * Makes a file's data and attributes durable. `flags` is 0 or `EXTANT_DATA_ONLY`.
 *
 * Errors: those of the device; once also if data written before was lost since.
 */
int extant_fsync(const struct extant_file *file, uint32_t flags, struct extant_error *error);

/**
 * Reports the attributes of an open file.
 */
int extant_fstat(const struct extant_file *file,
                 struct extant_attributes *out,
                 struct extant_error *error);

/**
 * Closes a file; NULL is ignored. What was written need not be durable: `extant_fsync` makes it so, and reports errors.
 */
void extant_close(struct extant_file *file);

/**
 * The version of the library, as "0.1.0".
 */
const char *extant_version(void);

/**
 * Makes a file system on a device; what the device held is lost. `options` may be NULL.
 *
 * Errors: EINVAL for wrong options; EBUSY if the device is mounted; ENOSPC if it is too small; EROFS if it can only be read; those of
 * the device. If it fails for a reason other than the device, nothing was written.
 */
int extant_mkfs(const struct extant_device *device,
                const struct extant_mkfs_options *options,
                struct extant_error *error);

/**
 * Mounts the file system on a device. `options` may be NULL. A device carries one mount at a time.
 *
 * Errors: EUCLEAN if the device holds no ext4, or a damaged one; EOPNOTSUPP and EROFS for features that are not supported, or only for
 * reading; EBUSY if the device is mounted, or used by another host; those of the device.
 */
int extant_mount(const struct extant_device *device,
                 const struct extant_mount_options *options,
                 struct extant_fs **fs,
                 struct extant_error *error);

/**
 * Makes everything durable and the disk clean, and frees `fs`, whether it fails or not. Files and directories that are still open can be
 * read and must be closed; writing to them gives EROFS. NULL is ignored.
 *
 * Errors: those of the device; the disk then is as after a crash. EIO once, on a clean disk, if data of a file was lost since the last
 * sync.
 */
int extant_unmount(struct extant_fs *fs,
                   struct extant_error *error);

/**
 * Makes everything that was done so far durable.
 *
 * Errors: those of the device; EIO once if data of a file was lost since the last sync.
 */
int extant_sync(const struct extant_fs *fs, struct extant_error *error);

/**
 * Says how full a file system is.
 */
int extant_statfs(const struct extant_fs *fs, struct extant_usage *out, struct extant_error *error);

/**
 * Compares everything on the disk with everything else, and returns how many findings there are: 0 for a consistent disk. Changes nothing.
 * `report` may be NULL; it is called with each finding, a text that lives until it returns. No other thread may change the file system
 * meanwhile. Stops after 4,096 findings.
 *
 * Errors: EIO or the device's own where it cannot be read; EOPNOTSUPP for structures that the check does not know.
 */
int64_t extant_check(const struct extant_fs *fs,
                     void (*report)(void *context, const char *finding),
                     void *context,
                     struct extant_error *error);

/**
 * Makes a directory, owned by root. No umask is applied to `mode`.
 *
 * Errors: EEXIST; ENOENT for a missing parent; ENOTDIR, ENAMETOOLONG, ENOSPC, EROFS; EUCLEAN; those of the device.
 */
int extant_mkdir(const struct extant_fs *fs,
                 const char *path,
                 uint32_t mode,
                 struct extant_error *error);

/**
 * Makes a file, a device, a named pipe or a socket, as the type bits of `mode` say; without any a file. Numbers of other types than
 * devices are ignored.
 *
 * Errors: as `extant_mkdir`; EINVAL for another type.
 */
int extant_mknod(const struct extant_fs *fs,
                 const char *path,
                 uint32_t mode,
                 uint32_t device_major,
                 uint32_t device_minor,
                 struct extant_error *error);

/**
 * Removes an empty directory.
 *
 * Errors: ENOENT, ENOTDIR, ENOTEMPTY, EROFS; EUCLEAN; those of the device.
 */
int extant_rmdir(const struct extant_fs *fs, const char *path, struct extant_error *error);

/**
 * Removes a name of a file. The file is deleted when its last name is gone and its last handle closed.
 *
 * Errors: ENOENT, EISDIR, EPERM, EROFS; EUCLEAN; those of the device.
 */
int extant_unlink(const struct extant_fs *fs,
                  const char *path,
                  struct extant_error *error);

/**
 * Gives a file or directory another name, in place of what had it, in one step.
 *
 * Errors: ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR; EINVAL for a directory below itself; ENOSPC, EROFS; EUCLEAN; those of the device.
 */
int extant_rename(const struct extant_fs *fs,
                  const char *from,
                  const char *to,
                  struct extant_error *error);

/**
 * Gives a file a further name. A symbolic link at the end of `original` is not followed.
 *
 * Errors: ENOENT, EEXIST, EMLINK, EPERM for a directory, ENOSPC, EROFS; EUCLEAN; those of the device.
 */
int extant_link(const struct extant_fs *fs,
                const char *original,
                const char *link,
                struct extant_error *error);

/**
 * Makes a symbolic link at `link` that says `target`.
 *
 * Errors: as `extant_mkdir`.
 */
int extant_symlink(const struct extant_fs *fs,
                   const char *target,
                   const char *link,
                   struct extant_error *error);

/**
 * Copies the target of a symbolic link to `buf`, without a NUL, and returns its length. If `size` is 0, only returns the length.
 *
 * Errors: EINVAL if it is no symbolic link; ERANGE if `size` is too small; as `extant_stat`.
 */
int64_t extant_readlink(const struct extant_fs *fs,
                        const char *path,
                        char *buf,
                        uint64_t size,
                        struct extant_error *error);

/**
 * Copies the value of an attribute, by its full name as "user.origin", to `buf`, and returns its length. If `size` is 0, only returns the
 * length. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: ENODATA if there is none; ERANGE if `size` is too small; as `extant_stat`.
 */
int64_t extant_getxattr(const struct extant_fs *fs,
                        const char *path,
                        const char *name,
                        void *buf,
                        uint64_t size,
                        uint32_t flags,
                        struct extant_error *error);

/**
 * Sets an attribute to the `size` bytes at `value`. `flags` has `EXTANT_NOFOLLOW`, and `EXTANT_XATTR_CREATE` or `EXTANT_XATTR_REPLACE`.
 *
 * Errors: EEXIST and ENODATA by `flags`; ENOSPC if the inode's attributes have no room for it; EROFS; as `extant_stat`.
 */
int extant_setxattr(const struct extant_fs *fs,
                    const char *path,
                    const char *name,
                    const void *value,
                    uint64_t size,
                    uint32_t flags,
                    struct extant_error *error);

/**
 * Copies the full names of all attributes to `buf`, each ended by NUL, and returns their length together. If `size` is 0, only returns
 * the length. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: ERANGE if `size` is too small; as `extant_stat`.
 */
int64_t extant_listxattr(const struct extant_fs *fs,
                         const char *path,
                         char *buf,
                         uint64_t size,
                         uint32_t flags,
                         struct extant_error *error);

/**
 * Removes an attribute. `flags` is 0 or `EXTANT_NOFOLLOW`.
 *
 * Errors: ENODATA if there is none; EROFS; as `extant_stat`.
 */
int extant_removexattr(const struct extant_fs *fs,
                       const char *path,
                       const char *name,
                       uint32_t flags,
                       struct extant_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EXTANT_H */
