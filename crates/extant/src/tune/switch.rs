//! Changing which checksums a file system has, or the seed of them, safe against a crash at any point.
//!
//! A disk says that its checksums count in one place, the superblock. So they are switched off there, changed in place while they do not
//! count, and switched on again. Between the two the disk is a whole one without checksums. Before the first, descriptors say nothing
//! that only counts with checksums (`initialise`). A block of a directory's index has another limit without a checksum: all of those change
//! with the superblock, in one transaction of the journal. Neither transaction changes what is read before the journal is replayed, which
//! is the descriptors and the journal's inode: without checksums they are not verified, and with them they are summed before.
//!
//! A crash in between leaves the disk without checksums, and `s_checksum_type` says which there are to be: that field has no meaning then.
//!
//! Without a journal, or with one that is too short, the transaction is in a log in free blocks ([`staged::exchange`]).
//!
//! Where only the seed changes, a checksum becomes the one of the other seed without a look at what it sums ([`Reseed`]): a wrong one
//! stays wrong.
//!
//! Invariant: every checksum was right before it is replaced by a right one, unless checksums were off.

use extant_block::BlockDevice;
use extant_journal::{FinalBlock, LogMap};
use extant_ondisk::superblock::CHECKSUM_TYPE_CRC32C;
use extant_ondisk::{
    ChecksumKind, Checksums, FsBlock, Geometry, IncompatFeatures, Reseed, RoCompatFeatures,
    SUPERBLOCK_OFFSET, State, Structure, Superblock, dirent, htree,
};
use extant_rt::Arc;

use super::backups;
use super::free_space::FreeSpace;
use super::groups::Groups;
use super::progress::{Progress, TuneProgress};
use super::summed::{Collector, Summed};
use super::{one_transaction, staged};
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::metadata::verify;
use crate::mount::{Options, Volume, find_log};

/// In `s_checksum_type` of a disk without checksums: descriptors are to have theirs again. No value that e2fsprogs or Linux write.
const TYPE_CRC16: u8 = 0x10;

/// Whether a crash left the disk in between.
pub(super) fn is_interrupted(superblock: &Superblock) -> bool {
    Checksums::new(superblock).kind == ChecksumKind::None
        && matches!(superblock.s_checksum_type(), CHECKSUM_TYPE_CRC32C | TYPE_CRC16)
}

/// Asks for what a crash interrupted.
pub(super) fn complete(target: &mut Superblock) {
    if !is_interrupted(target) {
        return;
    }
    let wanted = match target.s_checksum_type() {
        TYPE_CRC16 => {
            target.set_s_checksum_type(0);
            RoCompatFeatures::GDT_CSUM
        }
        _ => RoCompatFeatures::METADATA_CSUM,
    };
    target.set_ro_compat(target.ro_compat() | wanted);
}

/// Refuses disks whose checksums cannot be changed.
pub(super) fn check(superblock: &Superblock, target: &Superblock) -> Result<()> {
    if target.incompat().contains(IncompatFeatures::MMP) {
        return Err(Error::Unsupported(
            "other checksums on a disk with multi-mount protection; `-O ^mmp` takes it away, or metadata_csum_seed makes the UUID change alone",
        ));
    }
    if superblock.state().contains(State::ERROR) {
        return Err(Error::Unsupported(
            "other checksums on a disk on which errors were noted; `e2fsck -f` looks for damage first",
        ));
    }
    Ok(())
}

/// A change of checksums under way.
pub(super) struct Switch {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    from: Superblock,
    to: Superblock,
    log: Option<LogMap>,
    /// Free blocks for a log, if the disk's own does not suffice.
    room: FreeSpace,
    /// The block that goes with such a log.
    copied: FsBlock,
    /// The disk as it was, for reading.
    volume: Arc<Volume>,
}

