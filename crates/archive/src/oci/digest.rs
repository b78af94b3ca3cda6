//! Digests of blobs.
//!
//! Source: OCI image specification 1.1, `descriptor.md`, "Digests" and "Registered Algorithms".

use oci_spec::image::DigestAlgorithm;
use sha2::{Digest as _, Sha256, Sha512};

/// Computes a digest from bytes that come one after the other.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// SHA-256, which every implementation has.
    Sha256(Sha256),
    /// SHA-512.
    Sha512(Sha512),
}

impl Hasher {
    /// A hasher of the algorithm that every implementation has.
    #[must_use]
    pub fn sha256() -> Self {
        Self::Sha256(Sha256::new())
    }

    /// A hasher that has seen nothing. None for algorithms that the specification does not register.
    #[must_use]
    pub fn new(algorithm: &DigestAlgorithm) -> Option<Self> {
        match algorithm {
            DigestAlgorithm::Sha256 => Some(Self::Sha256(Sha256::new())),
            DigestAlgorithm::Sha512 => Some(Self::Sha512(Sha512::new())),
            _ => None,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
        }
    }

    /// The digest as a descriptor has it: the algorithm, a colon, lower-case hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Self::Sha256(state) => format!("sha256:{}", hex(&state.finalize())),
            Self::Sha512(state) => format!("sha512:{}", hex(&state.finalize())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-4, of "abc".
        for (algorithm, start, bytes) in [
            (DigestAlgorithm::Sha256, "sha256:ba7816bf8f01cfea", 32),
            (DigestAlgorithm::Sha512, "sha512:ddaf35a193617aba", 64),
        ] {
            let mut hasher = Hasher::new(&algorithm).unwrap();
            hasher.update(b"a");
            hasher.update(b"bc");
            let digest = hasher.finish();
            assert!(digest.starts_with(start), "{digest}");
            assert_eq!(digest.len(), 7 + 2 * bytes);
        }
        assert!(Hasher::new(&"md5".into()).is_none());
    }
}
