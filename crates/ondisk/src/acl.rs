//! Access control lists: what they grant, and their two encodings.
//!
//! For: the value that ext4 keeps under `system.posix_acl_*` (version 1, short entries) and the one the
//! `getxattr` interface carries (version 2, 8 bytes each). Leaves out: where the value is kept, and capabilities.
//!
//! Invariant: an [`Acl`] has passed the kernel's `posix_acl_valid`: the owner's, the group's and the others' entry
//! once each and in order, a mask if anyone is named.
//!
//! Source: kernel `fs/posix_acl.c`, `fs/ext4/acl.c`. Test: `tests/dirs_and_xattrs/acl.rs`.

use crate::error::{Error, Result, Structure};
use crate::field;
use crate::mode::{S_IRWXG, S_IRWXUGO};

/// Version of the value ext4 keeps.
const DISK_VERSION: u32 = 1;
/// Version of the value of the `getxattr` interface.
const XATTR_VERSION: u32 = 2;
/// The value for no id in the interface's entries.
const UNDEFINED_ID: u32 = u32::MAX;

/// Whom an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclTag {
    /// The file's owner.
    UserObj,
    /// The user of this id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// The group of this id.
    Group(u32),
    /// The most that named users, named groups and the file's group get.
    Mask,
    /// All other users.
    Other,
}

impl AclTag {
    const fn code(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    const fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }

    /// The tag of `code`; `id` is looked at where the tag has one.
    fn new(code: u16, id: Option<u32>) -> Result<Self> {
        let id = id.ok_or_else(|| corrupt("entry is cut off"));
        Ok(match code {
            0x01 => Self::UserObj,
            0x02 => Self::User(id?),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id?),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return Err(corrupt("unknown tag")),
        })
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is for.
    pub tag: AclTag,
    /// The permissions that it grants: 4 read, 2 write, 1 execute.
    pub perm: u16,
}

/// The user and groups that ask for access.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The user.
    pub uid: u32,
    /// All groups of the user, the primary one included.
    pub groups: &'a [u32],
}

/// Whose file it is.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// A valid access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// A list of these entries.
    ///
    /// # Errors
    /// `Corrupt` when they are not what [`Acl`] demands.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self> {
        validate(&entries)?;
        Ok(Self { entries })
    }

    /// The list that says what the mode says.
    #[must_use]
    pub fn from_mode(mode: u16) -> Self {
        let entry = |tag, shift: u16| AclEntry { tag, perm: mode >> shift & 7 };
        Self { entries: vec![entry(AclTag::UserObj, 6), entry(AclTag::GroupObj, 3), entry(AclTag::Other, 0)] }
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Reads the value ext4 keeps; an empty one is no list.
    ///
    /// # Errors
    /// `Corrupt` when it is malformed or not valid.
    pub fn from_disk(value: &[u8]) -> Result<Option<Self>> {
        let mut rest = body(value, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (Some(code), Some(perm)) = (field::get::<u16>(rest, 0), field::get::<u16>(rest, 2)) else {
                return Err(corrupt("entry is cut off"));
            };
            let tag = AclTag::new(code, field::get::<u32>(rest, 4))?;
            entries.push(AclEntry { tag, perm });
            rest = rest.get(if tag.id().is_some() { 8 } else { 4 }..).unwrap_or_default();
        }
        some_valid(entries)
    }

    /// Reads the value of the `setxattr` interface; one without entries means no list.
    ///
    /// # Errors
    /// `Corrupt` when it is malformed or not valid.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Self>> {
        let (whole, rest) = body(value, XATTR_VERSION)?.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(corrupt("entry is cut off"));
        }
        let entry = |raw: &[u8; 8]| {
            let [t0, t1, p0, p1, i0, i1, i2, i3] = *raw;
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let tag = AclTag::new(u16::from_le_bytes([t0, t1]), Some(id))?;
            Ok(AclEntry { tag, perm: u16::from_le_bytes([p0, p1]) })
        };
        some_valid(whole.iter().map(entry).collect::<Result<_>>()?)
    }

    /// The value ext4 keeps.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut value = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend(entry.tag.code().to_le_bytes());
            value.extend(entry.perm.to_le_bytes());
            if let Some(id) = entry.tag.id() {
                value.extend(id.to_le_bytes());
            }
        }
        value
    }

    /// The value of the `getxattr` interface.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend(entry.tag.code().to_le_bytes());
            value.extend(entry.perm.to_le_bytes());
            value.extend(entry.tag.id().unwrap_or(UNDEFINED_ID).to_le_bytes());
        }
        value
    }

    /// Whether a file with this list lets `subject` do all of `want` (4 read, 2 write, 1 execute), as Linux decides it
    /// (`posix_acl_permission`; `acl_permission_check`, which does not even read a list whose mask is 0, so that
    /// those it names are then others). Capabilities are not looked at.
    #[must_use]
    pub fn permits(&self, subject: Subject<'_>, owner: Owner, want: u16) -> bool {
        let want = want & 7;
        let grants = |perm: u16| perm & want == want;
        let mask = self.mask().unwrap_or(7);
        let (mode, _) = self.equiv_mode();
        if mode & S_IRWXG == 0 {
            let shift = if subject.uid == owner.uid {
                6
            } else if subject.groups.contains(&owner.gid) {
                3
            } else {
                0
            };
            return grants(mode >> shift);
        }
        let mut in_a_group = false;
        for &AclEntry { tag, perm } in &self.entries {
            match tag {
                AclTag::UserObj if subject.uid == owner.uid => return grants(perm),
                AclTag::User(uid) if subject.uid == uid => return grants(perm & mask),
                AclTag::GroupObj if subject.groups.contains(&owner.gid) => {
                    in_a_group = true;
                    // One group that grants everything decides; grants of several do not add up.
                    if grants(perm) {
                        return grants(perm & mask);
                    }
                }
                AclTag::Group(gid) if subject.groups.contains(&gid) => {
                    in_a_group = true;
                    if grants(perm) {
                        return grants(perm & mask);
                    }
                }
                AclTag::Other => return !in_a_group && grants(perm),
                _ => {}
            }
        }
        false
    }

    /// The nine mode bits of the list, and whether they express all of it, so that the list need not be stored
    /// (`posix_acl_equiv_mode`).
    #[must_use]
    pub fn equiv_mode(&self) -> (u16, bool) {
        let (mut mode, mut equivalent) = (0, true);
        for &AclEntry { tag, perm } in &self.entries {
            match tag {
                AclTag::UserObj => mode |= perm << 6,
                AclTag::GroupObj => mode |= perm << 3,
                AclTag::Other => mode |= perm,
                AclTag::Mask => {
                    mode = mode & !S_IRWXG | perm << 3;
                    equivalent = false;
                }
                AclTag::User(_) | AclTag::Group(_) => equivalent = false,
            }
        }
        (mode, equivalent)
    }

    /// The access list and the mode of something created with `mode` under a directory with the default list
    /// `default` (`posix_acl_create`). No list when the mode says it all. The umask plays no part; a new directory
    /// inherits `default` itself besides.
    #[must_use]
    pub fn create(default: &Self, mode: u16) -> (Option<Self>, u16) {
        let mut acl = default.clone();
        let mut granted = mode;
        let has_mask = acl.mask().is_some();
        for AclEntry { tag, perm } in &mut acl.entries {
            let Some(shift) = mode_shift(*tag, has_mask) else {
                continue;
            };
            *perm &= mode >> shift & 7;
            granted &= *perm << shift | !(7 << shift);
        }
        let (_, equivalent) = acl.equiv_mode();
        ((!equivalent).then_some(acl), mode & !S_IRWXUGO | granted & S_IRWXUGO)
    }

    /// The list after a change of the mode (`posix_acl_chmod`): the mode's group bits go to the mask if there is one.
    #[must_use]
    pub fn chmod(&self, mode: u16) -> Self {
        let mut acl = self.clone();
        let has_mask = acl.mask().is_some();
        for AclEntry { tag, perm } in &mut acl.entries {
            if let Some(shift) = mode_shift(*tag, has_mask) {
                *perm = mode >> shift & 7;
            }
        }
        acl
    }

    fn mask(&self) -> Option<u16> {
        self.entries.iter().find(|e| e.tag == AclTag::Mask).map(|e| e.perm)
    }
}

