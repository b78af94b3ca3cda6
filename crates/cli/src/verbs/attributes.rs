//! `extant chmod`, `extant chown`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{Error, File, FileType, Filesystem, ReadAhead, SetAttributes};

use super::{Outcome, Report};
use crate::address::DiskPath;
use crate::disks::{Disks, ImageLocation, open_for_writing};
use crate::failure::Failure;
use crate::metadata::failed_at;
use crate::mode::ModeChange;
use crate::owner::{Owner, names_on};
use crate::tree::{Directories, child};

/// Change the permissions of files on a disk
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant chmod 600 disk.img:/etc/shadow\n  extant chmod -R u=rwX,go=rX disk.img:/srv"
)]
pub struct Chmod {
    /// Change what is in directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// The mode: octal, or as in u+x,go-w
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Chmod {
    /// Changes.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let places = self.places.iter().map(|place| DiskPath::parse(place));
        let mut report = Report::new(false);
        for place in places {
            let changed = disks.of(&place).and_then(|fs| self.change(&fs, &place, &mut report));
            report.unless_failed(changed);
        }
        disks.finish()?;
        Ok(report.exit())
    }

    fn change(&self, fs: &Filesystem, place: &DiskPath, report: &mut Report) -> Result<(), Failure> {
        let change = |file: &File| {
            let metadata = file.metadata();
            let mode = self.mode.apply(metadata.mode, metadata.file_type == FileType::Directory);
            file.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() })
        };
        fs.lookup(&place.path).and_then(|file| change(&file)).map_err(failed_at(place))?;
        if self.recursive { below(fs, place, false, report, &change) } else { Ok(()) }
    }
}

/// Change the owner of files on a disk
///
/// Names of users and groups are those that the disk's own /etc/passwd and /etc/group know.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant chown www-data:www-data disk.img:/srv/www\n  extant chown -R 1000:1000 disk.img:/home/user"
)]
pub struct Chown {
    /// Change what is in directories as well
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Change symbolic links, not what they name
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// USER, USER:GROUP, USER: or :GROUP
    owner: String,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Chown {
    /// Changes.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let places = self.places.iter().map(|place| DiskPath::parse(place));
        let mut report = Report::new(false);
        for place in places {
            let changed = disks.of(&place).and_then(|fs| self.change(&fs, &place, &mut report));
            report.unless_failed(changed);
        }
        disks.finish()?;
        Ok(report.exit())
    }

    fn change(&self, fs: &Filesystem, place: &DiskPath, report: &mut Report) -> Result<(), Failure> {
        let owner = Owner::parse(&self.owner, &names_on(fs))?;
        let change = |file: &File| set_owner(file, owner);
        let first = if self.no_dereference { fs.symlink_lookup(&place.path) } else { fs.lookup(&place.path) };
        first.and_then(|file| change(&file)).map_err(failed_at(place))?;
        if self.recursive { below(fs, place, true, report, &change) } else { Ok(()) }
    }
}

/// As the kernel does, takes away what would act for the new owner with the old one's rights: set-id bits and
/// capabilities.
fn set_owner(file: &File, owner: Owner) -> extant::Result<()> {
    let Owner { uid, gid } = owner;
    file.set_attributes(&SetAttributes { uid, gid, clear_set_id: true, ..SetAttributes::default() })?;
    match file.remove_xattr(b"security.capability") {
        Err(Error::NoAttribute) => Ok(()),
        other => other,
    }
}

/// Changes everything below a directory; a symbolic link itself, or not at all. What cannot be changed is reported, and
/// the rest is changed.
fn below(
    fs: &Filesystem,
    place: &DiskPath,
    links: bool,
    report: &mut Report,
    change: &dyn Fn(&File) -> extant::Result<()>,
) -> Result<(), Failure> {
    let first = fs.symlink_metadata(&place.path).map_err(failed_at(place))?;
    if first.file_type != FileType::Directory {
        return Ok(());
    }
    let root = fs.dir(&place.path).map_err(failed_at(place))?;
    for visited in Directories::new(place.clone(), root, ReadAhead::Inodes) {
        let Some(visited) = report.unless_failed(visited) else { continue };
        for entry in &visited.entries {
            let changed = visited.dir.lookup(&entry.name).and_then(|file| {
                let is_meant = links || file.metadata().file_type != FileType::Symlink;
                if is_meant { change(&file) } else { Ok(()) }
            });
            report.unless_failed(changed.map_err(failed_at(&child(&visited.place, &entry.name))));
        }
    }
    Ok(())
}
