//! Finding a name.
//!
//! Source: `__ext4_find_entry`, `ext4_dx_find_entry`, `ext4_empty_dir` of `fs/ext4/namei.c`.

use extant_ondisk::{InodeNumber, LogicalBlock, dirent};
use extant_rt::Arc;

use super::place_in;
use crate::buffer::{Buffer, Kind};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::volume::Volume;

/// An entry that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(super) buffer: Arc<Buffer>,
    pub(super) offset: usize,
    /// How many bytes of the block entries cover.
    pub(super) usable: usize,
    pub(crate) inode: InodeNumber,
}

impl Volume {
    /// The entry of that name.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    ///
    /// # Locks
    /// `INODE` of the directory must be held.
    pub(crate) fn find_entry(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        if matches!(name, b"." | b"..") {
            let (buffer, usable) = self.first_directory_buffer(dir)?;
            return self.find_in(dir, buffer, usable, name);
        }
        if !self.is_indexed(dir) {
            return self.find_linear(dir, name);
        }
        match self.find_indexed(dir, name) {
            Err(Error::Corrupt { .. }) => self.find_scanning(dir, name),
            other => other,
        }
    }

    fn find_in(
        &self,
        dir: &Arc<Node>,
        buffer: Arc<Buffer>,
        usable: usize,
        name: &[u8],
    ) -> Result<Option<Found>> {
        let found = buffer
            .read(|bytes| dirent::find(bytes, usable, name).map(|found| found.map(|e| (e.offset, e.inode))))
            .map_err(|e| place_in(dir, &buffer).format(e))?;
        Ok(found.map(|(offset, inode)| Found { buffer, offset, usable, inode }))
    }

    fn find_linear(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        for logical in (0..self.directory_len(dir)?).map(LogicalBlock) {
            let buffer = self.directory_buffer(dir, logical, Kind::Directory(dir.owner()))?;
            if let Some(found) = self.find_in(dir, buffer, self.names.format.usable, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    pub(super) fn find_indexed(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        let root = self.index_root(dir)?;
        let hash = root.hasher.hash(name).hash;
        let mut path = self.index_path(dir, &root, hash)?;
        loop {
            let leaf = path.leaf(self, dir)?;
            if let Some(found) = self.find_in(dir, leaf, self.names.format.usable, name)? {
                return Ok(Some(found));
            }
            if !path.goes_on(self, dir, hash)? {
                return Ok(None);
            }
            path.next(self, dir)?;
        }
    }

    pub(super) fn find_scanning(&self, dir: &Arc<Node>, name: &[u8]) -> Result<Option<Found>> {
        let mut found = None;
        let scanned = self.scan_directory(dir, &mut |logical, bytes, usable| {
            if dirent::find(bytes, usable, name).is_ok_and(|entry| entry.is_some()) {
                found = Some(logical);
            }
            Ok(found.is_none())
        });
        match found {
            Some(logical) => {
                let buffer = self.directory_buffer(dir, logical, Kind::Directory(dir.owner()))?;
                self.find_in(dir, buffer, self.names.format.usable, name)
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
    pub(crate) fn is_directory_empty(&self, dir: &Arc<Node>) -> Result<bool> {
        let mut empty = true;
        self.scan_directory(dir, &mut |_, bytes, usable| {
            empty = dirent::live_entries(bytes, usable)
                .all(|entry| entry.is_ok_and(|entry| matches!(entry.name, b"." | b"..")));
            Ok(empty)
        })?;
        Ok(empty)
    }
}
