//! `extant rm`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{Error, FileType};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Location, open_for_writing};
use crate::metadata::failed_at;

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
    #[command(flatten)]
    location: Location,
    /// What to remove
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Rm {
    /// Removes.
    pub fn run(self) -> Outcome {
        let places = self
            .places
            .iter()
            .map(|place| DiskPath::parse_below_root(place))
            .collect::<Result<Vec<_>, _>>()?;
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            let remove = || {
                let is_directory = fs.symlink_metadata(&place.path)?.file_type == FileType::Directory;
                match (is_directory, self.recursive, self.dir) {
                    (true, true, _) => fs.remove_dir_all(&place.path),
                    (true, false, true) => fs.remove_dir(&place.path),
                    _ => fs.remove_file(&place.path),
                }
            };
            match remove() {
                Err(Error::NotFound) if self.force => Ok(()),
                other => other.map_err(failed_at(&place)),
            }
        });
        disks.finish()?;
        Ok(exit)
    }
}
