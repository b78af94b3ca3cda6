//! Opens disks: finds the file system on them, replays, and unmounts them at the end.

use std::path::{Path, PathBuf};

use clap::Args;
use extant::{Filesystem, MmpHolder, Mount, Times, Timestamp};
use extant_block::{BlockDevice, DeviceAccess};
use extant_ondisk::State;
use extant_rt::{Arc, WallClock};

use crate::address::{DiskPath, is_same_image};
use crate::devices::{OpenImage, WRITE_PROTECTED};
use crate::failure::Failure;
use crate::foreign::{explain, has_superblock};
use crate::output;

pub use crate::location::ImageLocation;

/// How disks are opened for reading.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Reading {
    #[command(flatten)]
    pub location: ImageLocation,
    /// Leave a dirty journal alone and show the disk as it is
    #[arg(long)]
    pub norecovery: bool,
    /// Write one JSON document
    #[arg(long)]
    pub json: bool,
}

/// The host's clock, or the moment that SOURCE_DATE_EPOCH names.
pub fn clock() -> Result<WallClock, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(WallClock::System) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let invalid =
        || Failure::usage(format!("SOURCE_DATE_EPOCH is not a number of seconds: '{}'", text.display()));
    Ok(WallClock::Fixed(seconds.ok_or_else(invalid)?, 0))
}

/// The moment at which a fixed clock stands.
pub fn fixed_time(clock: WallClock) -> Option<Timestamp> {
    match clock {
        WallClock::Fixed(seconds, nanoseconds) => Some(Timestamp { seconds, nanoseconds }),
        WallClock::System => None,
    }
}

/// The times of what is made while a fixed clock stands.
pub fn fixed_times(clock: WallClock) -> Option<Times> {
    fixed_time(clock).map(|moment| Times { atime: moment, mtime: moment })
}

/// Where on an image the file system is: at `location`, or on the only partition that has one.
pub fn chosen_location(image: &Path, location: ImageLocation) -> Result<ImageLocation, Failure> {
    let device = OpenImage::open(image, DeviceAccess::read_only(), location.wait())?.into_device(image);
    location.choose(image, &*device)
}

/// Opens and locks what `image` names: the device that its file system is on, which is the part that `location` names, or the only
/// partition that has one.
pub fn open_located(
    image: &Path,
    access: DeviceAccess,
    location: ImageLocation,
) -> Result<(Arc<dyn BlockDevice>, ImageLocation), Failure> {
    let device = OpenImage::open(image, access, location.wait())?.into_device(image);
    let location = location.choose(image, &*device)?;
    let device = location.locate(image, device)?;
    if let Some(name) = location.volume.filter(|_| !access.read_only && device.is_read_only()) {
        let message =
            format!("logical volume {name} is write-protected; `lvchange -prw {name}` changes that");
        return Err(Failure::new(WRITE_PROTECTED, image.display().to_string(), message));
    }
    Ok((device, location))
}

/// Mounts what is on `device`.
pub fn mount(image: &Path, device: Arc<dyn BlockDevice>, how: Mount) -> Result<Filesystem, Failure> {
    if !has_superblock(&*device) {
        return Err(Failure::new("no_file_system", image.display().to_string(), explain(&*device)));
    }
    // Mounting reports what is wrong with the disk.
    let wait_s = how.mmp_wait(&*device).unwrap_or_default().as_secs();
    if wait_s > 0 {
        let image = image.display();
        output::note(&format!(
            "waiting {wait_s} s to see whether another host uses {image} (multi-mount protection)"
        ));
    }
    how.open_device(device).map_err(|error| Failure::opening(image, &error))
}

/// Opens a disk for reading: nothing is written to it.
pub fn open_for_reading(image: &Path, reading: Reading) -> Result<Filesystem, Failure> {
    let (device, _) = open_located(image, DeviceAccess::read_only(), reading.location)?;
    mount(image, device, reading_mount(reading))
}

/// How a disk is mounted for reading.
pub fn reading_mount(reading: Reading) -> Mount {
    Mount::new().read_only(true).no_recovery(reading.norecovery)
}

/// Opens a disk for writing; says so if its journal was replayed or emptied.
pub fn open_for_writing(image: &Path, location: ImageLocation) -> Result<Filesystem, Failure> {
    let clock = clock()?;
    let (device, _) = open_located(image, DeviceAccess::read_write(), location)?;
    // A clock in the background would make the bytes of the journal depend on timing.
    let is_fixed = matches!(clock, WallClock::Fixed(..));
    let fs = mount(image, device, Mount::new().clock(clock).background(!is_fixed))?;
    tell_of_opening(image, &fs);
    Ok(fs)
}

