//! The checksum of metadata blocks.

/// CRC-32C without inversion before or after, continued from `seed`.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}
