//! `extant find`.

mod pattern;

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{FileType, Filesystem, Metadata, ReadAhead, Timestamp};
use extant_block::os_string;
use serde_json::{Map, Value, json};

use super::{Outcome, Report};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::{failed_at, kind};
use crate::output::Output;
use crate::size;
use crate::tree::{Directories, child};
use pattern::matches;

/// Tests of find that begin with one dash, as find has them.
const TESTS: [&str; 6] = ["-name", "-type", "-size", "-mindepth", "-maxdepth", "-newer"];

/// Find files on a disk
///
/// All tests must hold. They may be written with one dash, as find has them. Symbolic links are not followed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant find disk.img:/etc -name '*.conf'\n  extant find disk.img -type f -size +10M\n  extant find disk.img -newer disk.img:/etc/hostname"
)]
pub struct Find {
    /// The last name matches a pattern of the shell
    #[arg(long, value_name = "PATTERN")]
    name: Option<OsString>,
    /// The kind: f, d, l, p, s, c or b
    #[arg(long = "type", value_name = "KIND", value_parser = parse_type)]
    file_type: Option<FileType>,
    /// The size: +10M for more than, -10M for less than, without a sign exactly; a bare number counts 512 bytes, as in
    /// find
    #[arg(long, value_name = "[+-]SIZE", value_parser = Size::parse, allow_hyphen_values = true)]
    size: Option<Size>,
    /// At least so many levels below what is named
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<usize>,
    /// At most so many levels below what is named
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<usize>,
    /// Changed later than this file
    #[arg(long, value_name = "IMAGE:/FILE")]
    newer: Option<OsString>,
    #[command(flatten)]
    reading: Reading,
    /// Where to look
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<OsString>,
}

/// What a size is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl Size {
    fn parse(text: &str) -> Result<Self, String> {
        let bytes = |text| size::parse(text, 512);
        Ok(match text.as_bytes().first() {
            Some(b'+') => Self::More(bytes(&text[1..])?),
            Some(b'-') => Self::Less(bytes(&text[1..])?),
            _ => Self::Exactly(bytes(text)?),
        })
    }

    fn holds(self, bytes: u64) -> bool {
        match self {
            Self::More(least) => bytes > least,
            Self::Less(most) => bytes < most,
            Self::Exactly(size) => bytes == size,
        }
    }
}

fn parse_type(text: &str) -> Result<FileType, String> {
    Ok(match text {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        "c" => FileType::CharDevice,
        "b" => FileType::BlockDevice,
        _ => return Err(format!("'{text}' is none of f, d, l, p, s, c and b")),
    })
}

/// The arguments with the tests of find spelled with two dashes.
pub fn with_two_dashes(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_find = arguments.get(1).is_some_and(|verb| verb == "find");
    let spell = |argument: OsString| match TESTS.iter().any(|test| argument == *test) {
        true => os_string([b"-", argument.as_encoded_bytes()].concat()),
        false => argument,
    };
    if is_find { arguments.into_iter().map(spell).collect() } else { arguments }
}

impl Find {
    /// Finds.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut report = Report::new(self.reading.json);
        let mut output = Output::new();
        let mut documents = Vec::new();
        let newer = match &self.newer {
            Some(place) => {
                let place = DiskPath::parse_below_root(place)?;
                Some(disks.of(&place)?.metadata(&place.path).map_err(failed_at(&place))?.mtime)
            }
            None => None,
        };
        for place in self.places.iter().map(|place| DiskPath::parse(place)) {
            let mut found = |place: &DiskPath, metadata: &Metadata| {
                if self.reading.json {
                    let mut object = Map::new();
                    object.insert("image".to_owned(), place.image.display().to_string().into());
                    put_text(&mut object, "path", place.path.as_os_str().as_encoded_bytes());
                    object.insert("type".to_owned(), kind(metadata.file_type).into());
                    object.insert("size_bytes".to_owned(), metadata.size.into());
                    documents.push(Value::Object(object));
                    return Ok(());
                }
                let name = output.name(place.path.as_os_str().as_encoded_bytes());
                output.line(name)
            };
            match disks.of(&place) {
                Ok(fs) => self.look(&fs, &place, newer, &mut report, &mut found)?,
                Err(failure) => report.tell(&failure),
            }
        }
        disks.finish()?;
        if self.reading.json {
            output.json(&json!({ "files": documents }))?;
        }
        output.finish()?;
        Ok(report.exit())
    }

    /// Looks at `place` and below. What cannot be read is reported; output that cannot be written ends the search.
    fn look(
        &self,
        fs: &Filesystem,
        place: &DiskPath,
        newer: Option<Timestamp>,
        report: &mut Report,
        found: &mut dyn FnMut(&DiskPath, &Metadata) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let first = fs.symlink_metadata(&place.path).map_err(failed_at(place));
        let Some(first) = report.unless_failed(first) else { return Ok(()) };
        if self.holds(place, 0, &first, newer) {
            found(place, &first)?;
        }
        if first.file_type != FileType::Directory || self.maxdepth == Some(0) {
            return Ok(());
        }
        let dir = fs.dir(&place.path).map_err(failed_at(place));
        let Some(dir) = report.unless_failed(dir) else { return Ok(()) };
        let depth_of = |path: &Path| path.components().count();
        let top = depth_of(&place.path);
        for visited in Directories::new(place.clone(), dir, ReadAhead::Inodes) {
            let Some(visited) = report.unless_failed(visited) else { continue };
            let depth = depth_of(&visited.place.path) - top + 1;
            if self.maxdepth.is_some_and(|most| depth > most) {
                continue;
            }
            for entry in &visited.entries {
                let place = child(&visited.place, &entry.name);
                let metadata = visited.dir.symlink_metadata(&entry.name).map_err(failed_at(&place));
                let Some(metadata) = report.unless_failed(metadata) else { continue };
                if self.holds(&place, depth, &metadata, newer) {
                    found(&place, &metadata)?;
                }
            }
        }
        Ok(())
    }

    fn holds(&self, place: &DiskPath, depth: usize, metadata: &Metadata, newer: Option<Timestamp>) -> bool {
        let name = place.path.file_name().unwrap_or(place.path.as_os_str());
        let time = |time: Timestamp| (time.seconds, time.nanoseconds);
        self.mindepth.is_none_or(|least| depth >= least)
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| matches(pattern.as_encoded_bytes(), name.as_encoded_bytes()))
            && self.file_type.is_none_or(|wanted| wanted == metadata.file_type)
            && self.size.is_none_or(|size| size.holds(metadata.size))
            && newer.is_none_or(|newer| time(metadata.mtime) > time(newer))
    }
}
