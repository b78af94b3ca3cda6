//! The hash of a name by which an indexed directory is ordered.
//!
//! Leaves out: case folding and SipHash (directories that are folded and encrypted at once).
//! Source: kernel `fs/ext4/hash.c`. Test: `tests/dirs_and_xattrs/dir_hash.rs` (against `debugfs dx_hash`).

/// `EXT4_HTREE_EOF_32BIT` shifted: the value no name may hash to, because it ends a directory stream.
const EOF_HASH: u32 = 0x7fff_ffff << 1;
/// The start value of both mixing hashes when the file system has no seed.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// A hash function of names; the number is `DX_HASH_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HashVersion {
    /// The first one, bytes taken as signed.
    Legacy = 0,
    /// Half an MD4, bytes taken as signed.
    HalfMd4 = 1,
    /// The Tiny Encryption Algorithm, bytes taken as signed.
    Tea = 2,
    /// As [`HashVersion::Legacy`], bytes taken as unsigned.
    LegacyUnsigned = 3,
    /// As [`HashVersion::HalfMd4`], bytes taken as unsigned.
    HalfMd4Unsigned = 4,
    /// As [`HashVersion::Tea`], bytes taken as unsigned.
    TeaUnsigned = 5,
}

impl HashVersion {
    /// The function for a version on the disk (0 to 2; of an index root or `s_def_hash_version`), where `unsigned`
    /// is the superblock's `EXT2_FLAGS_UNSIGNED_HASH`.
    #[must_use]
    pub fn from_disk(version: u8, unsigned: bool) -> Option<Self> {
        Some(match (version, unsigned) {
            (0, false) => Self::Legacy,
            (1, false) => Self::HalfMd4,
            (2, false) => Self::Tea,
            (0, true) => Self::LegacyUnsigned,
            (1, true) => Self::HalfMd4Unsigned,
            (2, true) => Self::TeaUnsigned,
            _ => return None,
        })
    }

    /// The number an index root carries: signed and unsigned share one.
    #[must_use]
    pub fn to_disk(self) -> u8 {
        self as u8 % 3
    }

    fn is_unsigned(self) -> bool {
        self as u8 >= 3
    }
}

/// The hash of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// The key by which the index is ordered; the lowest bit is 0.
    pub hash: u32,
    /// The key that orders names of one `hash` in a directory stream.
    pub minor: u32,
}

/// A hash function with its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHasher {
    version: HashVersion,
    seed: [u32; 4],
}

impl DirHasher {
    /// `seed` is `s_hash_seed` as little-endian words; all zero means no seed.
    #[must_use]
    pub fn new(version: HashVersion, seed: [u32; 4]) -> Self {
        let seed = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Self { version, seed }
    }

    /// The function.
    #[must_use]
    pub fn version(&self) -> HashVersion {
        self.version
    }

    /// The hash of `name`.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let unsigned = self.version.is_unsigned();
        let (hash, minor) = match self.version {
            HashVersion::Legacy | HashVersion::LegacyUnsigned => (legacy(name, unsigned), 0),
            HashVersion::HalfMd4 | HashVersion::HalfMd4Unsigned => {
                let mut state = self.seed;
                let mut rest = name;
                while !rest.is_empty() {
                    half_md4(&mut state, &words::<8>(rest, unsigned));
                    rest = rest.get(32..).unwrap_or_default();
                }
                (state[1], state[2])
            }
            HashVersion::Tea | HashVersion::TeaUnsigned => {
                let mut state = self.seed;
                let mut rest = name;
                while !rest.is_empty() {
                    tea(&mut state, &words::<4>(rest, unsigned));
                    rest = rest.get(16..).unwrap_or_default();
                }
                (state[0], state[1])
            }
        };
        let hash = match hash & !1 {
            EOF_HASH => EOF_HASH - 2,
            hash => hash,
        };
        NameHash { hash, minor }
    }
}

fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { u32::from(byte) } else { i32::from(byte as i8) as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut hash0, mut hash1) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mut hash = hash1.wrapping_add(hash0 ^ widen(byte, unsigned).wrapping_mul(7_152_373));
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        hash1 = hash0;
        hash0 = hash;
    }
    hash0 << 1
}

/// The first `4 * N` bytes of `rest` as big-endian words, padded with the length of `rest` in every byte.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    // A name is at most 255 bytes, so the length is one byte.
    let len = rest.len() as u32;
    let pad = len | len << 8;
    let pad = pad | pad << 16;
    let mut out = [pad; N];
    for (word, chunk) in out.iter_mut().zip(rest.chunks(4)) {
        *word = chunk.iter().fold(pad, |value, &byte| widen(byte, unsigned).wrapping_add(value << 8));
    }
    out
}

fn tea(state: &mut [u32; 4], input: &[u32; 4]) {
    let [a, b, c, d] = *input;
    let (mut b0, mut b1) = (state[0], state[1]);
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        let mix = |v: u32, l: u32, r: u32| {
            (v << 4).wrapping_add(l) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(r)
        };
        b0 = b0.wrapping_add(mix(b1, a, b));
        b1 = b1.wrapping_add(mix(b0, c, d));
    }
    state[0] = state[0].wrapping_add(b0);
    state[1] = state[1].wrapping_add(b1);
}

/// The order in which each round takes the input words, its constant and its shifts (RFC 1320, cut to 8 words).
const MD4_ROUNDS: [([usize; 8], u32, [u32; 4]); 3] = [
    ([0, 1, 2, 3, 4, 5, 6, 7], 0, [3, 7, 11, 19]),
    ([1, 3, 5, 7, 0, 2, 4, 6], 0x5A82_7999, [3, 5, 9, 13]),
    ([3, 7, 2, 6, 1, 5, 0, 4], 0x6ED9_EBA1, [3, 9, 11, 15]),
];

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, (order, constant, shifts)) in MD4_ROUNDS.iter().enumerate() {
        for (step, &index) in order.iter().enumerate() {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let sum = a.wrapping_add(mixed).wrapping_add(input[index]).wrapping_add(*constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}