/// The shift of the entry's bits in a mode, if it has any there.
fn mode_shift(tag: AclTag, has_mask: bool) -> Option<u16> {
    match tag {
        AclTag::UserObj => Some(6),
        AclTag::Mask => Some(3),
        AclTag::GroupObj if !has_mask => Some(3),
        AclTag::Other => Some(0),
        _ => None,
    }
}

/// The bytes behind the version.
fn body(value: &[u8], version: u32) -> Result<&[u8]> {
    match value.split_first_chunk() {
        Some((raw, rest)) if u32::from_le_bytes(*raw) == version => Ok(rest),
        Some(_) => Err(corrupt("unknown version")),
        None => Err(corrupt("header is cut off")),
    }
}

fn some_valid(entries: Vec<AclEntry>) -> Result<Option<Acl>> {
    if entries.is_empty() {
        return Ok(None);
    }
    Acl::new(entries).map(Some)
}

/// `posix_acl_valid`: the order of the tags, with each object's entry once. Ids are in no order, as in the kernel.
fn validate(entries: &[AclEntry]) -> Result<()> {
    // Ranks of the tags, of which User and Group may repeat and Mask may be missing.
    let rank = |tag| match tag {
        AclTag::UserObj => 0,
        AclTag::User(_) => 1,
        AclTag::GroupObj => 2,
        AclTag::Group(_) => 3,
        AclTag::Mask => 4,
        AclTag::Other => 5,
    };
    if entries.iter().any(|e| e.perm > 7) {
        return Err(corrupt("unknown permission"));
    }
    if entries.iter().any(|e| e.tag.id() == Some(UNDEFINED_ID)) {
        return Err(corrupt("entry for an invalid id"));
    }
    let repeats = |tag| matches!(tag, AclTag::User(_) | AclTag::Group(_));
    let in_order = entries.windows(2).all(|pair| match pair {
        [a, b] => rank(a.tag) < rank(b.tag) || rank(a.tag) == rank(b.tag) && repeats(a.tag),
        _ => true,
    });
    let has = |tag| entries.iter().any(|e| e.tag == tag);
    if !in_order || ![AclTag::UserObj, AclTag::GroupObj, AclTag::Other].into_iter().all(has) {
        return Err(corrupt("entries are missing, doubled or out of order"));
    }
    if entries.iter().any(|e| repeats(e.tag)) && !has(AclTag::Mask) {
        return Err(corrupt("named entries without a mask"));
    }
    Ok(())
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::Acl, reason)
}
