//! Finding a name.
//!
//! Source: `__ext4_find_entry`, `ext4_dx_find_entry`, `ext4_empty_dir` of `fs/ext4/namei.c`.

use extant_ondisk::dirent::Search;
use extant_ondisk::{FsBlock, InodeNumber, LogicalBlock, dirent};
use extant_rt::Arc;

use super::negative_lookup::Room;
use super::place_in;
use crate::directory::Directories;
use crate::error::{Error, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;

/// An entry that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(super) buffer: Arc<Buffer>,
    pub(super) offset: usize,
    /// Where an entry before it begins.
    pub(super) before: usize,
    /// How many bytes of the block entries cover.
    pub(super) usable: usize,
    pub(crate) inode: InodeNumber,
}

impl Found {
    /// Whether the entry is in the directory's inode: it was not found in a block.
    pub(crate) fn is_inline(&self) -> bool {
        self.buffer.block == FsBlock(0)
    }
}

/// The result of a look-up of a name.
pub(crate) enum Looked {
    /// It is there.
    Found(Found),
    /// It is not, and there may be room for it, in the first leaf that may hold it or in any block without an index.
    Missing(Option<Room>),
}

impl Looked {
    pub(crate) fn found(&self) -> Option<&Found> {
        match self {
            Self::Found(found) => Some(found),
            Self::Missing(_) => None,
        }
    }
}

impl Directories {
    /// An entry that was found in a directory, where it can be changed: in a block.
    ///
    /// # Errors
    /// As [`BlockMap::move_to_blocks`](crate::mapping::BlockMap::move_to_blocks).
    ///
    /// # Locks
    /// `INODE` of the directory is held exclusively.
    pub(crate) fn changeable_entry(&self, dir: &Arc<Inode>, name: &[u8], found: Found) -> Result<Found> {
        if !found.is_inline() {
            return Ok(found);
        }
        self.move_to_blocks(dir)?;
        self.find_entry(dir, name)?.ok_or(Error::NotFound)
    }

    /// The entry of that name. If it is missing, the room found is noted for the thread that creates it.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    ///
    /// # Locks
    /// `INODE` of the directory must be held.
    pub(crate) fn find_entry(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Option<Found>> {
        if matches!(name, b"." | b"..") {
            let (buffer, usable) = self.first_directory_buffer(dir)?;
            return Ok(match self.look_in(dir, buffer, usable, name)? {
                Looked::Found(found) => Some(found),
                Looked::Missing(_) => None,
            });
        }
        if !self.is_plain(&dir.raw()) {
            return self.find_folded_or_nokey(dir, name);
        }
        match self.look_for(dir, name) {
            Ok(Looked::Found(found)) => Ok(Some(found)),
            Ok(Looked::Missing(room)) => {
                if let Some(room) = room {
                    self.negative_lookups.keep(dir, name, room, None);
                }
                Ok(None)
            }
            Err(Error::Corrupt { .. }) if self.dir_format.is_indexed(&dir.raw()) => {
                self.find_scanning(dir, name)
            }
            Err(error) => Err(error),
        }
    }

    /// Looks where the name belongs, for it and for room.
    pub(super) fn look_for(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Looked> {
        if self.dir_format.is_indexed(&dir.raw()) {
            self.look_indexed(dir, name)
        } else {
            self.look_linear(dir, name)
        }
    }

    pub(super) fn look_in(
        &self,
        dir: &Arc<Inode>,
        buffer: Arc<Buffer>,
        usable: usize,
        name: &[u8],
    ) -> Result<Looked> {
        let mut state = buffer.lock();
        let known = state.known_entry.map(usize::from);
        let search = dirent::search(&state.bytes, usable, name, known);
        let looked = match search.map_err(|e| place_in(dir, &buffer).format(e))? {
            Search::Found { entry, before } => {
                let (offset, inode) = (entry.offset, entry.inode);
                // The next name that is looked for here is mostly there too, and what is known shows no more than that one is not.
                state.known_entry = None;
                Looked::Found(Found { buffer: buffer.clone(), offset, before, usable, inode })
            }
            Search::Room(offset) => {
                state.known_entry = u16::try_from(offset).ok();
                Looked::Missing(Some(Room { buffer: buffer.clone(), offset }))
            }
            Search::Full => Looked::Missing(None),
        };
        drop(state);
        Ok(looked)
    }

    fn look_linear(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Looked> {
        let mut first = None;
        for logical in (0..self.directory_len(dir)?).map(LogicalBlock) {
            let buffer = self.directory_buffer(dir, logical, BufferKind::Directory(dir.owner()))?;
            match self.look_in(dir, buffer, self.dir_format.usable, name)? {
                Looked::Missing(room) => first = first.or(room),
                found => return Ok(found),
            }
        }
        Ok(Looked::Missing(first))
    }

    fn look_indexed(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Looked> {
        let root = self.index_root(dir)?;
        let hash = root.hasher.hash(name).hash;
        let mut path = self.index_path(dir, &root, hash)?;
        let usable = self.dir_format.usable;
        let looked = self.look_in(dir, path.leaf(self, dir)?, usable, name)?;
        while matches!(looked, Looked::Missing(_)) && path.goes_on(self, dir, hash)? {
            path.next(self, dir)?;
            let found = self.look_in(dir, path.leaf(self, dir)?, usable, name)?;
            if matches!(found, Looked::Found(_)) {
                return Ok(found);
            }
        }
        Ok(looked)
    }

    pub(super) fn find_scanning(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Option<Found>> {
        let mut found = None;
        let scanned = self.scan_directory(dir, &mut |logical, bytes, usable| {
            if dirent::find(bytes, usable, name).is_ok_and(|entry| entry.is_some()) {
                found = Some(logical);
            }
            Ok(found.is_none())
        });
        match found {
            Some(logical) => {
                let buffer = self.directory_buffer(dir, logical, BufferKind::Directory(dir.owner()))?;
                Ok(match self.look_in(dir, buffer, self.dir_format.usable, name)? {
                    Looked::Found(found) => Some(found),
                    Looked::Missing(_) => None,
                })
            }
            None => scanned.map(|()| None),
        }
    }

    /// Whether there is nothing in it but `.` and `..`.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    ///
    /// # Locks
    /// `INODE` of the directory must be held.
    pub(crate) fn is_directory_empty(&self, dir: &Arc<Inode>) -> Result<bool> {
        let mut empty = true;
        self.scan_directory(dir, &mut |_, bytes, usable| {
            empty = dirent::live_entries(bytes, usable)
                .all(|entry| entry.is_ok_and(|entry| matches!(entry.name, b"." | b"..")));
            Ok(empty)
        })?;
        Ok(empty)
    }
}
