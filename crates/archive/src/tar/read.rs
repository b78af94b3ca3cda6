//! Reads an archive, member by member.

use extant_ondisk::Timestamp;

use super::header::{Header, gnu_sparse_continuation};
use super::input::Input;
use super::pax::{self, Record};
use super::{BLOCK, acl, padding, sparse};
use crate::entry::{Attributes, DataRange, Entry, Kind, Shape, TreePath, Xattr};
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, Sink, Source};
use crate::names::Names;

/// Bytes of a long name or an extended header: far above what a path and the attributes of an inode take.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;

/// An archive as a source. It can be poured once.
#[derive(Debug)]
pub struct TarReader {
    input: Input,
    /// Records of a global header, for every member after it.
    global: Vec<Record>,
    names: Names,
}

/// What stands before the header of a member and belongs to it.
#[derive(Default)]
struct Extensions {
    records: Vec<Record>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl Source for TarReader {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        let mut extensions = Extensions::default();
        loop {
            let offset = self.input.offset();
            let block = match self.input.block()? {
                Some(block) if block != [0; BLOCK] => block,
                None if offset == 0 => return Err(Error::Format { offset, reason: "the archive is empty" }),
                _ => break,
            };
            let reason = if offset == 0 { "not a tar archive" } else { "damaged header" };
            let header = Header::parse(block).ok_or(Error::Format { offset, reason })?;
            match header.type_flag() {
                b'x' | b'X' => extensions.records = self.records(&header)?,
                b'g' => {
                    let records = self.records(&header)?;
                    self.global.extend(records);
                }
                b'L' => extensions.long_name = Some(self.long_name(&header)?),
                b'K' => extensions.long_link = Some(self.long_name(&header)?),
                // The name of the volume.
                b'V' => self.extension(&header).map(drop)?,
                _ => self.member(&header, std::mem::take(&mut extensions), sink, extent)?,
            }
        }
        self.input.drain()?;
        sink.finish()
    }
}

impl TarReader {
    /// Reads the archive in `input`.
    #[must_use]
    pub fn new(input: Input) -> Self {
        Self { input, global: Vec::new(), names: Names::default() }
    }

    /// Who the names in access control lists are. Owners of members go by number always.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    fn damaged(&self, reason: &'static str) -> Error {
        Error::Format { offset: self.input.offset(), reason }
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = header.size().filter(|size| *size <= EXTENSION_BYTES_MAX);
        let size = size.ok_or_else(|| self.damaged("an extended header that is too large"))?;
        let content = self.input.take(size)?;
        self.input.skip(padding(size))?;
        Ok(content)
    }

    fn records(&mut self, header: &Header) -> Result<Vec<Record>> {
        let content = self.extension(header)?;
        pax::parse(&content).ok_or_else(|| self.damaged("a malformed extended header"))
    }

    fn long_name(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut name = self.extension(header)?;
        while name.pop_if(|byte| *byte == 0).is_some() {}
        Ok(name)
    }

    fn member(
        &mut self,
        header: &Header,
        extensions: Extensions,
        sink: &mut dyn Sink,
        extent: Extent,
    ) -> Result<()> {
        let Extensions { records: own, long_name, long_link } = extensions;
        let records = [self.global.as_slice(), &own].concat();
        let record = |keyword: &[u8]| {
            // The last one counts; an empty value takes a global one back.
            let found = records.iter().rev().find(|(name, _)| name == keyword);
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let sparse = sparse::records(&records).ok_or_else(|| self.damaged("a malformed sparse map"))?;
        let name =
            sparse.name.clone().or_else(|| record(b"path")).or(long_name).unwrap_or_else(|| header.name());
        let link_name = record(b"linkpath").or(long_link).unwrap_or_else(|| header.link_name());
        let refused = |reason| Error::Member { path: name.clone(), reason };
        let stored = match record(b"size") {
            Some(size) => pax::decimal(&size),
            None => header.size(),
        };
        let mut stored = stored.ok_or_else(|| refused("malformed size"))?;
        let path = TreePath::parse(&name)?;
        let attributes = attributes(header, &records, record, &self.names).map_err(refused)?;
        let kind = match header.type_flag() {
            b'0' | b'\0' if name.ends_with(b"/") => Some(Kind::Directory),
            b'0' | b'\0' | b'7' | b'S' => None,
            b'1' => Some(Kind::HardLink(TreePath::parse(&link_name)?)),
            b'2' => Some(Kind::Symlink(link_name)),
            b'3' | b'4' => {
                let (major, minor) =
                    device(header, record).ok_or_else(|| refused("malformed device number"))?;
                let is_char = header.type_flag() == b'3';
                Some(if is_char { Kind::CharDevice(major, minor) } else { Kind::BlockDevice(major, minor) })
            }
            b'5' | b'D' => Some(Kind::Directory),
            b'6' => Some(Kind::Fifo),
            b'M' => return Err(refused("continued from another volume")),
            _ => return Err(refused("unknown kind of member")),
        };
        if let Some(kind) = kind {
            // Only an incremental dump's directory has content, a list of names. Others may tell a size that
            // nothing follows.
            let follows = if header.type_flag() == b'D' { stored } else { 0 };
            sink.entry(Entry { path, kind, attributes })?;
            return self.input.skip(follows.saturating_add(padding(follows)));
        }
        let pad = padding(stored);
        let shape = match header.type_flag() {
            b'S' => self.gnu_shape(header)?,
            _ => match sparse.shape(&mut self.input, &mut stored)? {
                Some(shape) => shape,
                None => Shape::dense(stored),
            },
        };
        if shape.data_bytes() != stored {
            return Err(refused("the sparse map does not fit the content"));
        }
        let ranges = shape.ranges.clone();
        sink.entry(Entry { path, kind: Kind::File(shape), attributes })?;
        match extent {
            Extent::Entries => self.input.skip(stored)?,
            Extent::Everything => ranges.into_iter().try_for_each(|range| self.range(range, sink))?,
        }
        self.input.skip(pad)
    }

    fn gnu_shape(&mut self, header: &Header) -> Result<Shape> {
        const MALFORMED: &str = "a malformed sparse map";
        let size = header.gnu_real_size().ok_or_else(|| self.damaged(MALFORMED))?;
        let (mut ranges, mut continued) = header.gnu_sparse_map().ok_or_else(|| self.damaged(MALFORMED))?;
        while continued {
            let block = self.input.block()?.ok_or_else(|| self.damaged(MALFORMED))?;
            let (more, further) = gnu_sparse_continuation(&block).ok_or_else(|| self.damaged(MALFORMED))?;
            ranges.extend(more);
            continued = further;
        }
        let ranges = ranges.into_iter().map(|(offset, bytes)| DataRange { offset, bytes });
        Shape::sparse(size, ranges).map_err(|reason| self.damaged(reason))
    }

    fn range(&mut self, range: DataRange, sink: &mut dyn Sink) -> Result<()> {
        let mut done = 0;
        while done < range.bytes {
            let piece = self.input.take((range.bytes - done).min(PIECE_BYTES as u64))?;
            let offset = range.offset + done;
            done += piece.len() as u64;
            sink.content(offset, piece)?;
        }
        Ok(())
    }
}

