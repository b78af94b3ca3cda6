//! Values in inodes of their own (`ea_inode`).
//!
//! For: reading them, and counting the entries that name such an inode; it is deleted with the last of them. Leaves out:
//! making them, and those of Lustre, which have no hashes.
//!
//! Each entry counts once, also an entry in a block that several inodes share. The blocks of a value count in `i_blocks` of
//! each inode that has the attribute. An inode that is no valid value inode is not changed: an entry that names such an inode
//! cannot be read, but can be removed.
//!
//! Invariants: the content of such an inode never changes; only attribute entries name it. A use of its inode keeps it from
//! being deleted, so that its own locks are not needed to read it.
//!
//! Locks: `XATTR` of the inode whose attributes they are.
//!
//! Source: `ext4_xattr_inode_get`, `ext4_xattr_inode_update_ref`, `ext4_xattr_block_set` of `fs/ext4/xattr.c`. Tests:
//! `../tests/exchange/values.rs`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::xattr::{Xattr, XattrValue, parse_ibody};
use extant_ondisk::{FileType, InodeFlags, InodeNumber, RawInode, Structure};
use extant_rt::Arc;

use super::{Lists, VALUE_BYTES_MAX};
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::Inodes;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};

/// Values that one update of [`Inodes::drop_values`] releases, at most.
const DROPPED_COUNT: usize = 16;

/// How the references to values change.
#[derive(Default)]
pub(super) struct ValuesPlan {
    /// Changes of reference counts that happen in any case.
    changes: Vec<(InodeRef, i64)>,
    /// Inodes that lose one reference each, if no other inode uses the block that was shared.
    left: Vec<InodeRef>,
    /// Blocks that no longer count in the inode.
    blocks: u64,
    pub(super) credits: u32,
}

