//! Sizes as mke2fs and coreutils spell them: `64M`, `10MiB`, `1.5G`, `2TB`.

/// Letters of units, each 1024 of the one before.
const LETTERS: &str = "kmgtpe";

/// Bytes: a number, with a fraction if it has a unit, and a unit: `k`, `m`, `g`, `t` or `p`, large or small, for powers of 1024,
/// `KiB` and so on likewise; `KB` and so on for powers of 1000; `B` for bytes, `s` for sectors of 512 bytes. Without a
/// unit it counts units of `unit` bytes.
pub fn parse(text: &str, unit: u64) -> Result<u64, String> {
    let invalid = || {
        format!(
            "invalid size '{text}'; a size is a number with K, M, G, T or P behind it, as in 64M, 1.5G or 10MiB"
        )
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let scale = scale(&suffix.to_ascii_lowercase(), unit).ok_or_else(invalid)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let has_fraction = number.contains('.');
    if whole.is_empty()
        || has_fraction && (fraction.is_empty() || fraction.contains('.') || suffix.is_empty())
    {
        return Err(invalid());
    }
    let too_large = || format!("size '{text}' is more than 2^64 bytes");
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(scale)).ok_or_else(too_large)?;
    // Digits beyond the ninth say less than a byte of a gibibyte.
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let parts = 10_u128.pow(fraction.len() as u32);
    let digits: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| invalid())? };
    let rest = digits * u128::from(scale) / parts;
    whole.checked_add(rest as u64).ok_or_else(too_large)
}

/// Bytes of a unit, which is in small letters.
fn scale(suffix: &str, unit: u64) -> Option<u64> {
    match suffix {
        "" => return Some(unit),
        "b" => return Some(1),
        "s" => return Some(512),
        _ => {}
    }
    let mut letters = suffix.chars();
    let power = LETTERS.find(letters.next()?)? as u32 + 1;
    match letters.as_str() {
        "" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
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

/// A size in a column, as `ls -h` writes it: `512`, `1.5K`, `64M`; rounded up.
pub fn short(bytes: u64) -> String {
    let (mut power, mut unit) = (0, 1_u128);
    let bytes = u128::from(bytes);
    // A value that rounds up to 1024 of a unit is shown as one of the next.
    while bytes.div_ceil(unit) >= 1024 && power < LETTERS.len() + 1 {
        power += 1;
        unit <<= 10;
    }
    let Some(letter) = power.checked_sub(1).and_then(|at| LETTERS.get(at..=at)) else {
        return bytes.to_string();
    };
    let letter = letter.to_uppercase();
    match (bytes * 10).div_ceil(unit) {
        tenths @ ..100 => format!("{}.{}{letter}", tenths / 10, tenths % 10),
        _ => format!("{}{letter}", bytes.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_short_and_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_200, "10K"),
            (10_241, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (3 << 29, "1.5G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(short(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn suffixes_count_and_nonsense_is_refused() {
        assert_eq!(parse("64M", 1024), Ok(64 << 20));
        assert_eq!(parse("2048", 1024), Ok(2 << 20));
        assert_eq!(parse("8s", 1), Ok(4096));
        for (text, bytes) in [
            ("10MiB", 10 << 20),
            ("10mib", 10 << 20),
            ("10MB", 10_000_000),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("2P", 2 << 50),
            ("7B", 7),
            ("0", 0),
            ("1.9999999999999k", 2047),
        ] {
            assert_eq!(parse(text, 1024), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "1x",
            "1.5",
            "1.",
            ".5M",
            "1.5.5M",
            "1Mi",
            "1MiBs",
            "10 M",
            "1.5\u{e9}M",
            "-1",
            "99999999999999999999",
            "18446744073709551615k",
            "16384P",
        ] {
            assert!(parse(text, 1).is_err(), "{text}");
        }
        assert_eq!(
            (show(512), show(64 << 20), show(1536 << 20)),
            ("512 bytes".into(), "64 MiB".into(), "1.5 GiB".into())
        );
    }
}
