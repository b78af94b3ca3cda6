//! `extant rm`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{Error, FileType, Filesystem, ReadAhead};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, ImageLocation, open_for_writing};
use crate::metadata::failed_at;
use crate::output::{Output, escape};
use crate::tree::{Directories, child};

/// Remove files and directories on a disk
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant rm disk.img:/etc/ssh/ssh_host_rsa_key\n  extant rm -r disk.img:/var/cache/apt"
)]
pub struct Rm {
    /// Remove directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// Say nothing of what does not exist
    #[arg(short, long)]
    force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Tell what is removed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Rm {
    /// Removes.
    pub fn run(self) -> Outcome {
        let places = DiskPath::parse_all_below_root(&self.places)?;
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let mut output = Output::new();
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            let remove = || -> extant::Result<_> {
                let is_directory = fs.symlink_metadata(&place.path)?.file_type == FileType::Directory;
                let names = if self.verbose { below(&fs, &place, is_directory)? } else { Vec::new() };
                match (is_directory, self.recursive, self.dir) {
                    (true, true, _) => fs.remove_dir_all(&place.path),
                    (true, false, true) => fs.remove_dir(&place.path),
                    _ => fs.remove_file(&place.path),
                }?;
                Ok(names)
            };
            match remove() {
                Err(error) if self.force && matches!(error.cause(), Error::NotFound) => Ok(()),
                Ok(names) => names.iter().try_for_each(|(name, is_directory)| {
                    let what = if *is_directory { "directory " } else { "" };
                    output.line(format!("removed {what}'{}'", escape(name.to_string().as_bytes())))
                }),
                Err(error) => Err(failed_at(&place)(error)),
            }
        });
        output.finish()?;
        disks.finish()?;
        Ok(exit)
    }
}

/// What is removed with `place`, in the order of removal, and whether each is a directory.
fn below(fs: &Filesystem, place: &DiskPath, is_directory: bool) -> extant::Result<Vec<(DiskPath, bool)>> {
    let mut names = vec![(place.clone(), is_directory)];
    if is_directory {
        // What cannot be read fails to be removed as well.
        for visited in Directories::new(place.clone(), fs.dir(&place.path)?, ReadAhead::Inodes).flatten() {
            for entry in &visited.entries {
                let is_directory =
                    visited.dir.symlink_metadata(&entry.name)?.file_type == FileType::Directory;
                names.push((child(&visited.place, &entry.name), is_directory));
            }
        }
    }
    names.reverse();
    Ok(names)
}
