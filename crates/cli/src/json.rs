//! Pieces of documents: names and bytes, times.

use extant::Timestamp;
use serde_json::{Map, Value};

/// Puts bytes that are mostly text under `key`, or under `key_b64` if they are no UTF-8.
pub fn put_text(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(key.to_owned(), text.into()),
        Err(_) => object.insert(format!("{key}_b64"), base64(bytes).into()),
    };
}

/// Nanoseconds since 1970. Times of inodes reach further than 64 bits with a sign do.
pub fn nanoseconds(time: Timestamp) -> Value {
    let count = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    match (i64::try_from(count), u64::try_from(count)) {
        (Ok(count), _) => count.into(),
        (_, Ok(count)) => count.into(),
        _ => Value::Null,
    }
}

/// Base 64 with padding (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= chunk.len() { DIGITS[value as usize].into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn times_past_2262_and_before_1970_are_numbers() {
        let time = |seconds| nanoseconds(Timestamp { seconds, nanoseconds: 5 });
        assert_eq!(time(-1), serde_json::json!(-999_999_995));
        assert_eq!(time(15_000_000_000), serde_json::json!(15_000_000_000_000_000_005_u64));
    }
}
