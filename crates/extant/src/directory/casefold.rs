//! Names that are not stored as they are looked up: casefolded names, and encrypted ones, which are shown and looked up in a
//! no-key form while there is no key ([`extant_ondisk::nokey`]).
//!
//! Such directories are read only here, and without their index, whose hashes may be of another form of the names: all
//! their names are gone through.
//!
//! Source: `ext4_match` of `fs/ext4/namei.c`, `fscrypt_match_name` of `fs/crypto/fname.c`. Tests: `casefold` and `encrypt` in
//! `../tests/formats`.

use extant_ondisk::casefold::FoldedName;
use extant_ondisk::nokey::NoKeyName;
use extant_ondisk::{InodeFlags, RawInode, dirent};
use extant_rt::Arc;

use super::{Found, NAME_FORMS};
use crate::directory::Directories;
use crate::error::Result;
use crate::incore::inode::Inode;

/// A name to be looked up.
enum QueryName<'n> {
    Folded(FoldedName<'n>),
    NoKey(NoKeyName),
}

impl<'n> QueryName<'n> {
    /// Reads a name by the directory's form; `None` if it is no name there.
    fn parse(dir: &RawInode, name: &'n [u8]) -> Option<Self> {
        if dir.flags().contains(InodeFlags::ENCRYPT) {
            NoKeyName::parse(name).map(Self::NoKey)
        } else {
            Some(Self::Folded(FoldedName::new(name)))
        }
    }

    fn is(&self, stored: &[u8]) -> bool {
        match self {
            Self::Folded(name) => name.is_same(stored),
            Self::NoKey(name) => name.is_of(stored),
        }
    }
}

impl Directories {
    /// Whether the names of a directory are stored as they are looked up.
    pub(super) fn is_plain(&self, dir: &RawInode) -> bool {
        !dir.flags().intersects(NAME_FORMS)
    }

    /// The entry whose name, in the directory's form, is the one looked up.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(super) fn find_folded_or_nokey(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Option<Found>> {
        let Some(query) = QueryName::parse(&dir.raw(), name) else { return Ok(None) };
        let mut stored = None;
        let scanned = self.scan_directory(dir, &mut |_, bytes, usable| {
            let mut names =
                dirent::live_entries(bytes, usable).map_while(|entry| entry.ok()).map(|entry| entry.name);
            stored = names.find(|name| !matches!(*name, b"." | b"..") && query.is(name)).map(<[u8]>::to_vec);
            Ok(stored.is_none())
        });
        match stored {
            Some(stored) => self.find_scanning(dir, &stored),
            None => scanned.map(|()| None),
        }
    }
}
