//! Encrypted names as they are shown without the key: base64url of two words of hash, of up to 149 bytes of the name as
//! stored, and of the SHA-256 of the rest, if there is one.
//!
//! Source: kernel `struct fscrypt_nokey_name` of `fs/crypto/fname.c`. Tests: `encrypt` in `crates/extant/tests/formats`.

use crate::dir_hash::NameHash;

/// Bytes of the shortest encrypted name.
pub const NAME_MIN: usize = 16;

const HASH_BYTES: usize = 8;
const NAME_BYTES: usize = 149;
const DIGEST_BYTES: usize = 32;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The shown form of a name. `hash` is that of an index, or none.
#[must_use]
pub fn show(hash: NameHash, name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HASH_BYTES + NAME_BYTES + DIGEST_BYTES);
    bytes.extend(hash.hash.to_le_bytes());
    bytes.extend(hash.minor.to_le_bytes());
    let (start, rest) = name.split_at(name.len().min(NAME_BYTES));
    bytes.extend(start);
    if !rest.is_empty() {
        bytes.extend(sha256(rest));
    }
    let digits = |piece: &[u8]| {
        let word =
            piece.iter().fold(0, |word, byte| word << 8 | usize::from(*byte)) << (8 * (3 - piece.len()));
        let letters = [18, 12, 6, 0].map(|shift| LETTERS[word >> shift & 63]);
        letters.into_iter().take(piece.len() + 1)
    };
    bytes.chunks(3).flat_map(digits).collect()
}

#[cfg(feature = "encrypt")]
fn sha256(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    <sha2::Sha256 as sha2::Digest>::digest(bytes).into()
}

/// Disks with long encrypted names are refused then.
#[cfg(not(feature = "encrypt"))]
fn sha256(_: &[u8]) -> [u8; DIGEST_BYTES] {
    [0; DIGEST_BYTES]
}

/// Bytes of the shown form of a name of `len` bytes.
#[must_use]
pub fn shown_len(len: u64) -> u64 {
    let rest = if len > NAME_BYTES as u64 { DIGEST_BYTES } else { 0 };
    ((HASH_BYTES + rest) as u64 + len.min(NAME_BYTES as u64)).saturating_mul(4).div_ceil(3)
}

/// The parts of a name that its no-key form shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKeyName {
    start: Vec<u8>,
    /// The digest of the rest.
    rest: Option<[u8; DIGEST_BYTES]>,
}

impl NoKeyName {
    /// Reads a shown form; `None` if it is none.
    #[must_use]
    pub fn parse(shown: &[u8]) -> Option<Self> {
        let mut bytes = Vec::with_capacity(shown.len());
        for piece in shown.chunks(4) {
            let word = piece.iter().try_fold(0, |word, letter| {
                LETTERS.iter().position(|known| known == letter).map(|digit| word << 6 | digit)
            })?;
            let word = word << (6 * (4 - piece.len()));
            let [_, whole @ ..] = (word as u32).to_be_bytes();
            let (read, left) = whole.split_at(piece.len() - 1);
            if left.iter().any(|byte| *byte != 0) {
                return None;
            }
            bytes.extend(read);
        }
        let name = bytes.get(HASH_BYTES..).filter(|name| !name.is_empty())?;
        let (start, rest) = name.split_at(name.len().min(NAME_BYTES));
        let rest = if rest.is_empty() { None } else { Some(rest.try_into().ok()?) };
        Some(Self { start: start.to_vec(), rest })
    }

    /// Whether it is the shown form of `name`.
    #[must_use]
    pub fn is_of(&self, name: &[u8]) -> bool {
        let (start, rest) = name.split_at(name.len().min(NAME_BYTES));
        start == self.start
            && match self.rest {
                None => rest.is_empty(),
                Some(digest) => !rest.is_empty() && sha256(rest) == digest,
            }
    }
}

#[cfg(all(test, feature = "encrypt"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back_and_nothing_else_is() {
        for len in 1..=255 {
            let name: Vec<u8> = (0..len).map(|at| (at * 83) as u8).collect();
            let shown = show(NameHash { hash: 2, minor: len as u32 }, &name);
            assert_eq!(shown.len() as u64, shown_len(len as u64));
            assert!(shown.len() <= 255);
            let read = NoKeyName::parse(&shown).expect("a shown form");
            assert!(read.is_of(&name));
            let mut other = name.clone();
            other[len - 1] ^= 1;
            assert!(!read.is_of(&other) && !read.is_of(&name[..len - 1]));
            assert_eq!(NoKeyName::parse(&shown[..7]), None);
        }
        for wrong in [b"".as_slice(), b"A", b"AAAAAAAAAAA", b"AAAAAAAAAAAA/", b"AAAAAAAAAAAAB"] {
            assert_eq!(NoKeyName::parse(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
