//! Little-endian fields at byte offsets, for structures whose places are computed and hostile.

/// The two bytes at `offset`, or `None` outside the slice.
pub(crate) fn le16(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_le_bytes(*field))
}

/// The four bytes at `offset`, or `None` outside the slice.
pub(crate) fn le32(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// Writes two bytes at `offset`; nothing outside the slice.
pub(crate) fn put_le16(bytes: &mut [u8], offset: usize, value: u16) {
    if let Some(field) = bytes.get_mut(offset..).and_then(|b| b.first_chunk_mut()) {
        *field = value.to_le_bytes();
    }
}

/// Writes four bytes at `offset`; nothing outside the slice.
pub(crate) fn put_le32(bytes: &mut [u8], offset: usize, value: u32) {
    if let Some(field) = bytes.get_mut(offset..).and_then(|b| b.first_chunk_mut()) {
        *field = value.to_le_bytes();
    }
}
