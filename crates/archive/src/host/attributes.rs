//! Owners, modes, times and extended attributes that a copy gives to files of the host.

use std::os::fd::{AsFd, AsRawFd};

use extant_ondisk::Timestamp;
use extant_ondisk::mode::{S_IALLUGO, S_IRWXUGO, S_ISVTX};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result as Outcome};

use crate::copy::CopyOptions;
use crate::entry::{ACL_ACCESS, Attributes};

pub(super) fn mode(attributes: &Attributes) -> Mode {
    Mode::from_raw_mode(u32::from(attributes.mode & S_IRWXUGO))
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
    if preserve.acls && !attributes.xattrs.iter().any(|(name, _)| name == ACL_ACCESS) {
        // An existing file may have a list; a host without lists has none to remove.
        let _ = rustix::fs::fremovexattr(file, ACL_ACCESS);
    }
    for (name, value) in options.kept_xattrs(attributes) {
        allowed(rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()))?;
    }
    if preserve.mode {
        // A program that runs as its owner must not run with another user's rights.
        let kept = attributes.mode & if owned { S_IALLUGO } else { S_ISVTX | S_IRWXUGO };
        rustix::fs::fchmod(file, Mode::from_raw_mode(kept.into()))?;
    }
    if preserve.times { rustix::fs::futimens(file, &times(attributes)) } else { Ok(()) }
}

/// Gives what was made under `name`, no regular file and no directory, what a copy keeps, if it is `made`, of this type and
/// with this device number: another process may have put another file in its place.
pub(super) fn set_on_name(
    directory: &impl AsFd,
    name: &[u8],
    made: (FileType, u64),
    attributes: &Attributes,
    options: CopyOptions,
) -> Outcome<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    let is_new = (FileType::from_raw_mode(found.st_mode), found.st_rdev) == made
        && found.st_nlink == 1
        && found.st_uid == rustix::process::geteuid().as_raw();
    if !is_new {
        return Err(Errno::STALE);
    }
    let (uid, gid) = owner(attributes, options);
    if uid.is_some() || gid.is_some() {
        allowed(rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH))?;
    }
    if options.preserve.mode && made.0 != FileType::Symlink {
        // A descriptor without access takes no mode but by its own name.
        let own_name = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmodat(CWD, own_name, mode(attributes), AtFlags::empty())?;
    }
    if options.preserve.times {
        rustix::fs::utimensat(&file, "", &times(attributes), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn what_took_the_place_of_a_special_file_keeps_its_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "secret").unwrap();
        rustix::fs::chmod(&victim, Mode::RUSR).unwrap();
        let open = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        let attributes = Attributes { mode: 0o666, uid: 7, ..Attributes::default() };
        symlink(&victim, dir.path().join("link")).unwrap();
        std::fs::hard_link(&victim, dir.path().join("hard")).unwrap();
        for name in [&b"link"[..], b"hard"] {
            let made = (FileType::Fifo, 0);
            assert_eq!(
                set_on_name(&open, name, made, &attributes, CopyOptions::archive()),
                Err(Errno::STALE)
            );
        }
        let found = victim.metadata().unwrap();
        assert_eq!((found.mode() & 0o777, found.uid() == 7), (0o400, false));
    }
}
