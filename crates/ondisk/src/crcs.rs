//! The two checksums of ext4.
//!
//! Source: kernel `crc16`, `crc32c_le`.

/// CRC-32C without inversion before or after (`crc32c_le`), continued from `seed`.
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

const CRC16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);

/// CRC-16 of polynomial 0x8005, reflected, without final inversion, continued from `seed`.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    let mut digest = CRC16.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_of_the_check_string_is_the_published_one_uninverted() {
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), !0xE306_9283);
    }

    #[test]
    fn crc16_continues_from_its_seed() {
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(crc16(0xFFFF, b"1234"), b"56789"), 0x4B37);
    }
}
