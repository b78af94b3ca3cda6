//! Planning where changed attributes are stored, and storing them.
//!
//! Source: `ext4_xattr_set_handle`, `ext4_xattr_block_set`, `ext4_xattr_release_block`, `ext4_expand_extra_isize` of
//! the kernel.

use extant_ondisk::xattr::{
    NoRoom, Xattr, block_bytes, ibody_bytes, refcount, set_refcount, write_block, write_ibody,
};
use extant_ondisk::{FsBlock, InodeNumber, RawInode, Structure};
use extant_rt::Arc;

use super::values::ValuesPlan;
use super::{Key, Lists};
use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::inode::Inodes;
use crate::metadata::update::{Credits, Feature, InodeDirty, MetadataUpdate};

/// The plan of an inode's attributes after a change.
pub(crate) struct XattrPlan {
    /// None: as they are.
    ibody: Option<Vec<Xattr>>,
    block: BlockPlan,
    values: ValuesPlan,
    /// `i_extra_isize` afterwards, at least.
    extra_isize: u16,
    /// The credits of [`MetadataUpdate::apply_xattrs`], without the inode's own block.
    pub(crate) need: Credits,
}

impl XattrPlan {
    /// Blocks that the inode has more of afterwards.
    pub(crate) fn new_blocks(&self) -> u32 {
        u32::from(matches!(self.block, BlockPlan::Replace(None, _)))
    }
}

enum BlockPlan {
    Keep,
    /// Written over.
    Rewrite(Arc<Buffer>, Vec<Xattr>),
    /// Into a new block; the old one loses a reference.
    Replace(Option<Arc<Buffer>>, Vec<Xattr>),
    /// No block any more.
    Drop(Arc<Buffer>),
}

/// Credits for releasing a block: itself, its bitmap, its descriptor.
const RELEASE_CREDITS: u32 = 3;
/// Credits for a new block: itself, its bitmap, its descriptor.
const ALLOCATE_CREDITS: u32 = 3;

impl Inodes {
    /// Works out where one attribute goes, or what its removal leaves.
    ///
    /// # Errors
    /// `NoSpace` if there is no room; `FileTooLarge` if the inode cannot count a block more; `Corrupt`, `Io`.
    pub(super) fn plan_xattr(
        &self,
        inode: &Arc<Inode>,
        old: Lists,
        key: Key<'_>,
        value: Option<&[u8]>,
    ) -> Result<XattrPlan> {
        let raw = inode.raw();
        let extra_isize = self.extra_isize_after(&raw, &old);
        let mut new = old.clone();
        new.ibody.retain(|xattr| !key.is_of(xattr));
        new.block.retain(|xattr| !key.is_of(xattr));
        if let Some(value) = value {
            self.add(inode_room(&raw, extra_isize), &mut new, Xattr::new(key.name_index, key.name, value))?;
        }
        let buffer = self.xattr_buffer(inode, &raw)?;
        let plan = self.plan_lists((inode.number, extra_isize), old, new, buffer)?;
        self.check_countable(&raw, plan.new_blocks())?;
        Ok(plan)
    }

    /// Works out what is left of the attributes of an inode that is being deleted.
    ///
    /// # Errors
    /// `NoSpace` if that changes too many inodes of values at once; `Corrupt`, `Io`.
    pub(super) fn plan_fewer(&self, inode: &Arc<Inode>, old: Lists, new: Lists) -> Result<XattrPlan> {
        let raw = inode.raw();
        let buffer = self.xattr_buffer(inode, &raw)?;
        self.plan_lists((inode.number, raw.extra_isize()), old, new, buffer)
    }

    /// Works out the attributes of an inode to be made.
    ///
    /// # Errors
    /// `NoSpace` if there is no room.
    pub(crate) fn plan_new_xattrs(&self, raw: &RawInode, xattrs: &[Xattr]) -> Result<XattrPlan> {
        let extra_isize = raw.extra_isize();
        let mut new = Lists::default();
        for xattr in xattrs {
            self.add(inode_room(raw, extra_isize), &mut new, xattr.clone())?;
        }
        self.plan_lists((InodeNumber::default(), extra_isize), Lists::default(), new, None)
    }

