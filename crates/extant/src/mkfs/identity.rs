//! What distinguishes one file system from another: UUID, hash seed, and the time it was made.

use std::hash::{BuildHasher, Hasher, RandomState};

use extant_rt::WallClock;

use super::Mkfs;

/// The identity of a new file system.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub uuid: [u8; 16],
    pub hash_seed: [u32; 4],
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Identity {
    /// As `options` ask; the rest is random, or, with a fixed clock, follows from the options: the same options give
    /// the same bytes.
    pub fn new(options: &Mkfs) -> Self {
        let (seconds, nanoseconds) = options.clock.now();
        let mut numbers = match options.clock {
            WallClock::Fixed(..) => SplitMix(fingerprint(options, seconds, nanoseconds)),
            WallClock::System => SplitMix(RandomState::new().build_hasher().finish()),
        };
        let uuid = options.uuid.unwrap_or_else(|| numbers.uuid());
        let hash_seed = options.hash_seed.unwrap_or_else(|| numbers.uuid());
        let word = |index: usize| {
            let bytes = hash_seed.iter().skip(index * 4).take(4);
            bytes.rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        Self { uuid, hash_seed: [word(0), word(1), word(2), word(3)], seconds, nanoseconds }
    }
}

/// A random UUID, of version 4.
#[cfg(feature = "tune")]
pub(crate) fn random_uuid() -> [u8; 16] {
    SplitMix(RandomState::new().build_hasher().finish()).uuid()
}

/// A UUID of version 1: of this moment, and of a random node.
#[cfg(feature = "tune")]
pub(crate) fn time_uuid(clock: WallClock) -> [u8; 16] {
    /// Seconds from the beginning of the Gregorian calendar to 1970.
    const GREGORIAN_S: i64 = 12_219_292_800;
    let (seconds, nanoseconds) = clock.now();
    let ticks = u64::try_from(seconds.saturating_add(GREGORIAN_S)).unwrap_or(0).wrapping_mul(10_000_000);
    let ticks = u128::from(ticks.wrapping_add(u64::from(nanoseconds / 100)));
    let time = (ticks & 0xFFFF_FFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48 & 0xFFF;
    // The bit of a multicast address says that no interface has the node's number.
    let node = u128::from_be_bytes(random_uuid()) & 0x3FFF_FFFF_FFFF_FFFF | 1 << 63 | 1 << 40;
    (time << 64 | node).to_be_bytes()
}

/// FNV-1a of what distinguishes one image from another.
fn fingerprint(options: &Mkfs, seconds: i64, nanoseconds: u32) -> u64 {
    let numbers =
        [seconds as u64, u64::from(nanoseconds), options.blocks.unwrap_or(0), options.bytes.unwrap_or(0)];
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).chain(options.label);
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Steele, Lea and Flood's generator.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A UUID of version 4.
    fn uuid(&mut self) -> [u8; 16] {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        let bits = bits & !(0xF << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        bits.to_be_bytes()
    }
}
