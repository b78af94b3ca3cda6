//! Writes an archive in PAX form: ustar headers, and extended ones only where a field needs it.
//!
//! The same tree gives the same bytes: no data of the host, no process number, no time of writing.

use std::collections::HashSet;
use std::io::{self, Write};

use super::header::{Fields, ID_MAX, NAME_BYTES_MAX, SIZE_MAX};
use super::{BLOCK, PATH_BYTES_MAX, acl, padding, pax, sparse};
use crate::entry::{ACL_ACCESS, ACL_DEFAULT, Attributes, DataRange, Entry, EntryKind, Shape};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::{PathWriter, TreePath};

/// Archives end on a multiple of this many bytes, as tape drives and GNU tar want.
const RECORD_BYTES: u64 = 20 * BLOCK as u64;

/// Zeros that a layer gets for holes. The holes of a disk may be a thousand times as large as the disk; a file of more than is left here is
/// written as a sparse one.
const LAYER_ZEROS_MAX: u64 = 1 << 30;

/// An archive as a sink.
#[derive(Debug)]
pub struct TarWriter<W: Write> {
    out: io::BufWriter<W>,
    written: u64,
    /// The part of the last file's content that is still to come.
    pending: Option<Pending>,
    /// Where sockets were met, which archives cannot hold.
    sockets: HashSet<TreePath>,
    paths: PathWriter,
    /// Of a layer: how many zeros may still be written for holes.
    layer_zeros: Option<u64>,
}

#[derive(Debug)]
struct Pending {
    /// Ranges still to come, the next one last.
    ranges: Vec<DataRange>,
    padding: u64,
    /// Where the content so far ends, and the file, if its holes are written too.
    filled: Option<(u64, u64)>,
}

impl<W: Write> TarWriter<W> {
    /// Writes to `out`, which needs no buffer of its own.
    pub fn new(out: W) -> Self {
        Self {
            out: io::BufWriter::with_capacity(1 << 20, out),
            written: 0,
            pending: None,
            sockets: HashSet::new(),
            paths: PathWriter::default(),
            layer_zeros: None,
        }
    }

    /// Writes what all programs that unpack layers of container images read: zeros for the holes of sparse files, up to 1 GiB of them, and
    /// access control lists as the extended attributes in which Linux has them.
    ///
    /// Source: OCI image specification 1.1, `layer.md`, "Sparse files" and "PAX headers".
    #[must_use]
    pub fn for_layer(mut self) -> Self {
        self.layer_zeros = Some(LAYER_ZEROS_MAX);
        self
    }

    /// What was written to.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn into_inner(self) -> Result<W> {
        self.out.into_inner().map_err(|error| Error::Stream(error.into_error()))
    }

    /// How many sockets were left out, for archives cannot hold them.
    #[must_use]
    pub fn sockets_left_out(&self) -> usize {
        self.sockets.len()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Error::Stream)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self, bytes: u64) -> Result<()> {
        io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut self.out).map_err(Error::Stream)?;
        self.written += bytes;
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        match self.pending.take() {
            Some(pending) if pending.ranges.is_empty() => {
                let hole_bytes = pending.filled.map_or(0, |(at, size)| size - at);
                self.pad(hole_bytes + pending.padding)
            }
            Some(_) => Err(Error::Stream(io::Error::other("content is missing"))),
            None => Ok(()),
        }
    }

    fn header(
        &mut self,
        name: &[u8],
        entry: &Entry,
        type_flag: u8,
        stored: u64,
        shape: Option<&Shape>,
    ) -> Result<()> {
        let link = match &entry.kind {
            EntryKind::Symlink(target) => target.clone(),
            EntryKind::HardLink(target) => target.to_bytes(),
            _ => Vec::new(),
        };
        let device = match &entry.kind {
            EntryKind::CharDevice(major, minor) | EntryKind::BlockDevice(major, minor) => {
                Some((*major, *minor))
            }
            _ => None,
        };
        let attributes = &entry.attributes;
        let has_hard_link = matches!(entry.kind, EntryKind::HardLink(_));
        let mut records = Vec::new();
        let header_name = match shape {
            Some(shape) => {
                pax::push(&mut records, b"GNU.sparse.major", b"1");
                pax::push(&mut records, b"GNU.sparse.minor", b"0");
                pax::push(&mut records, b"GNU.sparse.name", name);
                pax::push(&mut records, b"GNU.sparse.realsize", shape.size.to_string().as_bytes());
                [&b"GNUSparseFile.0/"[..], entry.path.split_last().map_or(name, |(_, last)| last)].concat()
            }
            None => name.to_vec(),
        };
        if header_name.len() > NAME_BYTES_MAX {
            pax::push(&mut records, b"path", &header_name);
        }
        if link.len() > NAME_BYTES_MAX {
            pax::push(&mut records, b"linkpath", &link);
        }
        push_numbers(&mut records, attributes, stored);
        if !has_hard_link {
            push_xattrs(&mut records, attributes, self.layer_zeros.is_some());
        }
        let mut fields = Fields {
            name: &header_name,
            type_flag,
            mode: attributes.mode,
            uid: attributes.uid.into(),
            gid: attributes.gid.into(),
            size: stored,
            mtime: u64::try_from(attributes.mtime.seconds).unwrap_or(0),
            link_name: &link,
            device,
        };
        if !records.is_empty() {
            let base = entry.path.split_last().map_or(&b"root"[..], |(_, last)| last);
            let extended_name = [&b"PaxHeaders/"[..], base].concat();
            let extended = Fields {
                name: &extended_name,
                type_flag: b'x',
                mode: 0o644,
                size: records.len() as u64,
                link_name: b"",
                device: None,
                ..fields
            };
            self.put(&extended.to_block())?;
            self.put(&records)?;
            self.pad(padding(records.len() as u64))?;
        }
        if header_name.len() > NAME_BYTES_MAX {
            fields.name = &header_name[..NAME_BYTES_MAX];
        }
        self.put(&fields.to_block())
    }
}