    fn add(&self, inode_room: usize, lists: &mut Lists, xattr: Xattr) -> Result<()> {
        lists.ibody.push(xattr);
        if ibody_bytes(&lists.ibody) <= inode_room & !3 {
            return Ok(());
        }
        lists.block.extend(lists.ibody.pop());
        let room = self.dir_format.block_bytes;
        if block_bytes(&lists.block) <= room & !3 { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// `i_extra_isize` after the next change: without attributes in the way it becomes that of new inodes.
    fn extra_isize_after(&self, raw: &RawInode, old: &Lists) -> u16 {
        let has = raw.extra_isize();
        if old.ibody.is_empty() { has.max(self.features.extra_isize) } else { has }
    }

    fn plan_lists(
        &self,
        (owner, extra_isize): (InodeNumber, u16),
        old: Lists,
        new: Lists,
        buffer: Option<Arc<Buffer>>,
    ) -> Result<XattrPlan> {
        let is_shared = match &buffer {
            Some(buffer) => self.references(buffer)? > 1,
            None => false,
        };
        let values = self.plan_values(owner, &old, &new, is_shared)?;
        let (mut credits, mut blocks) = (values.credits, 0);
        let block = match buffer {
            Some(_) if new.block == old.block => BlockPlan::Keep,
            None if new.block.is_empty() => BlockPlan::Keep,
            Some(buffer) if new.block.is_empty() => {
                self.prepare_free_block(buffer.block)?;
                credits += RELEASE_CREDITS;
                BlockPlan::Drop(buffer)
            }
            Some(buffer) if !is_shared => {
                credits += 1;
                BlockPlan::Rewrite(buffer, new.block)
            }
            buffer => {
                buffer.iter().try_for_each(|buffer| self.prepare_free_block(buffer.block))?;
                credits += RELEASE_CREDITS + ALLOCATE_CREDITS;
                blocks += 1;
                BlockPlan::Replace(buffer, new.block)
            }
        };
        let is_same = new.ibody == old.ibody;
        Ok(XattrPlan {
            extra_isize,
            ibody: (!is_same).then_some(new.ibody),
            block,
            values,
            need: Credits::new(credits, blocks),
        })
    }

    pub(super) fn references(&self, buffer: &Buffer) -> Result<u32> {
        buffer.read(refcount).map_err(|e| block_place(buffer).format(e))
    }
}

impl Inodes {
    /// Reads what [`MetadataUpdate::free_xattr_block`] needs.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub(crate) fn prepare_free_xattr_block(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(buffer) = self.xattr_buffer(inode, &inode.raw())? else { return Ok(()) };
        self.references(&buffer)?;
        self.prepare_free_block(buffer.block)
    }
}

impl MetadataUpdate<'_> {
    /// Changes the attributes as planned under the same lock.
    ///
    /// # Errors
    /// `Corrupt` bitmaps.
    pub(crate) fn apply_xattrs(&mut self, inode: &Arc<Inode>, plan: &XattrPlan) -> Result<()> {
        let is_last = self.apply_block(inode, &plan.block)?;
        self.apply_values(inode, &plan.values, is_last);
        let Some(xattrs) = &plan.ibody else { return Ok(()) };
        self.mark_ineligible();
        self.modify_inode(inode, InodeDirty::Attributes, |raw| {
            write_into_inode(raw, plan.extra_isize, xattrs)
        })
        .map_err(|NoRoom| Error::NoSpace)?;
        self.use_feature(Feature::ExtAttr);
        Ok(())
    }

    /// Whether a block was released that no other inode uses.
    fn apply_block(&mut self, inode: &Arc<Inode>, plan: &BlockPlan) -> Result<bool> {
        let mut is_last = false;
        match plan {
            BlockPlan::Keep => {}
            BlockPlan::Rewrite(buffer, xattrs) => {
                self.modify_buffer(buffer, |bytes| write_block(bytes, xattrs, 1))
                    .map_err(|NoRoom| Error::NoSpace)?;
            }
            BlockPlan::Replace(old, xattrs) => {
                let goal = self.sbi.goal_of_inode(inode.number);
                let buffer = self.allocate_metadata(goal, BufferKind::Xattr)?;
                self.modify_buffer(&buffer, |bytes| write_block(bytes, xattrs, 1))
                    .map_err(|NoRoom| Error::NoSpace)?;
                match old {
                    Some(old) => is_last = self.release_block(old)?,
                    None => self.count_clusters(inode, 1)?,
                }
                self.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_file_acl(buffer.block));
                self.use_feature(Feature::ExtAttr);
            }
            BlockPlan::Drop(buffer) => {
                is_last = self.release_block(buffer)?;
                self.count_clusters(inode, -1)?;
                self.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_file_acl(FsBlock(0)));
            }
        }
        Ok(is_last)
    }

    /// Releases the attribute block of an inode that is being deleted, after [`Inodes::prepare_free_xattr_block`].
    ///
    /// # Errors
    /// `Corrupt` bitmaps.
    pub(crate) fn free_xattr_block(
        &mut self,
        inodes: &Inodes,
        inode: &Arc<Inode>,
        raw: &RawInode,
    ) -> Result<()> {
        let Some(buffer) = inodes.xattr_buffer(inode, raw)? else { return Ok(()) };
        self.release_block(&buffer)?;
        self.count_clusters(inode, -1)?;
        self.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_file_acl(FsBlock(0)));
        Ok(())
    }

    /// Takes a reference of a block away, and frees it with the last one; whether it was that.
    fn release_block(&mut self, buffer: &Arc<Buffer>) -> Result<bool> {
        // In one step, for another inode may release the same block now.
        let is_last = self
            .modify_buffer(buffer, |bytes| {
                let references = refcount(bytes)?;
                if references > 1 {
                    set_refcount(bytes, references - 1)?;
                }
                Ok(references <= 1)
            })
            .map_err(|e| block_place(buffer).format(e))?;
        if is_last {
            self.free_metadata(buffer.block)?;
        }
        Ok(is_last)
    }
}

/// Bytes of an inode behind its fields.
fn inode_room(raw: &RawInode, extra_isize: u16) -> usize {
    if extra_isize == 0 { 0 } else { raw.as_bytes().len().saturating_sub(128 + usize::from(extra_isize)) }
}

fn write_into_inode(raw: &mut RawInode, extra_isize: u16, xattrs: &[Xattr]) -> Result<(), NoRoom> {
    if raw.extra_isize() < extra_isize {
        if let Some(region) = raw.xattr_region_mut() {
            region.fill(0);
        }
        raw.set_extra_isize(extra_isize).map_err(|_| NoRoom)?;
    }
    match raw.xattr_region_mut() {
        Some(region) => write_ibody(region, xattrs),
        None if xattrs.is_empty() => Ok(()),
        None => Err(NoRoom),
    }
}

fn block_place(buffer: &Buffer) -> Location {
    Location::of(Structure::XattrBlock).block(buffer.block)
}
