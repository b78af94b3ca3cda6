//! A change of a disk that takes effect at once, whatever it is: of the journal itself, of what a mount reads before the journal, or on a
//! disk without one.
//!
//! The change is made on an overlay in memory, mounted without its journal, in as many steps as it takes. Then
//! ([`Staged::commit`], [`exchange`]):
//!
//! 1. Blocks that become used are written: they are free, so nothing refers to them.
//! 2. The blocks in use that change are written as one transaction into a log in other free blocks, durably. Nothing names it yet.
//! 3. One write of the superblock names the log ([`staged_log`]). From here on the change is replayed.
//! 4. The log is replayed: its blocks come to their places, and last the superblock, which does not name it any more.
//!
//! So a crash leaves the disk as it was, or with a log to replay, or as it is to be.
//!
//! Memory: the blocks that change. Leaves out: whether anybody else writes to the disk meanwhile.
//!
//! Tests: `tests/tune/staged.rs` crashes after every request, and leaves out flushes and rules.

use extant_block::{BlockDevice, Overlay};
use extant_journal::{FinalBlock, LogMap};
use extant_ondisk::{
    CompatFeatures, FsBlock, IncompatFeatures, InodeNumber, RawInode, RoCompatFeatures, SUPERBLOCK_OFFSET,
    Structure, Superblock, indirect,
};
use extant_rt::{Arc, is_interrupted};

use super::free_space::FreeSpace;
use super::one_transaction;
use crate::error::{Error, Location, Result};
use crate::mkfs;
use crate::mount::staged_log::{BACKUP_BLOCKS, STAGED_LOG};
use crate::mount::{Options, Volume, read_superblock};

/// `JBD2_MIN_JOURNAL_BLOCKS`.
pub(super) const LOG_BLOCKS_MIN: u64 = 1024;
/// Bytes that are zeroed between two looks at whether to go on.
const ZEROED_BYTES: u64 = 64 << 20;
/// Features without which the overlay is mounted. Its log would take changes for itself; nothing here is anybody's usage; no other host sees
/// the overlay.
const NOT_MOUNTED: (CompatFeatures, IncompatFeatures, RoCompatFeatures) =
    (CompatFeatures::HAS_JOURNAL, IncompatFeatures::MMP, RoCompatFeatures::QUOTA);

/// A change under way.
pub(super) struct Staged {
    device: Arc<dyn BlockDevice>,
    overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
    options: Options,
    from: Superblock,
    /// Runs of blocks to be zeroed, which are free on the disk as it is.
    zeroed: Vec<(u64, u64)>,
}