/// Says what was done and found when a disk was opened for writing, or mounted.
pub fn tell_of_opening(image: &Path, fs: &Filesystem) {
    let blocks = fs.mounted().replayed_blocks;
    if blocks > 0 && !fs.is_read_only() {
        output::note(&format!("{}: replayed the journal: {blocks} blocks", image.display()));
    }
    let limits = fs.mounted().quota_limits;
    if limits > 0 {
        output::note(&format!(
            "{}: the limits of {limits} users, groups and projects are not in force (mount -o usrquota,grpquota,prjquota)",
            image.display()
        ));
    }
    if let Some(skipped) = journal_skipped(fs) {
        output::note(&format!("{}: {skipped}", image.display()));
    }
    if let Some(met) = errors_met(fs) {
        output::note(&format!("{}: {met}", image.display()));
    }
}

/// A warning that the journal's transactions were not replayed because the superblock says that the disk was unmounted, and
/// what to do about it.
pub fn journal_skipped(fs: &Filesystem) -> Option<String> {
    let count = fs.mounted().skipped_transactions;
    let transactions = if count == 1 { "transaction" } else { "transactions" };
    match (count, fs.is_read_only()) {
        (0, _) => None,
        (_, true) => Some(format!(
            "{count} {transactions} in the journal, which the superblock says to ignore (needs_recovery is clear); writing to \
             the disk empties the journal; e2fsck -f offers to replay it"
        )),
        (_, false) => Some(format!(
            "emptied the journal without replaying {count} {transactions}, as the superblock says (needs_recovery is clear)"
        )),
    }
}

/// A warning about the errors recorded in the superblock, and what to do about them.
pub fn errors_met(fs: &Filesystem) -> Option<String> {
    let (superblock, errno) = (fs.superblock(), fs.mounted().journal_errno);
    let met = if errno != 0 {
        format!("the journal was given up with error {errno} when the disk was last in use")
    } else if superblock.state().contains(State::ERROR) || superblock.s_error_count() > 0 {
        let mut met = "errors were met when the disk was last in use".to_owned();
        if superblock.s_error_count() > 0 {
            let words = superblock.s_last_error_func();
            let words = words.split(|byte| *byte == 0).next().unwrap_or_default();
            met += &format!(" (the last: {}", String::from_utf8_lossy(words));
            let numbers = [
                ("inode", u64::from(superblock.s_last_error_ino())),
                ("block", superblock.s_last_error_block()),
            ];
            numbers
                .iter()
                .filter(|(_, number)| *number != 0)
                .for_each(|(name, number)| met += &format!(", {name} {number}"));
            met += ")";
        }
        met
    } else {
        return None;
    };
    Some(format!("{met}; e2fsck -f looks for damage and takes the mark away"))
}

/// The other host that writes to a disk that is open for reading, or wrote to it when it died.
pub fn used_elsewhere(fs: &Filesystem) -> Option<MmpHolder> {
    // A block that cannot be read is found by the check.
    fs.mmp_holder().ok().flatten()
}

/// Unmounts a disk that was written.
pub fn unmount(image: &Path, fs: Filesystem) -> Result<(), Failure> {
    fs.unmount().map_err(|error| Failure::disk(image.display(), &error))
}

/// The disks of one command, each opened once.
pub struct Disks<O> {
    open: O,
    opened: Vec<(PathBuf, Filesystem)>,
}

impl<O: Fn(&Path) -> Result<Filesystem, Failure>> Disks<O> {
    /// Opens disks by `open` when they are first needed.
    pub fn new(open: O) -> Self {
        Self { open, opened: Vec::new() }
    }

    /// The disk that `place` is on.
    pub fn of(&mut self, place: &DiskPath) -> Result<Filesystem, Failure> {
        // Two ways to one image are one image: a second lock would be refused.
        if let Some((_, fs)) = self.opened.iter().find(|(image, _)| is_same_image(image, &place.image)) {
            return Ok(fs.clone());
        }
        let fs = (self.open)(&place.image)?;
        self.opened.push((place.image.clone(), fs.clone()));
        Ok(fs)
    }

    /// Unmounts all of them; the first failure counts.
    pub fn finish(self) -> Result<(), Failure> {
        let results: Vec<_> = self.opened.into_iter().map(|(image, fs)| unmount(&image, fs)).collect();
        results.into_iter().collect()
    }
}
