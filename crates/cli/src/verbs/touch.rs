//! `extant touch`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{Error, Filesystem, Times, Timestamp};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, ImageLocation, clock, open_for_writing};
use crate::failure::Failure;
use crate::metadata::failed_at;

/// Set the times of files on a disk to now, and make those that are missing
///
/// A new file is empty, belongs to 0:0 and has mode 644. A symbolic link is followed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant touch disk.img:/.autorelabel\n  extant touch -c -d @1700000000 disk.img:/etc/passwd"
)]
pub struct Touch {
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The time: @SECONDS since 1970
    #[arg(short, long, value_name = "@SECONDS", value_parser = parse_time)]
    date: Option<i64>,
    #[command(flatten)]
    location: ImageLocation,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

fn parse_time(text: &str) -> Result<i64, String> {
    let seconds = text.strip_prefix('@').and_then(|digits| digits.parse().ok());
    seconds.ok_or_else(|| format!("'{text}' is not @SECONDS, as in @1700000000"))
}

impl Touch {
    /// Sets them.
    pub fn run(self) -> Outcome {
        let places = DiskPath::parse_all_below_root(&self.places)?;
        let (seconds, nanoseconds) = match self.date {
            Some(seconds) => (seconds, 0),
            None => clock()?.now(),
        };
        let moment = Timestamp { seconds, nanoseconds };
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            self.touch(&fs, &place, Times { atime: moment, mtime: moment })
        });
        disks.finish()?;
        Ok(exit)
    }

    fn touch(&self, fs: &Filesystem, place: &DiskPath, times: Times) -> Result<(), Failure> {
        let made = match fs.lookup(&place.path).map_err(Error::into_cause) {
            Err(Error::NotFound) if self.no_create => return Ok(()),
            Err(Error::NotFound) => fs.write(&place.path, b""),
            other => other.map(drop),
        };
        made.and_then(|()| fs.set_times(&place.path, times)).map_err(failed_at(place))
    }
}
