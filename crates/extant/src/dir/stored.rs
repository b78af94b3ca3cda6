//! Names that do not stand in their directory as they are asked for.
//!
//! Such directories are read only here, and without their index, whose hashes are of another form of the names: all
//! their names are gone through.
//!
//! Source: `ext4_match` of `fs/ext4/namei.c`. Tests: `casefold` in `../tests/formats`.

use extant_ondisk::casefold::FoldedName;
use extant_ondisk::{Inode, InodeFlags, dirent};
use extant_rt::Arc;

use super::Found;
use crate::error::Result;
use crate::node::Node;
use crate::volume::Volume;

impl Volume {
    /// Whether the names of a directory stand in it as they are asked for.
    pub(super) fn is_plain(&self, dir: &Inode) -> bool {
        !dir.flags().contains(InodeFlags::CASEFOLD)
    }

    /// The entry whose name is the same but for case.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(super) fn find_folded(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        let wanted = FoldedName::new(name);
        let mut stored = None;
        let scanned = self.scan_directory(dir, &mut |_, bytes, usable| {
            let mut names =
                dirent::live_entries(bytes, usable).map_while(|entry| entry.ok()).map(|entry| entry.name);
            stored =
                names.find(|name| !matches!(*name, b"." | b"..") && wanted.is_same(name)).map(<[u8]>::to_vec);
            Ok(stored.is_none())
        });
        match stored {
            Some(stored) => self.find_scanning(dir, &stored),
            None => scanned.map(|()| None),
        }
    }
}
