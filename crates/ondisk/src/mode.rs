//! Bits of a mode beside those of the type, which [`FileType`](crate::FileType) has. The names are POSIX's and the kernel's
//! (`include/uapi/linux/stat.h`, `include/linux/stat.h`).

/// A program runs as the user who owns its file.
pub const S_ISUID: u16 = 0o4000;
/// A program runs as the group of its file; new files take their group from a directory with this bit.
pub const S_ISGID: u16 = 0o2000;
/// Only the owner of a file, the owner of the directory and root remove or rename the file in a directory with this bit.
pub const S_ISVTX: u16 = 0o1000;

/// The owner may read, write and execute.
pub const S_IRWXU: u16 = 0o700;
/// The owner may read.
pub const S_IRUSR: u16 = 0o400;
/// The owner may write.
pub const S_IWUSR: u16 = 0o200;
/// The owner may execute.
pub const S_IXUSR: u16 = 0o100;
/// The group may read, write and execute.
pub const S_IRWXG: u16 = 0o070;
/// The group may read.
pub const S_IRGRP: u16 = 0o040;
/// The group may write.
pub const S_IWGRP: u16 = 0o020;
/// The group may execute.
pub const S_IXGRP: u16 = 0o010;
/// All others may read, write and execute.
pub const S_IRWXO: u16 = 0o007;
/// All others may read.
pub const S_IROTH: u16 = 0o004;
/// All others may write.
pub const S_IWOTH: u16 = 0o002;
/// All others may execute.
pub const S_IXOTH: u16 = 0o001;

/// All permissions of the owner, the group and the others: the part of a mode that access control lists replace.
pub const S_IRWXUGO: u16 = S_IRWXU | S_IRWXG | S_IRWXO;
/// All may read.
pub const S_IRUGO: u16 = S_IRUSR | S_IRGRP | S_IROTH;
/// All may write.
pub const S_IWUGO: u16 = S_IWUSR | S_IWGRP | S_IWOTH;
/// All may execute.
pub const S_IXUGO: u16 = S_IXUSR | S_IXGRP | S_IXOTH;
/// All bits of a mode but those of the type: the part that `chmod` changes.
pub const S_IALLUGO: u16 = S_ISUID | S_ISGID | S_ISVTX | S_IRWXUGO;

/// The mode without the bits that a change by another user takes away: the set-user-id bit, and the set-group-id bit where the
/// group may execute (`setattr_should_drop_suidgid`).
#[must_use]
pub const fn without_set_id(mode: u16) -> u16 {
    let mode = mode & !S_ISUID;
    if mode & S_IXGRP != 0 { mode & !S_ISGID } else { mode }
}
