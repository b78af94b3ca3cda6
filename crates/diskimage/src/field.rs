//! Fields of headers and tables. What is past the end of the bytes reads as zero.

use std::io;

use extant_block::BlockDevice;

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes_at(bytes, at))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes_at(bytes, at))
}

pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// Fills `buf` from `offset`; what is past the end of the file reads as zero.
pub(crate) fn read_padded(file: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let len = file.size().saturating_sub(offset).min(buf.len() as u64) as usize;
    let (there, past) = buf.split_at_mut(len);
    past.fill(0);
    if there.is_empty() { Ok(()) } else { file.read_at(offset, there) }
}

/// Bytes of a table at most. A VHDX of 64 TiB in blocks of 32 MiB has one of 16 MiB.
const TABLE_BYTES_MAX: u64 = 64 << 20;

/// The `bytes` bytes at `offset` of `file`; none if they are not all there or too many, so that no field asks for more memory than the
/// file has bytes, nor a file with holes for as much as it seems to have.
pub(crate) fn read_vec(file: &dyn BlockDevice, offset: u64, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if bytes > TABLE_BYTES_MAX || offset.checked_add(bytes).is_none_or(|end| end > file.size()) {
        return Ok(None);
    }
    let mut buf = vec![0; bytes as usize];
    file.read_at(offset, &mut buf)?;
    Ok(Some(buf))
}
