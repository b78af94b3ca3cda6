//! PAX extended headers: records of `length keyword=value\n`.

use std::io::Write;

use extant_ondisk::Timestamp;

/// A record's keyword and value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// Records of one header: two for each piece of a sparse file in the form that takes most, and some 30 MiB of memory.
const RECORDS_MAX: usize = 1 << 18;

/// Digits of a record's length.
const LENGTH_DIGITS_MAX: usize = 20;

/// The records of an extended header, or the reason why they cannot be read.
pub(super) fn parse(mut rest: &[u8]) -> Result<Vec<Record>, &'static str> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (record, behind) = next(rest).ok_or("a malformed extended header")?;
        if records.len() == RECORDS_MAX {
            return Err("more than 262144 records in an extended header");
        }
        records.push(record);
        rest = behind;
    }
    Ok(records)
}

/// The first record, and what is behind it.
fn next(rest: &[u8]) -> Option<(Record, &[u8])> {
    let blank = rest.iter().take(LENGTH_DIGITS_MAX + 1).position(|byte| *byte == b' ')?;
    let len: usize = decimal(&rest[..blank])?.try_into().ok()?;
    let record = rest.get(blank + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some(((record[..equals].to_vec(), record[equals + 1..].to_vec()), &rest[len..]))
}

/// Appends a record.
pub(super) fn push(header: &mut Vec<u8>, keyword: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = keyword.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    header.extend(len.to_string().bytes());
    for piece in [b" ".as_slice(), keyword, b"=", value, b"\n"] {
        header.extend(piece);
    }
}

/// A number of decimal digits.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?.parse().ok()
}

/// Seconds with an optional fraction; digits past the ninth are cut off downwards.
pub(super) fn parse_time(value: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    Some(if negative && nanoseconds > 0 {
        Timestamp { seconds: seconds.checked_sub(1)?, nanoseconds: 1_000_000_000 - nanoseconds }
    } else {
        Timestamp { seconds, nanoseconds }
    })
}

/// The time as [`parse_time`] reads it.
pub(super) fn format_time(time: Timestamp) -> String {
    let Timestamp { seconds, nanoseconds } = time;
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    let text = if seconds < 0 {
        let whole = seconds + 1;
        let sign = if whole == 0 { "-" } else { "" };
        format!("{sign}{whole}.{:09}", 1_000_000_000 - nanoseconds.min(999_999_999))
    } else {
        format!("{seconds}.{nanoseconds:09}")
    };
    text.trim_end_matches('0').to_owned()
}

/// An attribute's name as part of a keyword, which cannot hold `=` (as GNU tar spells it).
pub(super) fn escape_attribute(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' | b'=' => {
                // Writing into memory does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
            _ => escaped.push(*byte),
        }
    }
    escaped
}

/// Undoes percent signs: all of them (libarchive), or only those of [`escape_attribute`].
pub(super) fn unescape_attribute(name: &[u8], all: bool) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if all || matches!(byte, b'%' | b'=') => {
                plain.push(byte);
                rest = &after[2..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// The bytes that base 64 spells, with or without padding; `None` for anything else.
pub(super) fn parse_base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.trim_ascii().iter().filter(|byte| !matches!(byte, b'=' | b'\n' | b'\r'));
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6 | u32::from(value)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_count_their_own_digits() {
        for len in [1, 5, 89, 90, 91, 92, 93, 994, 995, 996, 9990] {
            let mut header = Vec::new();
            push(&mut header, b"k", &vec![b'x'; len]);
            push(&mut header, b"binary", b"a\n=\0");
            let records = parse(&header).unwrap();
            assert_eq!(records[0], (b"k".to_vec(), vec![b'x'; len]));
            assert_eq!(records[1], (b"binary".to_vec(), b"a\n=\0".to_vec()));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in [
            &b"9 a=b\n"[..],
            b"x a=b\n",
            b"6 ab\n\n",
            b"0 a=b\n",
            b"6 a=bX",
            b"99999999999999999999 a=b\n",
            b"3",
        ] {
            assert!(parse(bytes).is_err(), "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn times_survive_before_and_after_1970() {
        for (seconds, nanoseconds) in
            [(0, 0), (1, 5), (-1, 500_000_000), (-1, 1), (-2, 999_999_999), (9, 100)]
        {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(parse_time(format_time(time).as_bytes()), Some(time), "{}", format_time(time));
        }
        assert_eq!(parse_time(b"-0.25"), Some(Timestamp { seconds: -1, nanoseconds: 750_000_000 }));
        assert_eq!(parse_time(b"1.x"), None);
    }

    #[test]
    fn attribute_names_survive() {
        assert_eq!(unescape_attribute(&escape_attribute(b"user.a=b%3D%"), false), b"user.a=b%3D%");
        assert_eq!(unescape_attribute(b"user.%41%", true), b"user.A%");
        assert_eq!(parse_base64(b"aGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(parse_base64(b"a*"), None);
    }
}
