//! Name prefixes: one byte on the disk.

/// `e_name_index` of each prefix.
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.`
    pub const SYSTEM: u8 = 7;
    /// `system.richacl`, the whole name.
    pub const RICHACL: u8 = 8;
}

/// Whole names; the name on the disk is empty.
const WHOLE: [(u8, &[u8]); 3] = [
    (index::POSIX_ACL_ACCESS, b"system.posix_acl_access"),
    (index::POSIX_ACL_DEFAULT, b"system.posix_acl_default"),
    (index::RICHACL, b"system.richacl"),
];
/// Prefixes.
const PREFIXES: [(u8, &[u8]); 4] = [
    (index::USER, b"user."),
    (index::TRUSTED, b"trusted."),
    (index::SECURITY, b"security."),
    (index::SYSTEM, b"system."),
];

/// The index of a name's prefix and what follows it; `None` for a prefix that ext4 has no number for, and for a
/// prefix alone.
#[must_use]
pub fn split_name(name: &[u8]) -> Option<(u8, &[u8])> {
    if let Some((index, _)) = WHOLE.iter().find(|(_, whole)| *whole == name) {
        return Some((*index, &[]));
    }
    PREFIXES.iter().find_map(|(index, prefix)| {
        let rest = name.strip_prefix(*prefix)?;
        (!rest.is_empty()).then_some((*index, rest))
    })
}

/// The name in full; `None` for an index without a prefix that the interface knows.
#[must_use]
pub fn full_name(name_index: u8, name: &[u8]) -> Option<Vec<u8>> {
    let (_, prefix) = WHOLE.iter().chain(&PREFIXES).find(|(index, _)| *index == name_index)?;
    Some([prefix, name].concat())
}
