//! Existing files of a disk that get the content and the attributes of another file.
//!
//! Test: `tests/disk.rs`.

use extant::{File, SeekTo, SetAttributes, XattrMode};

use super::times;
use crate::copy::CopyOptions;
use crate::entry::{ACL_ACCESS, Attributes};
use crate::flow::PIECE_BYTES;

/// Gives the content of `new` to `existing`: as a whole, or, where two files cannot exchange theirs (block maps of ext3,
/// trees too large for the journal), piece by piece, as a kernel's `cp` writes.
pub(super) fn replace_content(existing: &File, new: &File) -> extant::Result<()> {
    match existing.exchange_content(new) {
        Err(extant::Error::Unsupported(_)) => {}
        other => return other,
    }
    let size = new.metadata().size;
    existing.set_len(0)?;
    existing.set_len(size)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        at = match new.seek_to(SeekTo::Data, at) {
            Ok(start) => start,
            Err(extant::Error::NoSuchOffset) => break,
            Err(error) => return Err(error),
        };
        let end = new.seek_to(SeekTo::Hole, at)?;
        let bytes = (end - at).min(PIECE_BYTES as u64) as usize;
        let read = new.read_at(&mut piece[..bytes], at)?;
        if read == 0 {
            break;
        }
        existing.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    Ok(())
}

/// Gives a file that exists what a copy keeps of its source.
pub(super) fn set_preserved(
    found: &File,
    attributes: &Attributes,
    options: CopyOptions,
) -> extant::Result<()> {
    let preserve = options.preserve;
    let times = preserve.times.then(|| times(attributes));
    let is_chowned = preserve.uid || preserve.gid;
    if is_chowned || preserve.mode || times.is_some() {
        found.set_attributes(&SetAttributes {
            mode: preserve.mode.then_some(attributes.mode),
            uid: preserve.uid.then_some(attributes.uid),
            gid: preserve.gid.then_some(attributes.gid),
            // A program must not run with the rights of its new owner by the bits of the old one.
            clear_set_id: is_chowned && !preserve.mode,
            atime: times.map(|times| times.atime),
            mtime: times.map(|times| times.mtime),
            ..SetAttributes::default()
        })?;
    }
    if preserve.acls && !attributes.xattrs.iter().any(|(name, _)| name == ACL_ACCESS) {
        match found.remove_xattr(ACL_ACCESS) {
            Ok(()) | Err(extant::Error::NoAttribute | extant::Error::Unsupported(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut kept = options.kept_xattrs(attributes);
    kept.try_for_each(|(name, value)| found.set_xattr(name, value, XattrMode::default()))
}
