//! Maps by address: with a fixed hash function, so that they are fast and behave the same in each run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by address. Nothing may depend on the order of its entries, for addresses differ between runs.
pub type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// Spreads an address over all bits (Fibonacci hashing).
#[derive(Debug, Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}