impl Staged {
    /// Of a disk that was unmounted.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn new(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<Self> {
        let from = read_superblock(&**device)?;
        let overlay = Arc::new(Overlay::new(device.clone(), from.block_size()));
        let options = Options { read_only: false, ..options.clone() };
        Ok(Self { device: device.clone(), overlay, options, from, zeroed: Vec::new() })
    }

    /// The disk as it will be.
    pub(super) fn overlay(&self) -> &dyn BlockDevice {
        &*self.overlay
    }

    /// The superblock as it will be.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn superblock(&self) -> Result<Superblock> {
        read_superblock(&*self.overlay)
    }

    /// Changes the superblock.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn edit_superblock(&self, edit: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut superblock = self.superblock()?;
        edit(&mut superblock);
        superblock.update_checksum();
        let written = self.overlay.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes());
        written.map_err(|e| Location::of(Structure::Superblock).io(e))
    }

    /// The disk as it will be, mounted for reading.
    ///
    /// # Errors
    /// Those of mounting.
    pub(super) fn reading(&self) -> Result<Arc<Volume>> {
        let options = Options { read_only: true, ..self.options.clone() };
        Ok(Volume::mount(self.overlay.clone(), &options)?.0)
    }

    /// Changes the disk by the layers of a file system that is mounted without its journal.
    ///
    /// # Errors
    /// Those of `change`, of mounting and of unmounting. Then nothing of the disk changed.
    pub(super) fn mounted<R>(&self, change: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
        let before = self.superblock()?;
        let (compat, incompat, ro_compat) = NOT_MOUNTED;
        self.edit_superblock(|superblock| {
            superblock.set_compat(before.compat() - compat);
            superblock.set_incompat(before.incompat() - incompat);
            superblock.set_ro_compat(before.ro_compat() - ro_compat);
        })?;
        let (volume, _) = Volume::mount(self.overlay.clone(), &self.options)?;
        let changed = change(&volume)?;
        volume.unmount()?;
        self.edit_superblock(|superblock| {
            superblock.set_compat(superblock.compat() | before.compat() & compat);
            superblock.set_incompat(superblock.incompat() | before.incompat() & incompat);
            superblock.set_ro_compat(superblock.ro_compat() | before.ro_compat() & ro_compat);
            superblock.set_s_mnt_count(before.s_mnt_count());
            superblock.set_mount_time(before.mount_time());
        })?;
        Ok(changed)
    }

    /// Has a run of blocks zeroed that is free on the disk as it is.
    pub(super) fn zero(&mut self, start: u64, len: u64) {
        self.zeroed.push((start, len));
    }

    /// Makes the disk what the overlay is; durable when it returns.
    ///
    /// # Errors
    /// `NoSpace` without room for the log, `Interrupted`, and then nothing changed; `Io`; `Corrupt`; the journal's. The disk is then as it
    /// was, or has a log to replay.
    pub(super) fn commit(mut self) -> Result<()> {
        if self.overlay.written().is_empty() {
            return Ok(());
        }
        let old = {
            let options = Options { read_only: true, ..self.options.clone() };
            FreeSpace::of(&Volume::mount(self.device.clone(), &options)?.0)?
        };
        let new = self.reading()?;
        let free = FreeSpace::of(&new)?;
        let (fresh, mut changed) = self.changed_blocks(&old, &free)?;
        let block = copied_inode(&new)?;
        changed.push(FinalBlock { block, bytes: self.read(block)? });
        drop(new);
        self.write_zeroes()?;
        fresh.iter().try_for_each(|it| write(&self.device, self.from.block_size(), it.block, &it.bytes))?;
        let superblock = self.superblock()?;
        // The copy has numbers of 32 bits.
        let room = old.common(&free, u64::from(u32::MAX));
        exchange(&self.device, (&self.from, &superblock), &room, changed)
    }

    /// The blocks that differ: those that become used, and those that are in use.
    fn changed_blocks(&self, old: &FreeSpace, new: &FreeSpace) -> Result<(Vec<FinalBlock>, Vec<FinalBlock>)> {
        let (mut fresh, mut changed) = (Vec::new(), Vec::new());
        let mut before = vec![0; self.from.block_size() as usize];
        for (number, bytes) in self.overlay.written() {
            let block = FsBlock(number);
            if old.contains(number) {
                if !new.contains(number) {
                    fresh.push(FinalBlock { block, bytes });
                }
                continue;
            }
            let read = self.device.read_at(self.offset(block), &mut before);
            read.map_err(|e| Location::of(Structure::Journal).block(block).io(e))?;
            if before[..] != bytes[..] {
                changed.push(FinalBlock { block, bytes });
            }
        }
        Ok((fresh, changed))
    }

    fn write_zeroes(&mut self) -> Result<()> {
        let block_size = u64::from(self.from.block_size());
        for (start, len) in std::mem::take(&mut self.zeroed) {
            let (mut at, end) = (start * block_size, (start + len) * block_size);
            while at < end {
                if is_interrupted() {
                    return Err(Error::Interrupted);
                }
                let bytes = ZEROED_BYTES.min(end - at);
                let zeroed = self.device.write_zeroes(at, bytes);
                zeroed.map_err(|e| Location::of(Structure::Journal).block(FsBlock(start)).io(e))?;
                at += bytes;
            }
        }
        Ok(())
    }

    fn offset(&self, block: FsBlock) -> u64 {
        block.0 * u64::from(self.from.block_size())
    }

    fn read(&self, block: FsBlock) -> Result<Arc<[u8]>> {
        let mut bytes = vec![0; self.from.block_size() as usize];
        let read = self.overlay.read_at(self.offset(block), &mut bytes);
        read.map_err(|e| Location::of(Structure::Inode).block(block).io(e))?;
        Ok(bytes.into())
    }

    /// Writes a block of the disk as it will be.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write_block(&self, block: FsBlock, bytes: &[u8]) -> Result<()> {
        let written = self.overlay.write_at(self.offset(block), bytes);
        written.map_err(|e| Location::of(Structure::Journal).block(block).io(e))
    }

    /// Writes an inode of the disk as it will be, with its checksum.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if there is no such number.
    pub(super) fn write_inode(&self, volume: &Volume, number: InodeNumber, raw: &mut RawInode) -> Result<()> {
        volume.checksums.update_inode(number, raw);
        let (block, offset) = volume.inode_table_location(number)?;
        let written = self.overlay.write_at(self.offset(block) + offset as u64, raw.as_bytes());
        written.map_err(|e| Location::of(Structure::Inode).inode(number).io(e))
    }
}

