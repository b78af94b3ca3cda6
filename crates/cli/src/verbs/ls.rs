//! `extant ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use extant::{File, FileType, Filesystem};
use serde_json::{Map, Value, json};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::{date, document, failed_at, permissions};
use crate::output::Output;

/// List directories on a disk
///
/// One name on a line, in the order of the bytes of the names. On a terminal, what cannot be printed is escaped.
/// Times are in UTC.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant ls disk.img\n  extant ls -l disk.img:/etc\n  extant ls --json --partition 1 disk.img:/home"
)]
pub struct Ls {
    /// Tell type, permissions, links, owner, size and time
    #[arg(short)]
    long: bool,
    /// Show `.` and `..` and names that begin with a dot
    #[arg(short)]
    all: bool,
    /// Show inode numbers
    #[arg(short)]
    inode: bool,
    /// Show directories themselves, not what is in them
    #[arg(short)]
    directory: bool,
    /// Go down into directories
    #[arg(short = 'R')]
    recursive: bool,
    #[command(flatten)]
    reading: Reading,
    /// What to list: IMAGE or IMAGE:/PATH
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<OsString>,
}

/// A name and the file that has it.
type Named = (Vec<u8>, File);

/// The path and the entries of one directory; a file's own entry has no path.
struct Listing {
    place: DiskPath,
    is_directory: bool,
    entries: Vec<Named>,
}

impl Ls {
    /// Lists.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut output = Output::new();
        let mut documents = Vec::new();
        let places: Vec<_> = self.places.iter().map(|place| DiskPath::parse(place)).collect();
        let has_headings = places.len() > 1 || self.recursive;
        let mut is_first = true;
        let exit = for_each(places, self.reading.json, |place| {
            let fs = disks.of(&place)?;
            let mut pending = vec![place];
            while let Some(place) = pending.pop() {
                let listing = self.list(&fs, place)?;
                if self.recursive && listing.is_directory {
                    pending.extend(below(&listing));
                }
                if self.reading.json {
                    documents.push(listing_document(&listing)?);
                } else {
                    if has_headings && listing.is_directory {
                        let heading = output.name(listing.place.to_string().as_bytes());
                        output.bytes(if is_first { b"" } else { b"\n" })?;
                        output.line([heading.as_slice(), b":"].concat())?;
                    }
                    self.write(&listing, &mut output)?;
                }
                is_first = false;
            }
            Ok(())
        });
        disks.finish()?;
        if self.reading.json {
            output.json(&json!({ "listings": documents }))?;
        }
        output.finish()?;
        Ok(exit)
    }

    fn list(&self, fs: &Filesystem, place: DiskPath) -> Result<Listing, Failure> {
        let file = fs.symlink_lookup(&place.path).map_err(failed_at(&place))?;
        // A link to a directory is listed as the directory only if it is not looked at closely, as ls does.
        let follows = !self.long && !self.directory || place.path.as_os_str().as_bytes().ends_with(b"/");
        let file = if follows { fs.lookup(&place.path).unwrap_or(file) } else { file };
        if file.metadata().file_type != FileType::Directory || self.directory {
            let entries = vec![(place.path.as_os_str().as_bytes().to_vec(), file)];
            return Ok(Listing { place, is_directory: false, entries });
        }
        let dir = fs.dir(&place.path).map_err(failed_at(&place))?;
        let mut entries = Vec::new();
        if self.all {
            for dots in [&b"."[..], b".."] {
                entries.push((dots.to_vec(), dir.lookup(dots).map_err(failed_at(&place))?));
            }
        }
        let mut names: Vec<_> =
            dir.entries().map_err(failed_at(&place))?.into_iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        for name in names.into_iter().filter(|name| self.all || !name.starts_with(b".")) {
            let file = dir.lookup(&name).map_err(failed_at(&child(&place, &name)))?;
            entries.push((name, file));
        }
        Ok(Listing { place, is_directory: true, entries })
    }

    fn write(&self, listing: &Listing, output: &mut Output) -> Result<(), Failure> {
        let rows = listing.entries.iter().map(|(_, file)| {
            let metadata = file.metadata();
            let size = match metadata.file_type {
                FileType::CharDevice | FileType::BlockDevice => {
                    format!("{}, {}", metadata.device.0, metadata.device.1)
                }
                _ => metadata.size.to_string(),
            };
            [metadata.links.to_string(), metadata.uid.to_string(), metadata.gid.to_string(), size]
        });
        let rows: Vec<_> = rows.collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        for ((name, file), row) in listing.entries.iter().zip(&rows) {
            let metadata = file.metadata();
            let mut line = Vec::new();
            if self.inode {
                line.extend(format!("{:>7} ", metadata.inode.0).bytes());
            }
            if self.long {
                line.extend(permissions(&metadata).bytes());
                for (text, width) in row.iter().zip(widths) {
                    line.extend(format!(" {text:>width$}").bytes());
                }
                line.extend(format!(" {} ", &date(metadata.mtime)[..16]).bytes());
            }
            line.extend(output.name(name));
            if self.long && metadata.file_type == FileType::Symlink {
                let target = file.read_link().map_err(failed_at(&child(&listing.place, name)))?;
                line.extend([b" -> ".as_slice(), &output.name(&target)].concat());
            }
            output.line(line)?;
        }
        Ok(())
    }
}

fn child(place: &DiskPath, name: &[u8]) -> DiskPath {
    DiskPath { image: place.image.clone(), path: place.path.join(std::ffi::OsStr::from_bytes(name)) }
}

/// The directories in a listing, the first one last.
fn below(listing: &Listing) -> Vec<DiskPath> {
    let is_below = |(name, file): &&Named| {
        !matches!(name.as_slice(), b"." | b"..") && file.metadata().file_type == FileType::Directory
    };
    listing.entries.iter().filter(is_below).map(|(name, _)| child(&listing.place, name)).rev().collect()
}

fn listing_document(listing: &Listing) -> Result<Value, Failure> {
    let mut object = Map::new();
    object.insert("image".to_owned(), listing.place.image.display().to_string().into());
    put_text(&mut object, "path", listing.place.path.as_os_str().as_bytes());
    let entries = listing.entries.iter().map(|(name, file)| {
        let mut entry = Map::new();
        put_text(&mut entry, "name", name);
        entry.extend(document(file).map_err(failed_at(&child(&listing.place, name)))?);
        Ok(Value::Object(entry))
    });
    object.insert("entries".to_owned(), Value::Array(entries.collect::<Result<_, Failure>>()?));
    Ok(Value::Object(object))
}
