//! `extant chmod`, `extant chown`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{File, FileType, Filesystem, SetAttributes};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Location, open_for_writing};
use crate::failure::Failure;
use crate::metadata::failed_at;
use crate::mode::ModeChange;
use crate::owner::{Owner, names_on};

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
    location: Location,
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
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            let change = |file: &File| {
                let metadata = file.metadata();
                let mode = self.mode.apply(metadata.mode, metadata.file_type == FileType::Directory);
                file.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() })
            };
            let first = fs.lookup(&place.path).map_err(failed_at(&place))?;
            change(&first).map_err(failed_at(&place))?;
            if self.recursive { below(&fs, &place, false, &change) } else { Ok(()) }
        });
        disks.finish()?;
        Ok(exit)
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
    location: Location,
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
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            let Owner { uid, gid } = Owner::parse(&self.owner, &names_on(&fs))?;
            let set = SetAttributes { uid, gid, clear_set_id: true, ..SetAttributes::default() };
            let change = |file: &File| file.set_attributes(&set);
            let first =
                if self.no_dereference { fs.symlink_lookup(&place.path) } else { fs.lookup(&place.path) };
            change(&first.map_err(failed_at(&place))?).map_err(failed_at(&place))?;
            if self.recursive { below(&fs, &place, true, &change) } else { Ok(()) }
        });
        disks.finish()?;
        Ok(exit)
    }
}

/// Changes everything below a directory; a symbolic link itself, or not at all.
fn below(
    fs: &Filesystem,
    place: &DiskPath,
    links: bool,
    change: &dyn Fn(&File) -> extant::Result<()>,
) -> Result<(), Failure> {
    let walk = || {
        let first = fs.symlink_lookup(&place.path)?;
        if first.metadata().file_type != FileType::Directory {
            return Ok(());
        }
        let mut seen = std::collections::HashSet::from([first.number()]);
        let mut pending = vec![fs.dir(&place.path)?];
        while let Some(dir) = pending.pop() {
            for entry in dir.entries()? {
                let file = dir.lookup(&entry.name)?;
                let file_type = file.metadata().file_type;
                if links || file_type != FileType::Symlink {
                    change(&file)?;
                }
                // On a damaged disk a directory may be its own ancestor.
                if file_type == FileType::Directory && seen.insert(file.number()) {
                    pending.push(dir.dir(&entry.name)?);
                }
            }
        }
        Ok(())
    };
    walk().map_err(failed_at(place))
}
