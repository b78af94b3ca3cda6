//! Changing what a file system was made with: the builder [`Tune`].
//!
//! Fields of the superblock change in one transaction. What changes the journal, the file system's own files or the layout is [`staged`],
//! and takes effect at once. What changes checksums goes through [`switch`], which is atomic too. Copies of the superblock and the
//! descriptors follow, for they count only where the first are lost.
//!
//! Leaves out: sizes (`resize`); features that content depends on, refused by name with what to do.
//!
//! Source: `misc/tune2fs.c` of e2fsprogs. Tests: `tests/tune/`, against `tune2fs`, `dumpe2fs`, `e2fsck` and the kernel.

mod backups;
mod extended;
mod features;
mod free_space;
mod groups;
mod in_use;
mod journal;
mod layout;
mod linear;
mod mmp;
mod mount_options;
mod one_transaction;
mod orphan_file;
mod own_file;
mod progress;
mod quotas;
mod staged;
mod steps;
mod summed;
mod switch;

use extant_block::BlockDevice;
use extant_ondisk::{ChecksumKind, Checksums, CompatFeatures, IncompatFeatures, Superblock};
use extant_rt::{Arc, WallClock};

use crate::error::{Error, Result};
use crate::metadata::update::Credits;
use crate::mkfs;
use crate::mount::{Mounted, Options, Volume, read_superblock};

use extended::{padded, parse_bytes, set_extended};
pub use progress::TuneProgress;
use steps::{Sizes, Steps};
use switch::Switch;

/// How a file system goes on after an error in its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBehavior {
    /// It notes the error and goes on.
    Continue,
    /// It is read-only from then on.
    RemountReadOnly,
    /// The kernel panics.
    Panic,
}

/// Changes a file system that is not mounted; a builder in the manner of [`Mkfs`](crate::mkfs::Mkfs). What is not set stays as it is.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use extant::{Mount, Tune, mkfs::Mkfs};
/// use extant_block::MemoryDevice;
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(64 << 20));
/// Mkfs::new().format(&*device)?;
/// Tune::new().label(b"clone")?.uuid([7; 16]).reserved_percent(1.0)?.apply(device.clone())?;
/// let fs = Mount::new().read_only(true).open_device(device)?;
/// assert_eq!(fs.superblock().volume_name(), b"clone");
/// assert_eq!(fs.superblock().s_uuid(), [7; 16]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tune {
    label: Option<[u8; 16]>,
    last_mounted: Option<[u8; 64]>,
    uuid: Option<[u8; 16]>,
    reserved: Option<Reserved>,
    errors: Option<ErrorBehavior>,
    mounts: Option<u16>,
    mounts_max: Option<u16>,
    check_interval_s: Option<u32>,
    check_time_s: Option<u64>,
    default_mount_options: Vec<String>,
    extended: Vec<(String, String)>,
    features: Vec<String>,
    sizes: Sizes,
    clock: WallClock,
}

#[derive(Clone, Copy, Debug)]
enum Reserved {
    Percent(f64),
    Blocks(u64),
}

/// What [`Tune::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuned {
    /// What opening the disk found and did.
    pub mounted: Mounted,
    /// Inodes, bitmaps, descriptors and other blocks that got another checksum.
    pub checksums_rewritten: u64,
    /// A change of checksums that a crash had interrupted was completed.
    pub has_completed: bool,
}

impl Default for Tune {
    fn default() -> Self {
        Self::new()
    }
}