/// Numbers that the header's fields cannot hold.
fn push_numbers(records: &mut Vec<u8>, attributes: &Attributes, stored: u64) {
    for (keyword, id) in [(&b"uid"[..], attributes.uid), (b"gid", attributes.gid)] {
        if u64::from(id) > ID_MAX {
            pax::push(records, keyword, id.to_string().as_bytes());
        }
    }
    if stored > SIZE_MAX {
        pax::push(records, b"size", stored.to_string().as_bytes());
    }
    let mtime = attributes.mtime;
    let is_plain =
        mtime.nanoseconds == 0 && u64::try_from(mtime.seconds).is_ok_and(|seconds| seconds <= SIZE_MAX);
    if !is_plain {
        pax::push(records, b"mtime", pax::format_time(mtime).as_bytes());
    }
    if let Some(atime) = attributes.atime {
        pax::push(records, b"atime", pax::format_time(atime).as_bytes());
    }
}

fn push_xattrs(records: &mut Vec<u8>, attributes: &Attributes, is_layer: bool) {
    for (name, value) in &attributes.xattrs {
        let keyword = match name.as_slice() {
            ACL_ACCESS if !is_layer => Some(&b"SCHILY.acl.access"[..]),
            ACL_DEFAULT if !is_layer => Some(&b"SCHILY.acl.default"[..]),
            _ => None,
        };
        match keyword.zip(acl::format(value)) {
            Some((keyword, text)) => pax::push(records, keyword, text.as_bytes()),
            None => pax::push(
                records,
                &[b"SCHILY.xattr.", pax::escape_attribute(name).as_slice()].concat(),
                value,
            ),
        }
    }
}

impl<W: Write> Sink for TarWriter<W> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.complete()?;
        let mut name = self.paths.spell(&entry.path).to_vec();
        if name.len() > PATH_BYTES_MAX {
            return Err(Error::Limit {
                path: entry.path,
                what: "a path of more than 65536 bytes, which no archive holds",
            });
        }
        let type_flag = match &entry.kind {
            EntryKind::File(_) => b'0',
            EntryKind::HardLink(original) if self.sockets.contains(original) => return Ok(()),
            EntryKind::HardLink(_) => b'1',
            EntryKind::Symlink(_) => b'2',
            EntryKind::CharDevice(..) => b'3',
            EntryKind::BlockDevice(..) => b'4',
            EntryKind::Directory => b'5',
            EntryKind::Fifo => b'6',
            EntryKind::Socket => {
                self.sockets.insert(entry.path);
                return Ok(());
            }
        };
        if entry.kind == EntryKind::Directory {
            name.extend(if entry.path.is_root() { &b"./"[..] } else { b"/" });
        }
        let EntryKind::File(shape) = &entry.kind else {
            return self.header(&name, &entry, type_flag, 0, None);
        };
        let hole_bytes = shape.size - shape.data_bytes();
        let zeros_left = self.layer_zeros.and_then(|zeros| zeros.checked_sub(hole_bytes));
        let fills = shape.has_holes() && zeros_left.is_some();
        self.layer_zeros = zeros_left.or(self.layer_zeros);
        let mut stored = if fills { shape.size } else { shape.data_bytes() };
        let pad = padding(stored);
        if shape.has_holes() && !fills {
            let map = sparse::format_map(shape);
            stored += map.len() as u64;
            self.header(&name, &entry, type_flag, stored, Some(shape))?;
            self.put(&map)?;
        } else {
            self.header(&name, &entry, type_flag, stored, None)?;
        }
        let mut ranges = shape.ranges.clone();
        ranges.reverse();
        self.pending = Some(Pending { ranges, padding: pad, filled: fills.then_some((0, shape.size)) });
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let refused = || Error::Stream(io::Error::other("content outside the file's ranges"));
        let pending = self.pending.as_mut().ok_or_else(refused)?;
        let next = pending.ranges.last_mut().ok_or_else(refused)?;
        let len = bytes.len() as u64;
        if next.offset != offset || next.bytes < len {
            return Err(refused());
        }
        next.offset += len;
        next.bytes -= len;
        if next.bytes == 0 {
            pending.ranges.pop();
        }
        let mut hole_bytes = 0;
        if let Some((at, _)) = &mut pending.filled {
            hole_bytes = offset - *at;
            *at = offset + len;
        }
        self.pad(hole_bytes)?;
        self.put(&bytes)?;
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        self.pad(2 * BLOCK as u64)?;
        self.pad(self.written.next_multiple_of(RECORD_BYTES) - self.written)?;
        self.out.flush().map_err(Error::Stream)
    }
}