fn attributes(
    header: &Header,
    records: &[Record],
    record: impl Fn(&[u8]) -> Option<Vec<u8>>,
    names: &Names,
) -> Result<Attributes, &'static str> {
    let id = |keyword: &[u8], own: Option<u32>| match record(keyword) {
        Some(value) => pax::decimal(&value).and_then(|id| u32::try_from(id).ok()),
        None => own,
    };
    let (uid, gid) = header.owner();
    let mtime = match record(b"mtime") {
        Some(value) => pax::parse_time(&value),
        None => header.mtime().map(|seconds| Timestamp { seconds, nanoseconds: 0 }),
    };
    let atime = match record(b"atime") {
        Some(value) => Some(pax::parse_time(&value).ok_or("malformed time")?),
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

fn xattrs(records: &[Record], names: &Names) -> Result<Vec<Xattr>, &'static str> {
    let mut xattrs = std::collections::BTreeMap::new();
    for (keyword, value) in records {
        if let Some(name) = keyword.strip_prefix(b"SCHILY.xattr.") {
            xattrs.insert(pax::unescape_attribute(name, false), value.clone());
        } else if let Some(name) = keyword.strip_prefix(b"LIBARCHIVE.xattr.") {
            let value = pax::parse_base64(value).ok_or("malformed extended attribute")?;
            // libarchive writes both forms; the other one is exact.
            xattrs.entry(pax::unescape_attribute(name, true)).or_insert(value);
        } else if keyword == b"SCHILY.acl.access" {
            let value = acl::parse(value, false, names)?;
            xattrs.extend(value.map(|value| (b"system.posix_acl_access".to_vec(), value)));
        } else if keyword == b"SCHILY.acl.default" {
            let value = acl::parse(value, true, names)?;
            xattrs.extend(value.map(|value| (b"system.posix_acl_default".to_vec(), value)));
        } else if keyword == b"RHT.security.selinux" {
            // The kernel keeps the NUL that ends the context.
            xattrs.insert(b"security.selinux".to_vec(), [value.as_slice(), b"\0"].concat());
        }
    }
    Ok(xattrs.into_iter().collect())
}

fn device(header: &Header, record: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<(u32, u32)> {
    let part = |keyword: &[u8]| record(keyword).and_then(|value| pax::decimal(&value)?.try_into().ok());
    match (part(b"SCHILY.devmajor"), part(b"SCHILY.devminor")) {
        (Some(major), Some(minor)) => Some((major, minor)),
        _ => header.device(),
    }
}
