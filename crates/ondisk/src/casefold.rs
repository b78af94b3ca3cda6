//! Comparing names without regard to case and encoding.
//!
//! A name is folded by full case folding, decomposed canonically, and loses its default-ignorable characters. The tables are those of
//! a later Unicode than the disk's 12.1, so letters added since are folded too; under 12.1 they are opaque.
//!
//! Source: kernel `fs/unicode`, `generic_ci_match` of `fs/libfs.c`. Tests: `casefold` in `crates/extant/tests/formats`, by e2fsprogs'
//! tables.

#[cfg(feature = "casefold")]
use {caseless::Caseless, unicode_normalization::UnicodeNormalization};

/// `s_encoding` of UTF-8 by Unicode 12.1.
pub const ENCODING_UTF8_12_1: u16 = 1;

/// A name to be compared with others.
#[derive(Clone, Debug)]
pub struct FoldedName<'n> {
    name: &'n [u8],
    folded: Option<String>,
}

impl<'n> FoldedName<'n> {
    /// Folds `name`. One that is no UTF-8 is the same as itself only.
    #[must_use]
    pub fn new(name: &'n [u8]) -> Self {
        Self { name, folded: fold(name) }
    }

    /// Whether `other` is the same name.
    #[must_use]
    pub fn is_same(&self, other: &[u8]) -> bool {
        self.name == other || self.folded.is_some() && self.folded == fold(other)
    }
}

/// The form in which names are compared, and hashed for an index; `None` for what is no UTF-8.
#[cfg(feature = "casefold")]
#[must_use]
pub fn fold(name: &[u8]) -> Option<String> {
    let shown = std::str::from_utf8(name).ok()?.chars().filter(|letter| !is_ignorable(*letter));
    // Each alone, before marks
    let folded =
        shown.flat_map(|letter| std::iter::once(letter).default_case_fold().nfd().default_case_fold());
    Some(folded.nfd().collect())
}

/// Without the Unicode tables no name has another form. Disks that need them are refused.
#[cfg(not(feature = "casefold"))]
#[must_use]
pub fn fold(_: &[u8]) -> Option<String> {
    None
}

/// `Default_Ignorable_Code_Point`.
#[cfg(feature = "casefold")]
fn is_ignorable(letter: char) -> bool {
    matches!(
        u32::from(letter),
        0xAD | 0x34F
            | 0x61C
            | 0x115F..=0x1160
            | 0x17B4..=0x17B5
            | 0x180B..=0x180E
            | 0x200B..=0x200F
            | 0x202A..=0x202E
            | 0x2060..=0x206F
            | 0x3164
            | 0xFE00..=0xFE0F
            | 0xFEFF
            | 0xFFA0
            | 0xFFF0..=0xFFF8
            | 0x1_BCA0..=0x1_BCA3
            | 0x1_D173..=0x1_D17A
            | 0xE_0000..=0xE_0FFF
    )
}
