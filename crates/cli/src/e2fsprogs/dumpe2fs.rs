//! `dumpe2fs -h`: the superblock and the journal's.
//!
//! Leaves out: the block of multiple-mount protection, which `extant info` shows.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use extant_ondisk::extent::{self, ExtentNode};
use extant_ondisk::superblock::{MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_ondisk::{CompatFeatures, IncompatFeatures, Superblock, jbd2};

use super::letters::Letters;
use super::place::Place;
use super::superblock_lines::{Lines, lines, words};
use super::{Call, only_device};
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::Outcome;

/// What `s_jnl_backup_type` is if the superblock has a copy of the journal's block map.
const BACKUP_OF_BLOCKS: u8 = 1;
/// Where `s_magic` is.
const MAGIC_OFFSET: usize = 0x38;

/// Prints them.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, "hxfV", "bgimo")?;
    call.banner("dumpe2fs");
    if letters.has('V') {
        return Ok(0);
    }
    let place = only_device(&letters.places, "dumpe2fs -h device")?;
    if !letters.has('h') {
        return Err(Failure::usage("the list of groups is not served by Extant; -h is, and `extant info`"));
    }
    let disk = Disk::open(&place)?;
    let superblock = disk.superblock()?;
    let mut lines = lines(&superblock);
    if superblock.compat().contains(CompatFeatures::HAS_JOURNAL) {
        journal(&disk, &superblock, &mut lines);
    }
    let mut output = Output::new();
    output.bytes(lines.text().as_bytes())?;
    output.line("")?;
    output.finish()?;
    Ok(0)
}

/// The superblock of a disk as it is there, its journal not replayed.
pub(super) fn superblock(place: &Place) -> Result<Superblock, Failure> {
    Disk::open(place)?.superblock()
}

/// A disk that is read without a lock: it may be looked at while it is mounted.
struct Disk<'a> {
    place: &'a Place,
    file: File,
}

impl<'a> Disk<'a> {
    fn open(place: &'a Place) -> Result<Self, Failure> {
        let file = File::open(&place.image).map_err(|error| Failure::host(&place.image, &error))?;
        Ok(Self { place, file })
    }

    /// Fills `bytes` from `at` of the file system.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Option<()> {
        self.file.read_exact_at(bytes, self.place.offset().checked_add(at)?).ok()
    }

    fn superblock(&self) -> Result<Superblock, Failure> {
        let place = || self.place.image.display().to_string();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let read = self.read_at(&mut bytes, SUPERBLOCK_OFFSET);
        if read.is_none() || bytes[MAGIC_OFFSET..MAGIC_OFFSET + 2] != MAGIC.to_le_bytes() {
            let message = "Bad magic number in super-block; `extant info` says what is there instead";
            return Err(Failure::new("no_file_system", place(), message));
        }
        Superblock::parse(&bytes).map_err(|error| Failure::new("corrupt", place(), error.to_string()))
    }
}

/// The lines of the journal's superblock, if the file system's has a copy of the journal's block map that leads to it.
fn journal(disk: &Disk, superblock: &Superblock, lines: &mut Lines) {
    let mut block = vec![0; superblock.block_size() as usize];
    let Some(at) = first_journal_block(disk, superblock) else { return };
    let Some(offset) = at.checked_mul(u64::from(superblock.block_size())) else { return };
    let read = disk.read_at(&mut block, offset);
    let Some(journal) = read.and_then(|()| jbd2::Superblock::parse(&block).ok()) else {
        return;
    };
    let incompat = [
        (jbd2::Incompat::REVOKE, "journal_incompat_revoke"),
        (jbd2::Incompat::BIT64, "journal_64bit"),
        (jbd2::Incompat::ASYNC_COMMIT, "journal_async_commit"),
        (jbd2::Incompat::CSUM_V2, "journal_checksum_v2"),
        (jbd2::Incompat::CSUM_V3, "journal_checksum_v3"),
        (jbd2::Incompat::FAST_COMMIT, "fast_commit"),
    ];
    let has_checksum = journal.s_feature_compat.contains(jbd2::Compat::CHECKSUM);
    let names =
        incompat.iter().filter(|(flag, _)| journal.s_feature_incompat.contains(*flag)).map(|(_, name)| *name);
    let names = has_checksum.then_some("journal_checksum").into_iter().chain(names);
    lines.put("Journal features", words(names.map(str::to_owned)));
    let kib = u64::from(journal.s_maxlen) * (u64::from(journal.s_blocksize) / 1024);
    lines.put("Total journal size", if kib < 8192 { format!("{kib}k") } else { format!("{}M", kib >> 10) });
    if journal.s_blocksize != superblock.block_size() {
        lines.put("Journal block size", journal.s_blocksize);
    }
    lines.put("Total journal blocks", journal.s_maxlen);
    // The feature of the file system counts: the journal's appears at the first fast commit.
    let fast = match (superblock.compat().contains(CompatFeatures::FAST_COMMIT), journal.s_num_fc_blks) {
        (false, _) => 0,
        (true, 0) => jbd2::DEFAULT_FAST_COMMIT_BLOCKS,
        (true, blocks) => blocks,
    };
    lines.put("Max transaction length", journal.s_maxlen.saturating_sub(fast));
    lines.put("Fast commit length", fast);
    if journal.s_first != 1 {
        lines.put("Journal first block", journal.s_first);
    }
    lines.put("Journal sequence", format!("0x{:08x}", journal.s_sequence.0));
    lines.put("Journal start", journal.s_start);
    if journal.s_nr_users != 1 {
        lines.put("Journal number of users", journal.s_nr_users);
    }
    if has_checksum {
        lines.put("Journal checksum type", "crc32");
    }
    if journal.s_feature_incompat.intersects(jbd2::Incompat::CSUM_V2 | jbd2::Incompat::CSUM_V3) {
        let sum = block.get(0xFC..0x100).and_then(|sum| sum.try_into().ok()).map_or(0, u32::from_be_bytes);
        lines.put("Journal checksum type", "crc32c");
        lines.put("Journal checksum", format!("0x{sum:08x}"));
    }
    if journal.s_errno != 0 {
        lines.put("Journal errno", journal.s_errno);
    }
}

/// Where the journal begins, by the copy of its map in the superblock.
fn first_journal_block(disk: &Disk, superblock: &Superblock) -> Option<u64> {
    if superblock.s_jnl_backup_type() != BACKUP_OF_BLOCKS || superblock.s_journal_inum() == 0 {
        return None;
    }
    let words = superblock.s_jnl_blocks();
    if !superblock.incompat().contains(IncompatFeatures::EXTENTS) {
        return Some(u64::from(words[0]));
    }
    let mut node = words[..15].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    // Each step is a level down, which an unsound node cannot prolong.
    for depth in (0..=extent::depth(&node)?).rev() {
        ExtentNode::parse(&node, Some(depth)).ok()?;
        if depth == 0 {
            return Some(extent::extent_at(&node, 0)?.start.0);
        }
        let child = extent::index_at(&node, 0)?.child.0;
        node = vec![0; superblock.block_size() as usize];
        disk.read_at(&mut node, child.checked_mul(u64::from(superblock.block_size()))?)?;
    }
    None
}
