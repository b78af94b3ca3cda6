//! A new inode: its fields, attributes and first block.
//!
//! Source: `__ext4_new_inode` of `fs/ext4/ialloc.c`, `ext4_init_acl` of `fs/ext4/acl.c`.

use extant_alloc::{InodeKind, NewInode, Parent};
use extant_ondisk::extent::{ExtentNode, ROOT_CAPACITY};
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::mode::{S_IALLUGO, S_ISGID};
use extant_ondisk::{FileType, InodeFlags, InodeNumber, RawInode, Structure, crc32c};
use extant_rt::Arc;

use super::{New, NewKind};
use crate::directory::Directories;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::incore::usage::Usage;
use crate::inode::attributes::Times;
use crate::inode::xattr::XattrPlan;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::quota::ids_of;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::namespace::Namespace;

/// An inode to be made.
pub(super) struct InodePlan<'n, 'v> {
    kind: NewKind<'n>,
    /// All but the number, the generation and the times.
    raw: RawInode,
    times: Option<Times>,
    xattrs: XattrPlan,
    /// What is taken of the limits of its ids, for the update to hold.
    pub(super) quota: QuotaReservation<'v>,
    pub(super) need: Credits,
}

impl Namespace {
    /// Works out an inode to be made in `dir`, whose fields are those of `parent`.
    ///
    /// # Errors
    /// `InvalidArgument` and `NameTooLong` for a link's target, `InvalidArgument` for a device number; `QuotaExceeded`; those of the
    /// attributes.
    pub(super) fn plan_inode<'n, 'v>(
        &'v self,
        dir: &Arc<Inode>,
        parent: &RawInode,
        new: &New<'n>,
    ) -> Result<InodePlan<'n, 'v>> {
        let location = Location::of(Structure::Inode);
        let file_type = new.kind.file_type();
        let mut raw = RawInode::new(self.features.inode_size, self.features.extra_isize)
            .map_err(|e| location.format(e))?;
        let (mut gid, mut mode) = (new.gid, new.mode & S_IALLUGO);
        if parent.mode() & S_ISGID != 0 {
            gid = parent.gid();
            if file_type == FileType::Directory {
                mode |= S_ISGID;
            }
        }
        let acls = self.inherited_acls(dir, parent, file_type, mode, new.xattrs)?;
        raw.set_mode(file_type.mode_bits() | acls.mode);
        raw.set_uid(new.uid);
        raw.set_gid(gid);
        raw.set_links_count(if file_type == FileType::Directory { 2 } else { 1 });
        raw.set_flags(inherited_flags(parent.flags(), file_type));
        if parent.flags().contains(InodeFlags::PROJINHERIT) {
            // Without room for a project the parent has none either.
            let _ = raw.set_project_id(parent.project_id());
        }
        self.plan_content(&mut raw, new.kind)?;
        let xattrs = self.plan_new_xattrs(&raw, &acls.xattrs)?;
        let blocks = u32::from(needs_block(new.kind));
        self.check_nameable(&raw, blocks)?;
        // Its table block; the inode bitmap and its descriptor; the orphan list if all else fails.
        let own = Credits::new(3 + ORPHAN_CREDITS, 0);
        let need = own.and(self.grow_need(&raw, blocks)).and(xattrs.need);
        self.add_dquots(ids_of(&raw))?;
        let space = self.bytes_of(blocks + xattrs.new_blocks()) as i64;
        let quota = self.reserve_quota(ids_of(&raw).map(Some), Usage { space, inodes: 1 })?;
        Ok(InodePlan { kind: new.kind, raw, times: new.times, xattrs, quota, need })
    }

    fn plan_content(&self, raw: &mut RawInode, kind: NewKind<'_>) -> Result<()> {
        let mapped = match kind {
            NewKind::File | NewKind::Directory => true,
            NewKind::Symlink(target) => {
                if target.is_empty() || target.contains(&0) {
                    return Err(Error::InvalidArgument("a symbolic link's target is empty or contains NUL"));
                }
                if target.len() >= self.dir_format.block_bytes.min(4096) {
                    return Err(Error::NameTooLong);
                }
                if !needs_block(kind) {
                    raw.i_block_mut()[..target.len()].copy_from_slice(target);
                    raw.set_size(target.len() as u64);
                }
                needs_block(kind)
            }
            NewKind::CharDevice { major, minor } | NewKind::BlockDevice { major, minor } => {
                raw.set_device(major, minor)
                    .map_err(|_| Error::InvalidArgument("the device number is too large"))?;
                false
            }
            NewKind::Fifo | NewKind::Socket => false,
        };
        if mapped && self.features.has_extents {
            raw.set_flags(raw.flags() | InodeFlags::EXTENTS);
            ExtentNode::empty_leaf(ROOT_CAPACITY)
                .write(raw.i_block_mut())
                .map_err(|e| Location::of(Structure::ExtentNode).format(e))?;
        }
        Ok(())
    }
}