impl Inodes {
    /// Whether values of its attributes may be in other inodes; true in doubt.
    pub(crate) fn may_have_values(&self, raw: &RawInode) -> bool {
        self.features.has_value_inodes && self.may_have_xattrs(raw)
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `ValueTooLarge` beyond what Linux allows; `Corrupt` if the inode that it names is none of a value, or of another;
    /// `Io`.
    pub(super) fn read_value<'x>(&self, owner: &Inode, xattr: &'x Xattr) -> Result<Cow<'x, [u8]>> {
        let XattrValue::Inode { size, .. } = xattr.value else {
            return Ok(xattr.inline_value().unwrap_or_default().into());
        };
        if size as usize > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLarge);
        }
        let value = self.value_inode(owner.number, xattr)?;
        let mut bytes = vec![0; size as usize];
        self.read_content(&value, 0, &mut bytes)?;
        if self.checksums.value_hash(&bytes) != value.raw().value_hash() {
            return Err(Location::of(Structure::XattrInode).inode(value.number).corrupt("a hash is wrong"));
        }
        Ok(bytes.into())
    }

    /// The inode that holds the value of an attribute of `owner`.
    ///
    /// # Errors
    /// `Corrupt` if it is none; `Io`.
    fn value_inode(&self, owner: InodeNumber, xattr: &Xattr) -> Result<InodeRef> {
        let XattrValue::Inode { inum, size, .. } = xattr.value else {
            return Err(Location::of(Structure::InodeXattrs)
                .inode(owner)
                .corrupt("a value beside its entry"));
        };
        let number = InodeNumber(inum);
        let location = Location::of(Structure::XattrInode).inode(number);
        if !self.features.has_value_inodes {
            return Err(location.corrupt("a value in an inode of its own, which the disk has not"));
        }
        if number == owner || self.special_inodes.contains(number) || number == InodeNumber::ROOT {
            return Err(location.corrupt("named for a value, but reserved or the attribute's own"));
        }
        let inode = match self.inode_in_use(number) {
            Err(Error::Stale) => return Err(location.corrupt("named for a value, but free")),
            other => other?,
        };
        let raw = inode.raw();
        let has_xattrs = raw.file_acl().0 != 0
            || !parse_ibody(raw.xattr_region().unwrap_or_default()).is_ok_and(|xattrs| xattrs.is_empty());
        let reason = match () {
            () if !raw.flags().contains(InodeFlags::EA_INODE) => "named for a value, but not marked so",
            () if raw.file_type() != FileType::Regular => "holds a value, but is no file",
            () if has_xattrs => "holds a value, and has attributes",
            () if !inode.is_named() || raw.value_references() == 0 => "holds a value, but nothing names it",
            () if raw.size() != u64::from(size) => "is not as long as the value",
            () if !xattr.has_value_of_hash(raw.value_hash()) => "holds another value",
            () => return Ok(inode),
        };
        Err(location.corrupt(reason))
    }

    /// Works out the references that a change of attributes makes and takes away. If the block of the old ones `is_shared`,
    /// its references are taken away only if it is found not to be when it is released.
    ///
    /// # Errors
    /// `NoSpace` if an update cannot change so many inodes; `Io`.
    pub(super) fn plan_values(
        &self,
        owner: InodeNumber,
        old: &Lists,
        new: &Lists,
        is_shared: bool,
    ) -> Result<ValuesPlan> {
        let mut plan = ValuesPlan::default();
        if !self.features.has_value_inodes {
            return Ok(plan);
        }
        let mut counted = vec![(&new.ibody, 1), (&old.ibody, -1)];
        let mut left = &[][..];
        if new.block != old.block {
            counted.push((&new.block, 1));
            match is_shared {
                true => left = &old.block,
                false => counted.push((&old.block, -1)),
            }
        }
        let mut changes: BTreeMap<u32, (i64, &Xattr)> = BTreeMap::new();
        for (xattr, by) in counted.into_iter().flat_map(|(list, by)| list.iter().map(move |x| (x, by))) {
            if let XattrValue::Inode { inum, .. } = xattr.value {
                changes.entry(inum).or_insert((0, xattr)).0 += by;
            }
        }
        for (change, xattr) in changes.into_values().filter(|(change, _)| *change != 0) {
            plan.changes.extend(self.proper_value(owner, xattr)?.map(|value| (value, change)));
        }
        for xattr in left.iter().filter(|xattr| xattr.inline_value().is_none()) {
            plan.left.extend(self.proper_value(owner, xattr)?);
        }
        plan.blocks = self.value_blocks(old).saturating_sub(self.value_blocks(new));
        let touched = plan.changes.iter().map(|(value, _)| value).chain(&plan.left);
        let touched: BTreeSet<InodeNumber> = touched.map(|value| value.number).collect();
        // Values that are in the new lists keep a reference.
        let kept: BTreeSet<u32> = new.values().map(|(inum, _)| inum).collect();
        let gone = touched.iter().filter(|number| !kept.contains(&number.0)).count();
        plan.credits = touched.len() as u32 + gone as u32 * ORPHAN_CREDITS;
        if plan.credits > self.writable()?.max_credits() / 2 { Err(Error::NoSpace) } else { Ok(plan) }
    }

    /// [`Inodes::value_inode`], None if it is no proper one.
    fn proper_value(&self, owner: InodeNumber, xattr: &Xattr) -> Result<Option<InodeRef>> {
        match self.value_inode(owner, xattr) {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Blocks of values, as they count in the inode whose attributes they are.
    fn value_blocks(&self, lists: &Lists) -> u64 {
        lists.values().map(|(_, size)| self.blocks_of(u64::from(size))).sum()
    }

    /// Releases the values of an inode that is being deleted, some at a time; the inode becomes an orphan first.
    ///
    /// # Errors
    /// `Io`; the journal's. The values that are left are released when the disk is mounted next.
    ///
    /// # Locks
    /// `INODE` is held exclusively, and no other thread uses the inode.
    pub(crate) fn drop_values(&self, inode: &Arc<Inode>) -> Result<()> {
        while self.may_have_values(&inode.raw()) {
            let old = match self.read_xattrs(inode) {
                // The damage hides which values there were.
                Err(Error::Corrupt { .. }) => return Ok(()),
                other => other?,
            };
            if old.values().next().is_none() {
                return Ok(());
            }
            let mut new = old.clone();
            let mut dropped = 0;
            let mut is_kept = |xattr: &Xattr| {
                let drops = xattr.inline_value().is_none() && dropped < DROPPED_COUNT;
                dropped += usize::from(drops);
                !drops
            };
            new.ibody.retain(&mut is_kept);
            new.block.retain(&mut is_kept);
            if let Some(buffer) = self.xattr_buffer(inode, &inode.raw())?
                && self.references(&buffer)? > 1
            {
                // All of it stays with the others that use it.
                new.block.clear();
            }
            let plan = match self.plan_fewer(inode, old, new) {
                Err(Error::NoSpace | Error::Corrupt { .. }) => return Ok(()),
                other => other?,
            };
            let mut update = self.begin(plan.need.and(Credits::new(1 + ORPHAN_CREDITS, 0)))?;
            update.add_orphan(inode);
            update.apply_xattrs(inode, &plan)?;
            update.finish();
        }
        Ok(())
    }
}

impl Lists {
    /// The inodes that hold values, and the values' sizes in bytes.
    fn values(&self) -> impl Iterator<Item = (u32, u32)> {
        self.all().filter_map(|xattr| match xattr.value {
            XattrValue::Inode { inum, size, .. } => Some((inum, size)),
            XattrValue::Inline(_) => None,
        })
    }
}

impl MetadataUpdate<'_> {
    /// Changes the references to values as planned; `is_last` says that no other inode used the block that was released.
    pub(super) fn apply_values(&mut self, inode: &Arc<Inode>, plan: &ValuesPlan, is_last: bool) {
        // More before fewer: what moves from a shared block into one's own must not be without a reference in between.
        let (more, fewer): (Vec<_>, Vec<_>) = plan.changes.iter().partition(|(_, change)| *change > 0);
        for (value, change) in more.into_iter().chain(fewer) {
            self.count_references(value, *change);
        }
        if is_last {
            plan.left.iter().for_each(|value| self.count_references(value, -1));
        }
        if plan.blocks > 0 {
            let (block_size, huge) = (self.sbi.geometry.block_size, self.sbi.geometry.has_huge_file);
            let sectors = plan.blocks * u64::from(block_size / 512);
            self.modify_inode(inode, InodeDirty::Attributes, |raw| {
                let left = raw.blocks_512(block_size).saturating_sub(sectors);
                // Fewer than before.
                let _ = raw.set_blocks_512(left, block_size, huge);
            });
        }
    }

    /// Counts references of the inode of a value; with the last it becomes an orphan.
    fn count_references(&mut self, value: &InodeRef, change: i64) {
        let is_last = self.modify_inode(value, InodeDirty::Attributes, |raw| {
            let references = raw.value_references().saturating_add_signed(change);
            raw.set_value_references(references);
            if references == 0 {
                raw.set_links_count(0);
            }
            references == 0
        });
        if is_last {
            self.add_orphan(value);
        }
    }
}