/// The block with the inode of which who replays the log may have made one of the copy that names it: the transaction is to have that block.
///
/// # Errors
/// `Corrupt`.
pub(super) fn copied_inode(volume: &Volume) -> Result<FsBlock> {
    Ok(volume.inode_table_location(STAGED_LOG)?.0)
}

/// Replaces blocks, the superblock's among them, all or none: durable when it returns. The superblock is `from` and becomes `to`; the log
/// goes into `room`, which is free before and after.
///
/// # Errors
/// `NoSpace`, and nothing changed; `Io`; `Corrupt`; the journal's. The disk is then as it was, or has a log to replay.
pub(super) fn exchange(
    device: &Arc<dyn BlockDevice>,
    (from, to): (&Superblock, &Superblock),
    room: &FreeSpace,
    blocks: Vec<FinalBlock>,
) -> Result<()> {
    let block_size = from.block_size();
    let len = (one_transaction::log_blocks(blocks.len()) as u64).max(LOG_BLOCKS_MIN);
    let (log, tables) = Log::place(room, len, block_size)?;
    // Blocks of a former log would be taken for transactions that follow.
    for (start, len) in &log.runs {
        let (at, bytes) = (start * u64::from(block_size), len * u64::from(block_size));
        device
            .write_zeroes(at, bytes)
            .map_err(|e| Location::of(Structure::Journal).block(FsBlock(*start)).io(e))?;
    }
    tables.blocks().try_for_each(|(block, bytes)| write(device, block_size, block, bytes))?;
    write(device, block_size, FsBlock(log.first), &log.head(block_size))?;
    one_transaction::commit(device, from, log.map()?, blocks)?;
    name_log(&**device, (from, to), &log, &tables)?;
    Volume::complete_staged(device)?;
    device.flush().map_err(|e| Location::of(Structure::Superblock).io(e))
}

/// Has the superblock name the log: the write by which the change takes effect.
///
/// e2fsck finds that inode by the descriptor of group 0, before it replays the log. As 32 bytes that descriptor reads right while the
/// table is of either kind.
fn name_log(
    device: &dyn BlockDevice,
    (from, to): (&Superblock, &Superblock),
    log: &Log,
    tables: &Tables,
) -> Result<()> {
    let mut superblock = from.clone();
    let wide = to.incompat() & IncompatFeatures::BIT64;
    superblock.set_compat(superblock.compat() | CompatFeatures::HAS_JOURNAL);
    superblock
        .set_incompat((from.incompat() & (wide | !IncompatFeatures::BIT64)) | IncompatFeatures::RECOVER);
    superblock.set_s_journal_inum(STAGED_LOG.0);
    superblock.set_s_jnl_backup_type(BACKUP_BLOCKS);
    superblock.set_s_jnl_blocks(journal_copy(&tables.root, log.len * u64::from(from.block_size())));
    superblock.update_checksum();
    let location = Location::of(Structure::Superblock);
    device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes()).map_err(|e| location.io(e))?;
    device.flush().map_err(|e| location.io(e))
}

fn write(device: &Arc<dyn BlockDevice>, block_size: u32, block: FsBlock, bytes: &[u8]) -> Result<()> {
    let written = device.write_at(block.0 * u64::from(block_size), bytes);
    written.map_err(|e| Location::of(Structure::Journal).block(block).io(e))
}

/// Counts blocks in and out that are no content, if the superblock counts those.
pub(super) fn add_overhead(superblock: &mut Superblock, added: u64, removed: u64) {
    let now = u64::from(superblock.s_overhead_clusters());
    if now != 0 {
        let next = (now + added).saturating_sub(removed);
        superblock.set_s_overhead_clusters(u32::try_from(next).unwrap_or(0));
    }
}

