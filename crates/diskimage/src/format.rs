//! The formats, and how they are recognised.

use std::fmt;
use std::io;

use extant_block::BlockDevice;

use crate::field::{be32, le16};
use crate::vhd;

/// A format of disk images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The disk byte by byte.
    Raw,
    /// QEMU's.
    Qcow2,
    /// Hyper-V's.
    Vhdx,
    /// Virtual PC's.
    Vhd,
    /// VMware's.
    Vmdk,
    /// Android's sparse images.
    AndroidSparse,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vhdx => "VHDX",
            Self::Vhd => "VHD",
            Self::Vmdk => "VMDK",
            Self::AndroidSparse => "Android sparse",
        })
    }
}

impl Format {
    /// Its name in programs' output.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
            Self::Vmdk => "vmdk",
            Self::AndroidSparse => "android-sparse",
        }
    }

    /// The command that makes an image of it which can be written here.
    #[must_use]
    pub fn conversion(self) -> &'static str {
        match self {
            Self::AndroidSparse => "`simg2img IMAGE NEW` makes a raw copy of it",
            _ => "`qemu-img convert -O qcow2 IMAGE NEW` makes a copy of it that can be written",
        }
    }

    /// The format of what is in `file`, by its marks.
    ///
    /// A file that has a partition table's signature or an ext4 superblock where a raw disk has them is raw, whatever else it begins
    /// with: a guest may write any first bytes to its raw disk, but none that make the host open other files.
    ///
    /// # Errors
    /// The device's own.
    pub fn recognise(file: &dyn BlockDevice) -> io::Result<Self> {
        let mut first = [0; 2048];
        let len = file.size().min(first.len() as u64) as usize;
        file.read_at(0, &mut first[..len])?;
        let has = |mark: &[u8]| first.starts_with(mark);
        let is_disk = first[510..512] == [0x55, 0xaa] || le16(&first, 1024 + 56) == 0xef53;
        Ok(if be32(&first, 0) == 0x3aff_26ed {
            Self::AndroidSparse
        } else if is_disk {
            Self::Raw
        } else if has(b"QFI\xfb") {
            Self::Qcow2
        } else if has(b"vhdxfile") {
            Self::Vhdx
        } else if has(b"KDMV") || has(b"# Disk DescriptorFile") {
            Self::Vmdk
        } else if has(b"conectix") || vhd::has_footer(file)? {
            Self::Vhd
        } else {
            Self::Raw
        })
    }
}
