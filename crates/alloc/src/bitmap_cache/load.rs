//! Reading and checking a group's bitmaps (kernel `ext4_read_block_bitmap_nowait`, `ext4_mb_init_cache`).
//!
//! Locks: a group's (`GROUP`), let go while its bitmap is read.

use extant_ondisk::{GroupDescriptor, GroupFlags, GroupNumber, bitmap};

use super::BitmapCache;
use super::evict::{BLOCK_BITMAP_COST, GROUPS_SCANNED_MAX, INODE_BITMAP_COST};
use crate::bitmap64::Bitmap64;
use crate::group::buddy::Buddy;
use crate::group::summary::Summary;
use crate::group::{Bitmap, BlockBits, Group, InodeBits, State};
use crate::linux_model::GroupGuard;
use crate::system_zone::{block_bitmap, uninit_inode_bitmap};
use crate::{Error, Result};

impl BitmapCache {
    /// Reads the block bitmap of a group, with its lock let go meanwhile; it may be missing again.
    pub(crate) fn read_blocks<'a>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
    ) -> Result<GroupGuard<'a>> {
        let load = |descriptor: &GroupDescriptor| self.load_block_bits(number, descriptor);
        let install = |state: &mut State, loaded| self.install_block_bits(number, state, loaded);
        self.read_bitmap(number, group, state, load, install)
    }

    /// Reads the inode bitmap of a group, with its lock let go meanwhile; it may be missing again.
    pub(crate) fn read_inodes<'a>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
    ) -> Result<GroupGuard<'a>> {
        let load = |descriptor: &GroupDescriptor| self.load_inode_bits(number, descriptor);
        let install = |state: &mut State, loaded| self.install_inode_bits(number, state, loaded);
        self.read_bitmap(number, group, state, load, install)
    }

    fn read_bitmap<'a, B>(
        &'a self,
        number: GroupNumber,
        group: &'a Group,
        state: GroupGuard<'a>,
        load: impl FnOnce(&GroupDescriptor) -> B,
        install: impl FnOnce(&mut State, B) -> Result<()>,
    ) -> Result<GroupGuard<'a>> {
        let (descriptor, evictions) = (state.record.descriptor.clone(), state.evictions);
        drop(state);
        self.evict_for_room(GROUPS_SCANNED_MAX);
        let loaded = load(&descriptor);
        let mut state = self.lock(number, group);
        if state.evictions == evictions {
            install(&mut state, loaded)?;
        }
        Ok(state)
    }

    /// Reads and checks a block bitmap (kernel `ext4_validate_block_bitmap`, `ext4_mb_generate_buddy`).
    pub(crate) fn load_block_bits(
        &self,
        number: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<BlockBits> {
        let corrupt = |what| Err(Error::Corrupt { group: number, what });
        let bits = self.geometry.clusters_in_group(number);
        let mut system = Vec::new();
        self.each_system_range(number, |start, len| system.push((start, len)))?;
        let disk = if descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            block_bitmap(&self.geometry, number, system.iter().copied())
        } else {
            self.store
                .load_block_bitmap(number, descriptor)
                .map_err(|source| Error::Store { group: number, source })?
        };
        if disk.len() != self.geometry.block_size as usize {
            return corrupt("block bitmap is not a block");
        }
        let busy = Bitmap64::from_bytes(&disk, bits);
        if !system.iter().all(|(start, len)| busy.is_set(*start, *len)) {
            return corrupt("block bitmap shows file system metadata as free");
        }
        let buddy = Buddy::new(busy, self.order_max);
        if buddy.free() != descriptor.free_blocks_count() {
            return corrupt("block bitmap and free block count differ");
        }
        Ok(BlockBits { disk: disk.into(), buddy, discarded: u32::MAX })
    }

    /// Puts loaded bits in place, unless another thread was quicker; marks the group bad if there are none.
    pub(crate) fn install_block_bits(
        &self,
        number: GroupNumber,
        state: &mut State,
        loaded: Result<BlockBits>,
    ) -> Result<()> {
        if !matches!(state.blocks, Bitmap::Unread) {
            return Ok(());
        }
        let before = self.index.get(number);
        match loaded {
            Ok(bits) => {
                let now = Summary::of(&bits.buddy);
                if before.is_unread() {
                    self.expectation.learn(now);
                }
                self.set_summary(number, now);
                state.blocks = Bitmap::Loaded(Box::new(bits));
                self.loaded.add(number, BLOCK_BITMAP_COST);
                Ok(())
            }
            Err(error) => {
                state.blocks = Bitmap::Bad(error.contradiction());
                self.counters.lose(u64::from(before.free));
                self.set_summary(number, Summary::NONE);
                Err(error)
            }
        }
    }

    pub(crate) fn load_inode_bits(
        &self,
        number: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<InodeBits> {
        let corrupt = |what| Err(Error::Corrupt { group: number, what });
        let disk = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            uninit_inode_bitmap(&self.geometry)
        } else {
            self.store
                .load_inode_bitmap(number, descriptor)
                .map_err(|source| Error::Store { group: number, source })?
        };
        if disk.len() != self.geometry.block_size as usize {
            return corrupt("inode bitmap is not a block");
        }
        if bitmap::count_zeros(&disk, 0..self.geometry.inodes_per_group) != descriptor.free_inodes_count() {
            return corrupt("inode bitmap and free inode count differ");
        }
        Ok(InodeBits { disk: disk.into(), first_free: self.first_usable_bit(number), avoided: None })
    }

    pub(crate) fn install_inode_bits(
        &self,
        number: GroupNumber,
        state: &mut State,
        loaded: Result<InodeBits>,
    ) -> Result<()> {
        if !matches!(state.inodes, Bitmap::Unread) {
            return Ok(());
        }
        match loaded {
            Ok(bits) => {
                state.inodes = Bitmap::Loaded(Box::new(bits));
                self.loaded.add(number, INODE_BITMAP_COST);
            }
            Err(error) => {
                state.inodes = Bitmap::Bad(error.contradiction());
                self.with_inodes.remove(number);
                return Err(error);
            }
        }
        Ok(())
    }
}