/// What `s_jnl_blocks` says of a journal's inode with that map and size.
pub(super) fn journal_copy(map: &[u8], bytes: u64) -> [u32; 17] {
    let mut copy = [0; 17];
    let (words, _) = map.as_chunks::<4>();
    for (field, word) in copy.iter_mut().zip(words) {
        *field = u32::from_le_bytes(*word);
    }
    copy[15] = (bytes >> 32) as u32;
    copy[16] = bytes as u32;
    copy
}

/// The block of the superblock of an empty log.
pub(super) fn empty_log(block_size: u32, len: u32, uuid: [u8; 16], fast_commit_blocks: u32) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    mkfs::empty_log(block_size, len, uuid, fast_commit_blocks).write(&mut bytes);
    bytes
}

/// A log in free blocks.
struct Log {
    /// First block and length, in the order of the log.
    runs: Vec<(u64, u64)>,
    first: u64,
    len: u64,
}

/// The map of its blocks by number.
struct Tables {
    root: [u8; extant_ondisk::inode::I_BLOCK_SIZE],
    tables: Vec<(FsBlock, Vec<u8>)>,
}

impl Log {
    /// # Errors
    /// `NoSpace`.
    fn place(room: &FreeSpace, len: u64, block_size: u32) -> Result<(Self, Tables)> {
        let pointers = u64::from(block_size / 4);
        let lower = len.saturating_sub(u64::from(indirect::DIRECT)).div_ceil(pointers);
        // The first table is named by the inode, all others by one table more.
        let tables = lower + u64::from(lower > 1);
        if lower > pointers {
            return Err(Error::NoSpace);
        }
        let mut blocks = Vec::new();
        let (mut runs, mut left) = (Vec::new(), len);
        for (start, run) in room.choose(len + tables)? {
            let taken = run.min(left);
            if taken > 0 {
                runs.push((start, taken));
            }
            blocks.extend(start + taken..start + run);
            left -= taken;
        }
        let logged = runs.iter().flat_map(|(start, len)| *start..start + len).collect::<Vec<u64>>();
        let first = logged.first().copied().ok_or(Error::NoSpace)?;
        let tables = Tables::of(&logged, blocks, block_size);
        Ok((Self { runs, first, len }, tables))
    }

    fn head(&self, block_size: u32) -> Vec<u8> {
        empty_log(block_size, self.len as u32, [0; 16], 0)
    }

    fn map(&self) -> Result<LogMap> {
        let mut at = 0;
        let runs = self.runs.iter().map(|(start, len)| {
            let run = (at, FsBlock(*start), *len as u32);
            at += *len as u32;
            run
        });
        Ok(LogMap::new(runs.collect())?)
    }
}

impl Tables {
    /// The map of `logged`, with tables in `free`.
    fn of(logged: &[u64], free: Vec<u64>, block_size: u32) -> Self {
        let mut map = Self { root: [0; extant_ondisk::inode::I_BLOCK_SIZE], tables: Vec::new() };
        let direct = logged.len().min(indirect::DIRECT as usize);
        let (direct, behind) = logged.split_at(direct);
        // Numbers of the log and its tables are below 2^32.
        for (at, block) in (0..).zip(direct) {
            indirect::set_pointer(&mut map.root, at, *block as u32);
        }
        let mut free = free.into_iter();
        let mut double: Option<(u64, Vec<u8>)> = None;
        for (index, part) in (0_u32..).zip(behind.chunks(block_size as usize / 4)) {
            let mut table = vec![0; block_size as usize];
            for (at, block) in (0..).zip(part) {
                indirect::set_pointer(&mut table, at, *block as u32);
            }
            let place = free.next().unwrap_or(0);
            if index == 0 {
                indirect::set_pointer(&mut map.root, indirect::SINGLE, place as u32);
            } else {
                let (_, names) =
                    double.get_or_insert_with(|| (free.next().unwrap_or(0), vec![0; block_size as usize]));
                indirect::set_pointer(names, index - 1, place as u32);
            }
            map.tables.push((FsBlock(place), table));
        }
        if let Some((place, names)) = double {
            indirect::set_pointer(&mut map.root, indirect::DOUBLE, place as u32);
            map.tables.push((FsBlock(place), names));
        }
        map
    }

    fn blocks(&self) -> impl Iterator<Item = (FsBlock, &[u8])> {
        self.tables.iter().map(|(block, bytes)| (*block, &bytes[..]))
    }
}
