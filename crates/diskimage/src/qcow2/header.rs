//! The header of a qcow2 image.
//!
//! Source: QEMU's `docs/interop/qcow2.txt`.

use extant_block::BlockDevice;

use crate::Format;
use crate::error::{Error, Result};
use crate::field::{be32, be64, read_padded};

const MAGIC: u32 = 0x5146_49fb;
/// Bytes of a header of version 3 without optional fields, which QEMU writes with one of them and its padding.
const HEADER_BYTES: usize = 104;
/// The largest table that QEMU accepts.
const L1_BYTES_MAX: u64 = 32 << 20;
pub(super) const REFCOUNT_TABLE_BYTES_MAX: u64 = 8 << 20;
const BACKING_NAME_BYTES_MAX: usize = 1023;
/// Offsets have 56 bits in tables.
const OFFSET_MAX: u64 = 1 << 55;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
/// Where the size is, before the kind of encryption and the entries of the level-1 table.
pub(super) const SIZE_OFFSET: u64 = 24;
/// Where the auto-clear features are.
pub(super) const AUTOCLEAR_OFFSET: u64 = 88;
/// Where the refcount table's offset and clusters are.
pub(super) const REFCOUNT_TABLE_OFFSET: u64 = 48;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 2;
const EXTERNAL_DATA: u64 = 4;
const COMPRESSION: u64 = 8;
const EXTENDED_L2: u64 = 16;

/// What the header says, checked.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// Bytes of the disk.
    pub size: u64,
    pub l1_offset: u64,
    pub l1_entries: u32,
    pub refcount_table_offset: u64,
    pub refcount_table_clusters: u32,
    /// A refcount has 2^n bits.
    pub refcount_order: u32,
    pub snapshots_offset: u64,
    pub snapshots: u32,
    /// Refcounts may be wrong, for the image was not closed.
    pub is_dirty: bool,
    pub is_zstd: bool,
    pub autoclear: u64,
    pub backing: Option<String>,
    pub backing_format: Option<String>,
}

fn damaged(reason: impl Into<String>) -> Error {
    Error::damaged(Format::Qcow2, reason)
}

