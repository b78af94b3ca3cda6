//! Owners, modes, times and extended attributes that a copy gives to files of the host.

use std::os::fd::AsFd;

use extant_ondisk::Timestamp;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result as Outcome};

use crate::copy::CopyOptions;
use crate::entry::Attributes;

const ACL_ACCESS: &str = "system.posix_acl_access";

pub(super) fn mode(attributes: &Attributes) -> Mode {
    Mode::from_raw_mode(u32::from(attributes.mode & 0o777))
}

fn times(attributes: &Attributes) -> Timestamps {
    let spec = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    let last_modification = spec(attributes.mtime);
    Timestamps { last_access: attributes.atime.map_or(last_modification, spec), last_modification }
}

fn owner(attributes: &Attributes, options: CopyOptions) -> (Option<Uid>, Option<Gid>) {
    let preserve = options.preserve;
    (preserve.uid.then(|| Uid::from_raw(attributes.uid)), preserve.gid.then(|| Gid::from_raw(attributes.gid)))
}

/// Whether it was done; what only root may do is left out for others.
fn allowed(outcome: Outcome<()>) -> Outcome<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::NOTSUP | Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives an open file what a copy keeps.
pub(super) fn set_on_file(file: &impl AsFd, attributes: &Attributes, options: CopyOptions) -> Outcome<()> {
    let preserve = options.preserve;
    let (uid, gid) = owner(attributes, options);
    let owned = (uid.is_none() && gid.is_none()) || allowed(rustix::fs::fchown(file, uid, gid))?;
    if preserve.acls && !attributes.xattrs.iter().any(|(name, _)| name == ACL_ACCESS.as_bytes()) {
        // Of an existing file; a host without lists has none to remove.
        let _ = rustix::fs::fremovexattr(file, ACL_ACCESS);
    }
    for (name, value) in options.kept_xattrs(attributes) {
        allowed(rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()))?;
    }
    if preserve.mode {
        // A program that runs as its owner must not come to run as somebody else.
        let kept = if owned { attributes.mode & 0o7777 } else { attributes.mode & 0o1777 };
        rustix::fs::fchmod(file, Mode::from_raw_mode(kept.into()))?;
    }
    if preserve.times { rustix::fs::futimens(file, &times(attributes)) } else { Ok(()) }
}

/// Gives a name that is no regular file and no directory what a copy keeps.
pub(super) fn set_on_name(
    directory: &impl AsFd,
    name: &[u8],
    is_symlink: bool,
    attributes: &Attributes,
    options: CopyOptions,
) -> Outcome<()> {
    let (uid, gid) = owner(attributes, options);
    if uid.is_some() || gid.is_some() {
        allowed(rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW))?;
    }
    if options.preserve.mode && !is_symlink {
        rustix::fs::chmodat(directory, name, mode(attributes), AtFlags::empty())?;
    }
    if options.preserve.times {
        rustix::fs::utimensat(directory, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
