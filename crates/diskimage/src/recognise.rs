//! How formats are recognised.

use std::io;

use extant_block::BlockDevice;

use crate::Format;
use crate::field::{be32, le16};
use crate::vhd;

impl Format {
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
        } else if vhd::is_fixed(file)? {
            Self::Vhd
        } else if is_disk {
            Self::Raw
        } else if has(b"QFI\xfb") {
            Self::Qcow2
        } else if has(b"vhdxfile") {
            Self::Vhdx
        } else if has(b"KDMV") || has(b"# Disk DescriptorFile") {
            Self::Vmdk
        } else if has(b"conectix") {
            Self::Vhd
        } else {
            Self::Raw
        })
    }
}