impl Header {
    pub(super) fn read(file: &dyn BlockDevice) -> Result<Self> {
        let mut bytes = [0; HEADER_BYTES + 8];
        read_padded(file, 0, &mut bytes)?;
        let [version, cluster_bits] = [be32(&bytes, 4), be32(&bytes, 20)];
        if be32(&bytes, 0) != MAGIC || !(2..=3).contains(&version) {
            return Err(Error::unsupported(Format::Qcow2, format!("version {version}")));
        }
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged(format!("clusters of 2^{cluster_bits} bytes")));
        }
        if be32(&bytes, 32) != 0 {
            return Err(Error::unsupported(Format::Qcow2, "encryption"));
        }
        let is_new = version == 3;
        let field = |at: usize| if is_new { be64(&bytes, at) } else { 0 };
        let incompatible = field(72);
        refuse_features(incompatible)?;
        let header_bytes = if is_new { be32(&bytes, 100) as usize } else { 72 };
        if header_bytes < 72 || is_new && header_bytes < HEADER_BYTES || header_bytes > 1 << cluster_bits {
            return Err(damaged(format!("a header of {header_bytes} bytes")));
        }
        let mut header = Self {
            version,
            cluster_bits,
            size: be64(&bytes, 24),
            l1_offset: be64(&bytes, 40),
            l1_entries: be32(&bytes, 36),
            refcount_table_offset: be64(&bytes, 48),
            refcount_table_clusters: be32(&bytes, 56),
            refcount_order: if is_new { be32(&bytes, 96) } else { 4 },
            snapshots_offset: be64(&bytes, 64),
            snapshots: be32(&bytes, 60),
            is_dirty: incompatible & DIRTY != 0,
            is_zstd: false,
            autoclear: field(AUTOCLEAR_OFFSET as usize),
            backing: None,
            backing_format: None,
        };
        if incompatible & COMPRESSION != 0 {
            let kind = if header_bytes > HEADER_BYTES { bytes[104] } else { 0 };
            header.is_zstd = match kind {
                0 => false,
                1 => true,
                _ => return Err(Error::unsupported(Format::Qcow2, format!("compression of kind {kind}"))),
            };
        }
        header.check(file)?;
        header.read_backing(file, header_bytes, be64(&bytes, 8), be32(&bytes, 16) as usize)?;
        Ok(header)
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries of an L2 table, whose entries have 8 bytes.
    pub(super) fn l2_entries(&self) -> u64 {
        self.cluster_bytes() / 8
    }

    /// Refuses tables that are not in the file, so that they can be read whole.
    fn check(&self, file: &dyn BlockDevice) -> Result<()> {
        let table = |what: &str, offset: u64, bytes: u64, max: u64| {
            let end = offset.checked_add(bytes).filter(|end| *end <= file.size() && bytes <= max);
            if !offset.is_multiple_of(self.cluster_bytes()) || end.is_none() {
                return Err(damaged(format!("a {what} of {bytes} bytes at {offset}")));
            }
            Ok(())
        };
        table("level-1 table", self.l1_offset, u64::from(self.l1_entries) * 8, L1_BYTES_MAX)?;
        let refcount_bytes = u64::from(self.refcount_table_clusters) << self.cluster_bits;
        table("refcount table", self.refcount_table_offset, refcount_bytes, REFCOUNT_TABLE_BYTES_MAX)?;
        if self.refcount_order > 6 {
            return Err(damaged(format!("refcounts of 2^{} bits", self.refcount_order)));
        }
        let room = u64::from(self.l1_entries) * self.l2_entries();
        if self.size.div_ceil(self.cluster_bytes()) > room || self.size > OFFSET_MAX {
            return Err(damaged(format!("a disk of {} bytes, more than its tables describe", self.size)));
        }
        Ok(())
    }

    /// The name of the backing file and the extension with its format.
    fn read_backing(
        &mut self,
        file: &dyn BlockDevice,
        header_bytes: usize,
        name_offset: u64,
        name_bytes: usize,
    ) -> Result<()> {
        if name_offset == 0 {
            return Ok(());
        }
        let end = name_offset.checked_add(name_bytes as u64);
        if name_bytes > BACKING_NAME_BYTES_MAX || end.is_none_or(|end| end > self.cluster_bytes()) {
            return Err(damaged(format!(
                "the name of a backing file of {name_bytes} bytes at {name_offset}"
            )));
        }
        let mut bytes = vec![0; name_offset as usize + name_bytes];
        read_padded(file, 0, &mut bytes)?;
        let text = |bytes: &[u8], what: &str| {
            String::from_utf8(bytes.to_vec()).map_err(|_| damaged(format!("{what} is not UTF-8")))
        };
        self.backing = Some(text(&bytes[name_offset as usize..], "the name of the backing file")?);
        let mut at = header_bytes;
        while at + 8 <= name_offset as usize {
            let (kind, len) = (be32(&bytes, at), be32(&bytes, at + 4) as usize);
            if kind == 0 {
                break;
            }
            let content = bytes.get(at + 8..).and_then(|rest| rest.get(..len));
            let content = content.ok_or_else(|| damaged(format!("a header extension of {len} bytes")))?;
            if kind == EXTENSION_BACKING_FORMAT {
                self.backing_format = Some(text(content, "the format of the backing file")?);
            }
            at += 8 + len.next_multiple_of(8);
        }
        Ok(())
    }
}

fn refuse_features(incompatible: u64) -> Result<()> {
    if incompatible & CORRUPT != 0 {
        return Err(damaged("QEMU marked it corrupt; `qemu-img check -r all IMAGE` repairs it"));
    }
    let known = DIRTY | COMPRESSION;
    let what = match incompatible & !known {
        0 => return Ok(()),
        EXTERNAL_DATA => "an external data file".to_owned(),
        EXTENDED_L2 => "subclusters (extended_l2)".to_owned(),
        unknown => format!("incompatible features {unknown:#x}"),
    };
    Err(Error::unsupported(Format::Qcow2, what))
}

/// The header of a new image of version 3.
pub(super) fn new_header(
    cluster_bits: u32,
    size: u64,
    l1: (u64, u32),
    refcount_table: (u64, u32),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + 16);
    let put32 = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_be_bytes());
    put32(&mut bytes, MAGIC);
    put32(&mut bytes, 3);
    bytes.extend([0; 12]);
    put32(&mut bytes, cluster_bits);
    bytes.extend(size.to_be_bytes());
    put32(&mut bytes, 0);
    put32(&mut bytes, l1.1);
    bytes.extend(l1.0.to_be_bytes());
    bytes.extend(refcount_table.0.to_be_bytes());
    put32(&mut bytes, refcount_table.1);
    // No snapshots, no features.
    bytes.extend([0; 12 + 24]);
    put32(&mut bytes, 4);
    put32(&mut bytes, HEADER_BYTES as u32 + 8);
    // Deflate, its padding, and the end of the extensions.
    bytes.extend([0; 16]);
    bytes
}
