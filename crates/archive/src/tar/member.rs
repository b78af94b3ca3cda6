//! One member of an archive, as described by its header and the records before it.

use std::collections::BTreeMap;

use extant_ondisk::Timestamp;

use super::header::Header;
use super::pax::{self, Record};
use super::sparse::{self, SparseRecords};
use super::{PATH_BYTES_MAX, acl};
use crate::entry::{ACL_ACCESS, ACL_DEFAULT, Attributes, EntryKind, Xattr};
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::path::parse::PathReader;
use crate::user_database::UserDatabase;

/// The blocks before the header of a member that belong to it.
#[derive(Default)]
pub(super) struct Extensions {
    /// Bytes of all these headers.
    pub bytes: u64,
    pub records: Vec<Record>,
    pub long_name: Option<Vec<u8>>,
    pub long_link: Option<Vec<u8>>,
}

/// The records that bear on a member.
#[derive(Clone, Copy)]
struct Records<'a> {
    global: &'a BTreeMap<Vec<u8>, Vec<u8>>,
    own: &'a [Record],
}

impl<'a> Records<'a> {
    /// The value of a keyword: the last one of its own counts, and an empty one takes a global one back.
    fn find(&self, keyword: &[u8]) -> Option<&'a [u8]> {
        let own = self.own.iter().rev().find(|(name, _)| name == keyword).map(|(_, value)| value);
        own.or_else(|| self.global.get(keyword)).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    fn all(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let own = self.own.iter().map(|(keyword, value)| (&keyword[..], &value[..]));
        self.global.iter().map(|(keyword, value)| (&keyword[..], &value[..])).chain(own)
    }
}

pub(super) struct Member {
    pub name: Vec<u8>,
    pub path: TreePath,
    /// None for a regular file, whose map of data and holes is not in the header alone.
    pub kind: Option<EntryKind>,
    pub attributes: Attributes,
    /// Bytes of content in the archive.
    pub stored: u64,
    pub sparse: SparseRecords,
}

impl Member {
    /// The member whose header begins at `offset`. `paths` read that of the member before it.
    pub fn new(
        header: &Header,
        offset: u64,
        global: &BTreeMap<Vec<u8>, Vec<u8>>,
        extensions: Extensions,
        (names, paths): (&UserDatabase, &mut PathReader),
    ) -> Result<Self> {
        let Extensions { records: own, long_name, long_link, .. } = extensions;
        let records = Records { global, own: &own };
        let text = |keyword: &[u8]| records.find(keyword).map(<[u8]>::to_vec);
        // A map of holes that is global would be one of many files.
        let sparse = sparse::records(&own);
        let real_name = sparse.as_ref().ok().and_then(|sparse| sparse.name.clone());
        let name = real_name.or_else(|| text(b"path")).or(long_name).unwrap_or_else(|| header.name());
        let link_name = text(b"linkpath").or(long_link).unwrap_or_else(|| header.link_name());
        let refused = |reason| Error::Member { offset, path: name.clone(), reason };
        let sparse = sparse.map_err(refused)?;
        if name.len().max(link_name.len()) > PATH_BYTES_MAX {
            return Err(refused("a path of more than 65536 bytes"));
        }
        let stored = match records.find(b"size") {
            Some(size) => pax::decimal(size),
            None => header.size(),
        };
        let stored = stored.ok_or_else(|| refused("malformed size"))?;
        let path = paths.read(&name)?;
        let attributes = attributes(header, records, names).map_err(refused)?;
        let kind = match header.type_flag() {
            b'0' | b'\0' if name.ends_with(b"/") => Some(EntryKind::Directory),
            b'0' | b'\0' | b'7' | b'S' => None,
            b'1' => Some(EntryKind::HardLink(TreePath::parse(&link_name)?)),
            b'2' => Some(EntryKind::Symlink(link_name)),
            b'3' | b'4' => {
                let (major, minor) =
                    device(header, records).ok_or_else(|| refused("malformed device number"))?;
                let is_char = header.type_flag() == b'3';
                Some(if is_char {
                    EntryKind::CharDevice(major, minor)
                } else {
                    EntryKind::BlockDevice(major, minor)
                })
            }
            b'5' | b'D' => Some(EntryKind::Directory),
            b'6' => Some(EntryKind::Fifo),
            b'M' => return Err(refused("continued from another volume")),
            _ => return Err(refused("unknown kind of member")),
        };
        Ok(Self { name, path, kind, attributes, stored, sparse })
    }
}

fn attributes(
    header: &Header,
    records: Records<'_>,
    names: &UserDatabase,
) -> Result<Attributes, &'static str> {
    let id = |keyword: &[u8], own: Option<u32>| match records.find(keyword) {
        Some(value) => pax::decimal(value).and_then(|id| u32::try_from(id).ok()),
        None => own,
    };
    let (uid, gid) = header.owner();
    let mtime = match records.find(b"mtime") {
        Some(value) => pax::parse_time(value),
        None => header.mtime().map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
    };
    let atime = match records.find(b"atime") {
        Some(value) => Some(pax::parse_time(value).ok_or("malformed time")?),
        None => None,
    };
    Ok(Attributes {
        mode: header.mode().ok_or("malformed mode")?,
        uid: id(b"uid", uid).ok_or("malformed owner")?,
        gid: id(b"gid", gid).ok_or("malformed group")?,
        mtime: mtime.ok_or("malformed time")?,
        atime,
        xattrs: xattrs(records, names)?,
    })
}

fn xattrs(records: Records<'_>, names: &UserDatabase) -> Result<Vec<Xattr>, &'static str> {
    let mut xattrs = std::collections::BTreeMap::new();
    for (keyword, value) in records.all() {
        if let Some(name) = keyword.strip_prefix(b"SCHILY.xattr.") {
            xattrs.insert(pax::unescape_attribute(name, false), value.to_vec());
        } else if let Some(name) = keyword.strip_prefix(b"LIBARCHIVE.xattr.") {
            let value = pax::parse_base64(value).ok_or("malformed extended attribute")?;
            // libarchive writes both forms; the other one is exact.
            xattrs.entry(pax::unescape_attribute(name, true)).or_insert(value);
        } else if keyword == b"SCHILY.acl.access" {
            let value = acl::parse(value, false, names)?;
            xattrs.extend(value.map(|value| (ACL_ACCESS.to_vec(), value)));
        } else if keyword == b"SCHILY.acl.default" {
            let value = acl::parse(value, true, names)?;
            xattrs.extend(value.map(|value| (ACL_DEFAULT.to_vec(), value)));
        } else if keyword == b"RHT.security.selinux" {
            // The kernel keeps the NUL that ends the context.
            xattrs.insert(b"security.selinux".to_vec(), [value, b"\0"].concat());
        }
    }
    Ok(xattrs.into_iter().collect())
}

fn device(header: &Header, records: Records<'_>) -> Option<(u32, u32)> {
    let part = |keyword: &[u8]| records.find(keyword).and_then(|value| pax::decimal(value)?.try_into().ok());
    match (part(b"SCHILY.devmajor"), part(b"SCHILY.devminor")) {
        (Some(major), Some(minor)) => Some((major, minor)),
        _ => header.device(),
    }
}
