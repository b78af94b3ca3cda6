//! Sizes as mke2fs spells them.

/// Bytes: digits with a suffix of `s` (sectors), `k`, `m`, `g` or `t`; without one in units of `unit` bytes.
pub fn parse(text: &str, unit: u64) -> Result<u64, String> {
    let invalid = || format!("invalid size '{text}'");
    let (digits, scale) = match text.bytes().last().map(|last| last.to_ascii_lowercase()) {
        Some(b's') => (&text[..text.len() - 1], 512),
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        Some(b't') => (&text[..text.len() - 1], 1 << 40),
        _ => (text, unit),
    };
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(scale).ok_or_else(invalid)
}

/// Bytes, for options where a bare number is bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    parse(text, 1)
}

/// A size for people: `64 MiB`, `1.5 GiB`.
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scaled = bytes as f64;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled.fract() > 0.05 && scaled < 100.0);
    format!("{scaled:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_count_and_nonsense_is_refused() {
        assert_eq!(parse("64M", 1024), Ok(64 << 20));
        assert_eq!(parse("2048", 1024), Ok(2 << 20));
        assert_eq!(parse("8s", 1), Ok(4096));
        for text in ["", "M", "1x", "-1", "99999999999999999999", "18446744073709551615k"] {
            assert!(parse(text, 1).is_err(), "{text}");
        }
        assert_eq!(
            (show(512), show(64 << 20), show(1536 << 20)),
            ("512 bytes".into(), "64 MiB".into(), "1.5 GiB".into())
        );
    }
}