impl Tune {
    /// Changes nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            label: None,
            last_mounted: None,
            uuid: None,
            reserved: None,
            errors: None,
            mounts: None,
            mounts_max: None,
            check_interval_s: None,
            check_time_s: None,
            default_mount_options: Vec::new(),
            extended: Vec::new(),
            features: Vec::new(),
            sizes: Sizes::default(),
            clock: WallClock::System,
        }
    }

    /// The volume's name. (`-L`)
    ///
    /// # Errors
    /// `InvalidArgument` if it has more than 16 bytes.
    pub fn label(mut self, label: &[u8]) -> Result<Self> {
        self.label = Some(padded(label, "a label has 16 bytes at most")?);
        Ok(self)
    }

    /// The directory where it was last mounted. (`-M`)
    ///
    /// # Errors
    /// `InvalidArgument` if it has more than 64 bytes.
    pub fn last_mounted(mut self, directory: &[u8]) -> Result<Self> {
        self.last_mounted = Some(padded(directory, "the directory of the last mount has 64 bytes at most")?);
        Ok(self)
    }

    /// The UUID. With `metadata_csum_seed` only the superblock changes; else all checksums do. (`-U`)
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// The UUID in its usual text form, or `clear`, `random` or `time`. (`-U`)
    ///
    /// # Errors
    /// `InvalidArgument` if it is none.
    pub fn uuid_text(self, text: &str) -> Result<Self> {
        let uuid = match text {
            "clear" => [0; 16],
            "random" => mkfs::random_uuid(),
            "time" => mkfs::time_uuid(self.clock),
            text => mkfs::parse_uuid(text)
                .map_err(|_| Error::InvalidArgument("a UUID has 32 hexadecimal digits"))?,
        };
        Ok(self.uuid(uuid))
    }

    /// The share of blocks, in percent, that only root may take. (`-m`)
    ///
    /// # Errors
    /// `InvalidArgument` if it is not from 0 to 50.
    pub fn reserved_percent(mut self, percent: f64) -> Result<Self> {
        if !(0.0..=50.0).contains(&percent) {
            return Err(Error::InvalidArgument("the share of reserved blocks is from 0 to 50 percent"));
        }
        self.reserved = Some(Reserved::Percent(percent));
        Ok(self)
    }

    /// How many blocks only root may take; up to half of the disk. (`-r`)
    #[must_use]
    pub fn reserved_blocks(mut self, blocks: u64) -> Self {
        self.reserved = Some(Reserved::Blocks(blocks));
        self
    }

    /// What is done after an error. (`-e`)
    #[must_use]
    pub fn errors(mut self, behavior: ErrorBehavior) -> Self {
        self.errors = Some(behavior);
        self
    }

    /// How often it was mounted since the last check. (`-C`)
    #[must_use]
    pub fn mount_count(mut self, mounts: u16) -> Self {
        self.mounts = Some(mounts);
        self
    }

    /// After how many mounts e2fsck checks it; `None`: after no number of them. (`-c`)
    #[must_use]
    pub fn max_mount_count(mut self, mounts: Option<u16>) -> Self {
        self.mounts_max = Some(mounts.unwrap_or(u16::MAX));
        self
    }

    /// After how many seconds e2fsck checks it; 0: after no time. (`-i`)
    #[must_use]
    pub fn check_interval_s(mut self, seconds: u32) -> Self {
        self.check_interval_s = Some(seconds);
        self
    }

    /// When it was last checked, in seconds since 1970. (`-T`)
    #[must_use]
    pub fn check_time_s(mut self, seconds: u64) -> Self {
        self.check_time_s = Some(seconds);
        self
    }

    /// Default mount options to set, and those after `^` to clear, separated by commas, in the words of `tune2fs`. (`-o`)
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown word.
    pub fn default_mount_options(mut self, words: &str) -> Result<Self> {
        for word in words.split([',', ' ']).filter(|word| !word.is_empty()) {
            mount_options::edit(0, word)?;
            self.default_mount_options.push(word.to_owned());
        }
        Ok(self)
    }

    /// Extended options separated by commas: `stride=N`, `stripe_width=N` (blocks), `hash_alg=NAME`, `mount_opts=TEXT`,
    /// `mmp_update_interval=SECONDS`, `orphan_file_size=BYTES`, `test_fs`, `^test_fs`. (`-E`)
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown word or value.
    pub fn extended(mut self, words: &str) -> Result<Self> {
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name == "orphan_file_size" {
                self.sizes.orphan_file_bytes = Some(parse_bytes(value)?);
                continue;
            }
            set_extended(&mut Superblock::new_zeroed(), name, value)?;
            self.extended.push((name.to_owned(), value.to_owned()));
        }
        Ok(self)
    }

    /// Features to turn on, and those after `^` to turn off, by name, separated by commas. (`-O`)
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown name. Whether a feature can be changed depends on the disk, so [`Tune::apply`] says it.
    pub fn features(mut self, words: &str) -> Result<Self> {
        for word in words.split([',', ' ']).filter(|word| !word.is_empty()) {
            if !features::is_known(word.strip_prefix('^').unwrap_or(word)) {
                return Err(Error::InvalidArgument("no such feature; names are those of tune2fs"));
            }
            self.features.push(word.to_owned());
        }
        Ok(self)
    }

    /// The journal's size in the words of `tune2fs`, separated by commas: `size=MEGABYTES`, `fast_commit_size=KILOBYTES`. A disk
    /// without a journal gets one. (`-J`)
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown word; `Unsupported` for `device` and `location`.
    pub fn journal(mut self, words: &str) -> Result<Self> {
        words
            .split(',')
            .filter(|word| !word.is_empty())
            .try_for_each(|word| self.sizes.journal.edit(word))?;
        Ok(self)
    }

    /// Where times come from.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self {
            label,
            last_mounted,
            uuid,
            reserved,
            errors,
            mounts,
            mounts_max,
            check_interval_s,
            check_time_s,
            ..
        } = self;
        let has_field = label.is_some()
            || last_mounted.is_some()
            || uuid.is_some()
            || reserved.is_some()
            || errors.is_some();
        let has_check =
            mounts.is_some() || mounts_max.is_some() || check_interval_s.is_some() || check_time_s.is_some();
        let has_words = [&self.default_mount_options, &self.features].iter().any(|words| !words.is_empty());
        let has_sizes = !self.sizes.journal.is_empty() || self.sizes.orphan_file_bytes.is_some();
        !(has_field || has_check || has_words || has_sizes || !self.extended.is_empty())
    }

    /// Changes the file system on `device`: replays its journal, and leaves it clean. A crash at any point leaves it as it was or as it is
    /// to be, or, where all checksums change, without checksums; to apply the same again completes that.
    ///
    /// # Errors
    /// Those of mounting for writing; `Unsupported` and `InvalidArgument` for what this disk does not allow, before anything changes;
    /// `Corrupt` where a checksum is wrong that is to be rewritten, before any is; `Io`.
    pub fn apply(&self, device: Arc<dyn BlockDevice>) -> Result<Tuned> {
        self.apply_reporting(device, &mut |_| true)
    }

    /// [`Tune::apply`]; where all checksums change, `report` says now and then whether to go on.
    ///
    /// # Errors
    /// As [`Tune::apply`]; `Interrupted` if `report` says so: the disk is then as it was, or without checksums, and to apply the same
    /// again completes that.
    pub fn apply_reporting(
        &self,
        device: Arc<dyn BlockDevice>,
        report: &mut dyn FnMut(TuneProgress) -> bool,
    ) -> Result<Tuned> {
        let is_completed = Volume::complete_staged(&device)?;
        let found = read_superblock(&*device)?;
        // Says what the disk does not allow before anything is written.
        Steps::between(&found, &self.target(&found)?, self.sizes)?;
        let options =
            Options { background: false, page_cache_bytes: Some(0), clock: self.clock, ..Options::default() };
        let (volume, mounted) = Volume::mount(device.clone(), &options)?;
        let before = volume.superblock.lock().clone();
        let target = self.target(&before)?;
        let steps = Steps::between(&before, &target, self.sizes)?;
        let changed = in_use::check(&*device, &volume, &target)
            .and_then(|()| quotas::change(&volume, target.ro_compat()))
            .and_then(|()| self.change_fields(&volume, &found, &steps));
        volume.unmount().and(changed)?;
        if !steps.is_empty() {
            steps.take(&device, &options)?;
        }
        let after = read_superblock(&*device)?;
        let has_completed = is_completed || switch::is_interrupted(&before);
        let mut tuned = Tuned { mounted, has_completed, ..Tuned::default() };
        let target = self.target(&after)?;
        if changes_checksums(&after, &target) {
            tuned.checksums_rewritten = Switch::new(device.clone(), after, target, &options)?.run(report)?;
        } else {
            if is_completed || !steps.is_empty() {
                backups::copy_descriptors(&*device, &after)?;
            }
            backups::write(&*device, &after)?;
        }
        Ok(tuned)
    }

    /// Changes what needs no other checksums, in one transaction. Mounting for this is no mount that counts.
    fn change_fields(&self, volume: &Volume, found: &Superblock, steps: &Steps) -> Result<()> {
        let before = volume.superblock.lock().clone();
        let target = self.target(&before)?;
        let is_switch = changes_checksums(&before, &target);
        let with_journal = match steps.has_fast_commit_step() {
            true => CompatFeatures::FAST_COMMIT,
            false => CompatFeatures::empty(),
        };
        // Those come later, and the log's state is the log's.
        let (compat, incompat, ro_compat) = (
            (steps::COMPAT - (target.compat() & CompatFeatures::DIR_INDEX)) | with_journal,
            steps::INCOMPAT | IncompatFeatures::RECOVER,
            steps::RO_COMPAT,
        );
        let mut update = volume.begin(Credits::new(0, 0))?;
        update.modify_superblock(|superblock| {
            superblock.set_s_mnt_count(found.s_mnt_count());
            superblock.set_mount_time(found.mount_time());
            let changed = self.set_fields(superblock);
            if !is_switch {
                superblock.set_incompat((target.incompat() - incompat) | (superblock.incompat() & incompat));
                superblock.set_compat((target.compat() - compat) | (superblock.compat() & compat));
                superblock
                    .set_ro_compat((target.ro_compat() - ro_compat) | (superblock.ro_compat() & ro_compat));
                superblock.set_s_uuid(target.s_uuid());
                superblock.set_s_checksum_seed(target.s_checksum_seed());
                superblock.set_s_checksum_type(target.s_checksum_type());
            }
            changed
        })?;
        update.finish();
        Ok(())
    }

    /// The superblock as it is to be.
    fn target(&self, from: &Superblock) -> Result<Superblock> {
        let mut target = from.clone();
        self.set_fields(&mut target)?;
        switch::complete(&mut target);
        for word in &self.features {
            features::edit(&mut target, word)?;
        }
        if !self.sizes.journal.is_empty() {
            features::edit(&mut target, "has_journal")?;
        }
        features::check(&target)?;
        if let Some(uuid) = self.uuid.filter(|uuid| *uuid != from.s_uuid()) {
            if from.compat().contains(CompatFeatures::STABLE_INODES) {
                return Err(Error::Unsupported(
                    "another UUID on a disk with stable_inodes, whose encrypted files depend on it",
                ));
            }
            target.set_s_uuid(uuid);
        }
        let has_other_seed = target.checksum_seed() != from.checksum_seed();
        if has_other_seed && from.incompat().contains(IncompatFeatures::EA_INODE) {
            return Err(Error::Unsupported(
                "another checksum seed on a disk with ea_inode, whose attributes depend on it; turn metadata_csum_seed on first, and the UUID can change alone",
            ));
        }
        if changes_checksums(from, &target) {
            switch::check(from, &target)?;
        }
        Ok(target)
    }

    /// Sets the fields that no checksum depends on.
    fn set_fields(&self, superblock: &mut Superblock) -> Result<()> {
        if let Some(label) = self.label {
            superblock.set_s_volume_name(label);
        }
        if let Some(directory) = self.last_mounted {
            superblock.set_s_last_mounted(directory);
        }
        if let Some(reserved) = self.reserved {
            let all = superblock.blocks_count();
            let blocks = match reserved {
                Reserved::Percent(percent) => (all as f64 * percent / 100.0) as u64,
                Reserved::Blocks(blocks) => blocks,
            };
            if blocks > all / 2 {
                return Err(Error::OutOfRange {
                    what: "the number of reserved blocks",
                    min: 0,
                    max: all / 2,
                });
            }
            superblock.set_r_blocks_count(blocks);
        }
        if let Some(errors) = self.errors {
            superblock.set_s_errors(match errors {
                ErrorBehavior::Continue => 1,
                ErrorBehavior::RemountReadOnly => 2,
                ErrorBehavior::Panic => 3,
            });
        }
        if let Some(mounts) = self.mounts {
            superblock.set_s_mnt_count(mounts);
        }
        if let Some(mounts) = self.mounts_max {
            superblock.set_s_max_mnt_count(mounts);
        }
        if let Some(seconds) = self.check_interval_s {
            superblock.set_s_checkinterval(seconds);
        }
        if let Some(seconds) = self.check_time_s {
            superblock.set_check_time(seconds);
        }
        for word in &self.default_mount_options {
            superblock
                .set_s_default_mount_opts(mount_options::edit(superblock.s_default_mount_opts(), word)?);
        }
        self.extended.iter().try_for_each(|(name, value)| set_extended(superblock, name, value))
    }
}

/// Whether blocks other than the superblock have other checksums under another superblock.
fn changes_checksums(from: &Superblock, to: &Superblock) -> bool {
    let (from, to) = (Checksums::new(from), Checksums::new(to));
    let is_without = from.kind == ChecksumKind::None && to.kind == ChecksumKind::None;
    !is_without && (from.kind, from.seed) != (to.kind, to.seed)
}