impl Switch {
    /// Between two superblocks that differ in checksums, of a disk that was unmounted.
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        from: Superblock,
        to: Superblock,
        options: &Options,
    ) -> Result<Self> {
        let options = Options { read_only: true, ..options.clone() };
        let (volume, _) = Volume::mount(device.clone(), &options)?;
        let log = find_log(&volume)?;
        let geometry = volume.geometry.clone();
        let (room, copied) = (FreeSpace::default(), staged::copied_inode(&volume)?);
        Ok(Self { device, geometry, from, to, log, room, copied, volume })
    }

    /// Does it: how many checksums were written.
    ///
    /// # Errors
    /// `Corrupt` for a wrong checksum, before anything changes; `Interrupted`, and the same again completes it; `Io`.
    pub(super) fn run(mut self, report: &mut dyn FnMut(TuneProgress) -> bool) -> Result<u64> {
        let (old, new) = (Checksums::new(&self.from), Checksums::new(&self.to));
        let device = self.device.clone();
        let mut groups = Groups::read(&*device, &self.geometry, &old)?;
        groups.check_bitmaps(&old)?;
        let total_groups = 2 * u64::from(self.geometry.group_count);
        let mut progress =
            Progress { progress: TuneProgress { total_groups, ..TuneProgress::default() }, report };
        let reseed = Reseed::between(&old, &new, self.geometry.inode_size, self.geometry.block_size);
        let has_inodes = old.has_metadata_checksums() || new.has_metadata_checksums();
        let summed = match has_inodes {
            true => Collector::new(&self.volume, &self.from, &old).collect(
                &*device,
                &groups.descriptors,
                reseed.is_none(),
                &mut progress,
            )?,
            false => Summed::default(),
        };
        if reseed.is_none() {
            summed.verify(&*device, &self.geometry, &old)?;
        }
        let changed = self.changed_blocks(&summed, &old, &new)?;
        let most = changed.off.len().max(changed.on.len());
        if most > 0 && self.log_for(most).is_none() {
            // Before the volume's descriptors are others.
            let free = FreeSpace::of(&self.volume)?;
            self.room = free.common(&free, u64::from(u32::MAX));
        }
        let before = groups.descriptors.clone();
        if old.has_group_checksums() {
            groups.initialise(&old)?;
            self.switch_off(changed.off)?;
        }
        if !new.has_group_checksums() {
            backups::write_descriptors(&*device, &self.to, &self.geometry, &groups.descriptors)?;
            backups::write(&*device, &self.to)?;
            return Ok(0);
        }
        let mut rewritten =
            groups.sum_bitmaps(&new)? + groups.descriptors.len() as u64 + changed.on.len() as u64;
        if new.has_metadata_checksums() {
            rewritten +=
                summed.rewrite(&*device, &self.geometry, &before, &new, reseed.as_ref(), &mut progress)?;
        }
        groups.write(&new)?;
        self.switch_on(changed.on)?;
        if old.has_group_checksums() {
            groups.restore(&before);
            groups.write(&new)?;
        }
        backups::write_descriptors(&*device, &self.to, &self.geometry, &groups.descriptors)?;
        backups::write(&*device, &self.to)?;
        Ok(rewritten)
    }

    /// The blocks that change with the superblock.
    fn changed_blocks(&self, summed: &Summed, old: &Checksums, new: &Checksums) -> Result<Changed> {
        let mut changed = Changed::default();
        let (had, has) = (old.has_metadata_checksums(), new.has_metadata_checksums());
        for (block, kind) in &summed.blocks {
            let location = Location::of(kind.structure()).block(*block);
            let is_index = matches!(kind, BufferKind::HtreeNode(_));
            if !is_index && (had || !matches!(kind, BufferKind::Directory(_))) {
                continue;
            }
            let bytes = self.volume.read_block(*block, location)?;
            if !is_index && dirent::has_tail(&bytes) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            verify::verify(old, *kind, *block, &bytes).map_err(|e| location.format(e))?;
            if is_index && had {
                htree::set_has_csum(&mut bytes, false).map_err(|e| location.format(e))?;
                changed.off.push((*block, bytes.as_slice().into()));
            }
            if has {
                let has_room = match is_index {
                    true => htree::set_has_csum(&mut bytes, true),
                    false => dirent::make_tail(&mut bytes),
                };
                if !has_room.map_err(|e| location.format(e))? {
                    return Err(Error::Unsupported(
                        "checksums in a full directory; `e2fsck -fD` makes room in directories",
                    ));
                }
                verify::sum(new, *kind, *block, &mut bytes);
                changed.on.push((*block, bytes.into()));
            }
        }
        Ok(changed)
    }

    /// The disk's own log, if so many blocks and the superblock fit it as one transaction.
    fn log_for(&self, blocks: usize) -> Option<&LogMap> {
        self.log.as_ref().filter(|log| one_transaction::log_blocks(blocks) <= log.len() as usize)
    }

    /// The superblock without checksums, which says which there are to be.
    fn between(&self) -> Superblock {
        let mut between = self.to.clone();
        let to = Checksums::new(&self.to).kind;
        between.set_ro_compat(
            between.ro_compat() - (RoCompatFeatures::METADATA_CSUM | RoCompatFeatures::GDT_CSUM),
        );
        between.set_incompat(between.incompat() - IncompatFeatures::CSUM_SEED);
        between.set_s_checksum_type(match to {
            ChecksumKind::None => 0,
            ChecksumKind::Crc16(_) => TYPE_CRC16,
            ChecksumKind::Crc32c => CHECKSUM_TYPE_CRC32C,
        });
        between
    }

    fn switch_off(&mut self, blocks: Vec<Block>) -> Result<()> {
        let between = self.between();
        self.write_together(&self.from.clone(), &between, blocks)?;
        self.from = between;
        Ok(())
    }

    fn switch_on(&mut self, blocks: Vec<Block>) -> Result<()> {
        self.write_together(&self.from.clone(), &self.to.clone(), blocks)
    }

    /// Changes the superblock and blocks, both or neither, when all that was written before is durable: a commit flushes that too.
    fn write_together(&self, from: &Superblock, to: &Superblock, blocks: Vec<Block>) -> Result<()> {
        if blocks.is_empty() {
            self.flush()?;
            return self.write_superblock(to);
        }
        let mut blocks: Vec<FinalBlock> =
            blocks.into_iter().map(|(block, bytes)| FinalBlock { block, bytes }).collect();
        let Some(log) = self.log_for(blocks.len()) else {
            blocks.push(self.superblock_block(to)?);
            blocks.push(FinalBlock { block: self.copied, bytes: self.read(self.copied)?.into() });
            return staged::exchange(&self.device, (from, to), &self.room, blocks);
        };
        let mut dirty = from.clone();
        dirty.set_incompat(dirty.incompat() | IncompatFeatures::RECOVER);
        self.write_superblock(&dirty)?;
        let mut dirty = to.clone();
        dirty.set_incompat(dirty.incompat() | IncompatFeatures::RECOVER);
        blocks.push(self.superblock_block(&dirty)?);
        let summed = if from.has_metadata_csum() { from } else { to };
        let journal = one_transaction::commit(&self.device, summed, log.clone(), blocks)?;
        journal.close()?;
        self.write_superblock(to)
    }

    /// The block of the superblock, with this one in it.
    fn superblock_block(&self, superblock: &Superblock) -> Result<FinalBlock> {
        let (block, offset) = self.volume.superblock_location();
        let mut superblock = superblock.clone();
        superblock.update_checksum();
        let mut bytes = self.read(block)?;
        let raw = superblock.as_bytes();
        bytes.get_mut(offset..offset + raw.len()).unwrap_or_default().copy_from_slice(raw);
        Ok(FinalBlock { block, bytes: bytes.into() })
    }

    fn read(&self, block: FsBlock) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size as usize];
        let read = self.device.read_at(block.0 * u64::from(self.geometry.block_size), &mut bytes);
        read.map_err(|e| Location::of(Structure::Superblock).block(block).io(e))?;
        Ok(bytes)
    }

    /// Writes the superblock, durably.
    fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        let mut superblock = superblock.clone();
        superblock.update_checksum();
        let written = self.device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes());
        written.map_err(|e| Location::of(Structure::Superblock).io(e))?;
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|e| Location::of(Structure::Superblock).io(e))
    }
}

type Block = (FsBlock, Arc<[u8]>);

/// The blocks that change when checksums are switched off and on.
#[derive(Default)]
struct Changed {
    off: Vec<Block>,
    on: Vec<Block>,
}
