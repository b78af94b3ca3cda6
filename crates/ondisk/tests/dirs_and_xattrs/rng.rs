//! Seeded randomness (SplitMix64).

pub struct Rng(u64);

impl Rng {
    /// Prints the seed, which the harness shows when the test fails.
    pub fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// A name of bytes that a name may have.
    pub fn name(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| match self.next() as u8 {
                0 | b'/' => b'x',
                byte => byte,
            })
            .collect()
    }

    /// Changes up to `count` bytes, some at random places and some near the start, where headers are.
    pub fn mutate(&mut self, bytes: &mut [u8], count: usize) {
        for _ in 0..=self.below(count) {
            let end = if self.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
            let at = self.below(end);
            bytes[at] = match self.below(3) {
                0 => 0,
                1 => 0xFF,
                _ => self.next() as u8,
            };
        }
    }
}
