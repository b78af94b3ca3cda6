//! The superblock against the features it names, and its copies against it.
//!
//! Errors that [`Superblock::parse`] refuses are not checked again here: such a disk cannot be mounted.

use extant_ondisk::{
    CompatFeatures, GroupNumber, IncompatFeatures, InodeNumber, Mmp, RoCompatFeatures, Structure, Superblock,
};
use extant_rt::WallClock;

use super::Checker;
use crate::error::{Location, Result};

/// Clocks of machines differ: times so far ahead are not wrong yet (`e2fsck`'s `time_fudge`).
const CLOCK_SLACK_S: u64 = 86_400;

/// Features that may give the disk other structures than those that are looked at, so that nothing can be said of it.
pub(super) const NOT_CHECKED: RoCompatFeatures =
    RoCompatFeatures::from_bits_retain(!RoCompatFeatures::all().bits())
        .union(RoCompatFeatures::BTREE_DIR)
        .union(RoCompatFeatures::HAS_SNAPSHOT)
        .union(RoCompatFeatures::REPLICA);

impl Checker<'_> {
    pub(super) fn check_superblock(&mut self) -> Result<()> {
        let location = Location::of(Structure::Superblock);
        let (block, offset) = self.volume.superblock_location();
        let bytes = self.read(block, location)?;
        if let Err(error) = Superblock::parse(bytes.get(offset..).unwrap_or_default()) {
            self.findings.add_format(location.block(block), error);
        }
        for what in contradictions(&self.superblock).collect::<Vec<_>>() {
            self.findings.add(location, what);
        }
        self.check_times(location);
        self.check_mmp()?;
        for group in self.groups().skip(1) {
            if let Some(copy) = self.geometry.super_block(group) {
                let groups = self.groups().skip(group.0 as usize);
                self.read_window(copy, groups.filter_map(|group| self.geometry.super_block(group)));
            }
            self.check_copy(group)?;
        }
        Ok(())
    }

    fn check_times(&mut self, location: Location) {
        let now = u64::try_from(WallClock::System.now().0).unwrap_or(0).saturating_add(CLOCK_SLACK_S);
        if self.superblock.mount_time() > now {
            self.findings.add(location, "the time of the last mount is in the future");
        }
        if self.superblock.write_time() > now {
            self.findings.add(location, "the time of the last write is in the future");
        }
    }

    fn check_mmp(&mut self) -> Result<()> {
        if !self.superblock.incompat().contains(IncompatFeatures::MMP) {
            return Ok(());
        }
        let block = extant_ondisk::FsBlock(self.superblock.s_mmp_block());
        let location = Location::of(Structure::Mmp).block(block);
        if !self.geometry.is_valid_block_run(block, 1) {
            self.findings.add(location, "outside the disk");
            return Ok(());
        }
        let bytes = self.read(block, location)?;
        if let Err(error) = Mmp::parse(&bytes, self.checksums) {
            self.findings.add_format(location, error);
        }
        Ok(())
    }

    /// The kernel keeps flags, counts and times only in the first superblock; the layout is the same in all.
    fn check_copy(&mut self, group: GroupNumber) -> Result<()> {
        let Some(block) = self.geometry.super_block(group) else { return Ok(()) };
        let location = Location::of(Structure::Superblock).group(group).block(block);
        let bytes = self.read(block, location)?;
        let copy = match Superblock::parse(&bytes) {
            Ok(copy) => copy,
            Err(error) => {
                self.findings.add_format(location, error);
                return Ok(());
            }
        };
        let first = &self.superblock;
        let differences = [
            ("UUID", copy.s_uuid() != first.s_uuid()),
            ("block count", copy.blocks_count() != first.blocks_count()),
            ("inode count", copy.s_inodes_count() != first.s_inodes_count()),
            ("block size", copy.block_size() != first.block_size()),
            ("blocks per group", copy.s_blocks_per_group() != first.s_blocks_per_group()),
            ("inodes per group", copy.s_inodes_per_group() != first.s_inodes_per_group()),
            ("inode size", copy.inode_size() != first.inode_size()),
            ("descriptor size", copy.desc_size() != first.desc_size()),
            // The field has 16 bits, whatever the number of groups.
            ("own group number", u32::from(copy.s_block_group_nr()) != group.0 & 0xFFFF),
        ];
        for (name, _) in differences.into_iter().filter(|(_, differs)| *differs) {
            self.findings.add(location, format!("the copy's {name} differs"));
        }
        Ok(())
    }
}

