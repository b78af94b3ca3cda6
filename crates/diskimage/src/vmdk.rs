//! VMDK images, read: sparse ones, packed ones (`streamOptimized`), and descriptors of flat and sparse extents.
//!
//! Leaves out: images with a parent. Source: VMware's "Virtual Disk Format 5.0".

mod sparse;

use std::io;
use std::path::Path;

use extant_block::BlockDevice;
use extant_rt::Arc;

use crate::Format;
use crate::error::{Error, Result};
use crate::field::{read_padded, read_vec};
use crate::read_only::Pieces;
use crate::references::References;
use sparse::Sparse;

const SECTOR_BYTES: u64 = 512;
const DESCRIPTOR_BYTES_MAX: u64 = 64 << 10;
/// Sectors of an extent at most, so that none of their sums overflows.
const SECTORS_MAX: u64 = 1 << 44;

fn damaged(reason: impl Into<String>) -> Error {
    Error::damaged(Format::Vmdk, reason)
}

enum Content {
    Flat { file: Arc<dyn BlockDevice>, offset: u64 },
    Sparse(Sparse),
    Zero,
}

struct Extent {
    start: u64,
    end: u64,
    content: Content,
}

/// An image as pieces of a disk.
pub(crate) struct Vmdk {
    /// In the order of the disk, without a gap.
    extents: Vec<Extent>,
}

impl Vmdk {
    pub(crate) fn open(
        path: &Path,
        file: Arc<dyn BlockDevice>,
        references: &mut References<'_>,
    ) -> Result<Self> {
        let mut first = [0; 4];
        read_padded(&*file, 0, &mut first)?;
        if first == *b"KDMV" {
            let sparse = Sparse::open(file)?;
            if let Some(descriptor) = sparse.descriptor()? {
                refuse_parent(&descriptor)?;
            }
            let end = sparse.size();
            return Ok(Self { extents: vec![Extent { start: 0, end, content: Content::Sparse(sparse) }] });
        }
        let text = read_vec(&*file, 0, file.size().min(DESCRIPTOR_BYTES_MAX))?.unwrap_or_default();
        let text = text_of(&text);
        refuse_parent(&text)?;
        let mut extents: Vec<Extent> = Vec::new();
        for line in text.lines().filter(|line| line.starts_with("RW ") || line.starts_with("RDONLY ")) {
            let (sectors, content) = extent(path, line, references)?;
            let start = extents.last().map_or(0, |last| last.end);
            let end = start + sectors * SECTOR_BYTES;
            let has = match &content {
                Content::Flat { file, offset } => file.size().saturating_sub(*offset),
                Content::Sparse(sparse) => sparse.size(),
                Content::Zero => u64::MAX,
            };
            if has < end - start || end / SECTOR_BYTES > SECTORS_MAX {
                return Err(damaged(format!("an extent that is not in its file: '{line:.100}'")));
            }
            extents.push(Extent { start, end, content });
        }
        if extents.is_empty() {
            return Err(damaged("a descriptor without extents"));
        }
        Ok(Self { extents })
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Refuses what changes another image.
fn refuse_parent(descriptor: &str) -> Result<()> {
    let parent = descriptor.lines().find_map(|line| line.trim().strip_prefix("parentCID="));
    match parent.map(str::trim) {
        None | Some("ffffffff") => Ok(()),
        Some(_) => Err(Error::unsupported(Format::Vmdk, "a parent")),
    }
}

/// `RW SECTORS TYPE "FILE" OFFSET`: the sectors and what has them.
fn extent(image: &Path, line: &str, references: &mut References<'_>) -> Result<(u64, Content)> {
    let wrong = || damaged(format!("the extent '{line:.100}'"));
    let mut words = line.split_ascii_whitespace().skip(1);
    let sectors: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(wrong)?;
    if sectors > SECTORS_MAX {
        return Err(wrong());
    }
    let kind = words.next().ok_or_else(wrong)?;
    if kind == "ZERO" {
        return Ok((sectors, Content::Zero));
    }
    let (_, rest) = line.split_once('"').ok_or_else(wrong)?;
    let (name, rest) = rest.split_once('"').ok_or_else(wrong)?;
    match kind {
        "FLAT" | "VMFS" => {
            let offset: u64 = match rest.trim() {
                "" => 0,
                offset => offset.parse().map_err(|_| wrong())?,
            };
            let offset = offset.checked_mul(SECTOR_BYTES).ok_or_else(wrong)?;
            let (_, file) = references.open(image, name)?;
            Ok((sectors, Content::Flat { file, offset }))
        }
        "SPARSE" => Ok((sectors, Content::Sparse(Sparse::open(references.open(image, name)?.1)?))),
        _ => Err(Error::unsupported(Format::Vmdk, format!("an extent of type {kind:.20}"))),
    }
}

impl Pieces for Vmdk {
    const FORMAT: Format = Format::Vmdk;

    fn size(&self) -> u64 {
        self.extents.last().map_or(0, |last| last.end)
    }

    fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let index = self.extents.partition_point(|extent| extent.end <= offset);
        let extent = self.extents.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let len = (extent.end - offset).min(buf.len() as u64) as usize;
        let (buf, within) = (&mut buf[..len], offset - extent.start);
        match &extent.content {
            Content::Flat { file, offset } => file.read_at(offset + within, buf).map(|()| len),
            Content::Sparse(sparse) => sparse.read_piece(within, buf),
            Content::Zero => {
                buf.fill(0);
                Ok(len)
            }
        }
    }

    fn has_latency(&self) -> bool {
        self.extents.iter().any(|extent| match &extent.content {
            Content::Flat { file, .. } => file.has_latency(),
            Content::Sparse(sparse) => sparse.has_latency(),
            Content::Zero => false,
        })
    }
}