impl MetadataUpdate<'_> {
    /// Gives an inode its number and puts it into the table, without a name and without blocks.
    ///
    /// # Errors
    /// `NoInodes`, and nothing was changed; `Corrupt` bitmaps.
    pub(super) fn make_inode(&mut self, dir: &Arc<Inode>, plan: &InodePlan<'_, '_>) -> Result<InodeRef> {
        let sbi = self.sbi;
        let is_top = || dir.number == InodeNumber::ROOT || dir.flags().contains(InodeFlags::TOPDIR);
        let kind = match plan.kind {
            NewKind::Directory if is_top() => InodeKind::TopDirectory,
            NewKind::Directory => InodeKind::Directory,
            _ => InodeKind::Other,
        };
        let parent = Parent {
            number: dir.number,
            group: sbi.group_of_inode(dir.number),
            last: Some(&dir.last_group),
            is_shared: dir.leaf_map().is_some(),
        };
        let NewInode { number, turn, .. } = self.allocate_inode(parent, kind)?;
        let home = sbi.inode_table_location(number)?;
        let mut raw = plan.raw.clone();
        raw.set_generation(self.generation(number, turn));
        let now = self.now();
        let times = plan.times.unwrap_or(Times { atime: now, mtime: now });
        raw.set_atime(times.atime);
        raw.set_mtime(times.mtime);
        raw.set_ctime(now);
        raw.set_crtime(now);
        let mut inode = Inode::new(number, home, raw);
        inode.directory = dir.number;
        let inode = sbi.inodes.replace(inode);
        self.add_inode(&inode);
        Ok(inode)
    }

    /// Writes the first block and the extended attributes of a new inode.
    ///
    /// # Errors
    /// `Corrupt` bitmaps.
    pub(super) fn fill_inode(
        &mut self,
        dirs: &Directories,
        inode: &Arc<Inode>,
        parent: InodeNumber,
        plan: &InodePlan<'_, '_>,
    ) -> Result<()> {
        match plan.kind {
            NewKind::Directory => self.make_first_block(dirs, inode, parent)?,
            NewKind::Symlink(target) if needs_block(plan.kind) => {
                let (_, buffer) = self.grow_directory(dirs, inode, BufferKind::Symlink, &mut None)?;
                self.modify_buffer(&buffer, |bytes| bytes[..target.len()].copy_from_slice(target));
                self.modify_inode(inode, InodeDirty::Mapping, |raw| raw.set_size(target.len() as u64));
            }
            _ => {}
        }
        self.apply_xattrs(inode, &plan.xattrs)
    }

    /// Differs from that of the number's earlier uses, by the time and the group's `turn`. The same work on the same
    /// disk at the same time gives the same.
    fn generation(&self, number: InodeNumber, turn: u32) -> u32 {
        let now = self.now();
        let seconds = (now.seconds as u64).to_le_bytes();
        let words = [number.0, now.nanoseconds, turn].map(u32::to_le_bytes);
        words.iter().fold(crc32c(self.sbi.checksums.seed, &seconds), |sum, word| crc32c(sum, word))
    }
}

/// Whether it has a block from the beginning.
fn needs_block(kind: NewKind<'_>) -> bool {
    match kind {
        NewKind::Directory => true,
        // A short target lies in the inode, where the kernel leaves room for a final zero.
        NewKind::Symlink(target) => target.len() >= I_BLOCK_SIZE,
        _ => false,
    }
}

/// `ext4_mask_flags`.
fn inherited_flags(parent: InodeFlags, file_type: FileType) -> InodeFlags {
    let inherited = parent & InodeFlags::INHERITED;
    match file_type {
        FileType::Directory => inherited,
        FileType::Regular => {
            inherited
                - (InodeFlags::DIRSYNC | InodeFlags::TOPDIR | InodeFlags::CASEFOLD | InodeFlags::PROJINHERIT)
        }
        _ => inherited & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}