/// Contradictions among the superblock's own fields.
fn contradictions(superblock: &Superblock) -> impl Iterator<Item = &'static str> {
    let statements = feature_contradictions(superblock).into_iter().chain(field_contradictions(superblock));
    statements.filter(|(wrong, _)| *wrong).map(|(_, what)| what)
}

/// Features that exclude each other, or need each other or a field.
fn feature_contradictions(superblock: &Superblock) -> [(bool, &'static str); 9] {
    let (compat, incompat, ro_compat) = (superblock.compat(), superblock.incompat(), superblock.ro_compat());
    let has_journal = compat.contains(CompatFeatures::HAS_JOURNAL);
    let has_sums = ro_compat.contains(RoCompatFeatures::METADATA_CSUM);
    let has_resize = compat.contains(CompatFeatures::RESIZE_INODE);
    [
        (
            has_sums && ro_compat.contains(RoCompatFeatures::GDT_CSUM),
            "both metadata_csum and uninit_bg, which exclude each other",
        ),
        (
            incompat.contains(IncompatFeatures::CSUM_SEED) && !has_sums,
            "metadata_csum_seed without metadata_csum",
        ),
        (
            incompat.contains(IncompatFeatures::BIT64) && !incompat.contains(IncompatFeatures::EXTENTS),
            "64bit without extents, which alone can name all blocks",
        ),
        (
            !ro_compat.contains(RoCompatFeatures::BIGALLOC)
                && superblock.s_clusters_per_group() != superblock.s_blocks_per_group(),
            "without bigalloc a group has as many clusters as blocks",
        ),
        (
            has_resize && incompat.contains(IncompatFeatures::META_BG),
            "both resize_inode and meta_bg, which exclude each other",
        ),
        (
            !has_resize && superblock.s_reserved_gdt_blocks() != 0,
            "blocks are reserved for descriptors without resize_inode",
        ),
        (!has_journal && incompat.contains(IncompatFeatures::RECOVER), "needs_recovery without has_journal"),
        (!has_journal && superblock.s_journal_inum() != 0, "a journal inode without has_journal"),
        (
            ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT)
                && !compat.contains(CompatFeatures::ORPHAN_FILE),
            "orphan_present without orphan_file",
        ),
    ]
}

/// Fields out of range that the layout does not depend on.
fn field_contradictions(superblock: &Superblock) -> [(bool, &'static str); 5] {
    let has_quota = superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
    let has_orphan_file = superblock.compat().contains(CompatFeatures::ORPHAN_FILE);
    let special = [
        (true, superblock.s_journal_inum()),
        (has_quota, superblock.s_usr_quota_inum()),
        (has_quota, superblock.s_grp_quota_inum()),
        (has_quota, superblock.s_prj_quota_inum()),
        (has_orphan_file, superblock.s_orphan_file_inum()),
    ];
    let is_beyond = |(counts, number): (bool, u32)| counts && number > superblock.s_inodes_count();
    let (inode_size, desc_size) = (superblock.inode_size(), superblock.s_desc_size());
    let extra_sizes = [superblock.s_min_extra_isize(), superblock.s_want_extra_isize()];
    let is_no_extra_isize =
        |bytes: u16| inode_size > 128 && bytes != 0 && (!bytes.is_multiple_of(4) || bytes > inode_size - 128);
    [
        (
            superblock.r_blocks_count() > superblock.blocks_count() / 2,
            "more than half of the blocks are reserved",
        ),
        (
            superblock.s_journal_inum() != 0
                && (superblock.s_journal_dev() != 0 || superblock.s_journal_uuid() != [0; 16]),
            "both a journal inode and a journal device",
        ),
        (special.into_iter().any(is_beyond), "names an inode that does not exist"),
        (
            desc_size > 1024 || desc_size != 0 && !desc_size.is_power_of_two(),
            "the size of a descriptor is none",
        ),
        (
            extra_sizes.into_iter().any(is_no_extra_isize),
            "the size of the further fields of an inode is none",
        ),
    ]
}

impl Checker<'_> {
    /// Inodes that the superblock names and no directory does.
    pub(super) fn is_hidden(&self, number: InodeNumber) -> bool {
        let superblock = &self.superblock;
        let hidden = [
            superblock.s_journal_inum(),
            superblock.s_usr_quota_inum(),
            superblock.s_grp_quota_inum(),
            superblock.s_prj_quota_inum(),
            superblock.s_orphan_file_inum(),
        ];
        self.is_reserved(number) || hidden.contains(&number.0)
    }

    /// Inodes below the first one for files, but for the root.
    pub(super) fn is_reserved(&self, number: InodeNumber) -> bool {
        number.0 < self.geometry.first_ino && number != InodeNumber::ROOT
    }
}
