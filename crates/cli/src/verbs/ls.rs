//! `extant ls`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{Dir, File, FileType, Filesystem, ReadAhead};
use serde_json::{Map, Value, json};

use super::{Outcome, Report};
use crate::address::DiskPath;
use crate::colors::{ColorWhen, Colors};
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::{document, failed_at, permissions};
use crate::output::Output;
use crate::owner::NamesByNumber;
use crate::size;
use crate::tree::{Directories, Visited, child, sorted};

/// List directories on a disk
///
/// One name on a line, in the order of the bytes of the names. On a terminal, what cannot be printed is escaped.
/// Owners are named as the disk's own /etc/passwd and /etc/group name them. Times are in UTC. Colours are those of
/// LS_COLORS.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant ls disk.img\n  extant ls -lh disk.img:/etc\n  extant ls --json --partition 1 disk.img:/home"
)]
pub struct Ls {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Sizes as people read them: 1.5G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Tell type, permissions, links, owner, size and time
    #[arg(short)]
    long: bool,
    /// Tell owners by number
    #[arg(short)]
    numeric: bool,
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
    /// Colour names by what they are
    #[arg(long, value_name = "WHEN", default_value = "auto", num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    color: ColorWhen,
    #[command(flatten)]
    reading: Reading,
    /// What to list: IMAGE or IMAGE:/PATH
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<OsString>,
}

/// A name that is listed, and the file that has it, if that had to be looked at.
struct Row {
    name: Vec<u8>,
    file: Option<File>,
}

struct Listing<'a> {
    verb: &'a Ls,
    output: Output,
    documents: Vec<Value>,
    report: Report,
    colors: Option<Colors>,
    has_headings: bool,
    is_first: bool,
}

impl Ls {
    /// Lists.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut listing = Listing {
            verb: &self,
            output: Output::new(),
            documents: Vec::new(),
            report: Report::new(self.reading.json),
            colors: Colors::of_environment(self.color).filter(|_| !self.reading.json),
            has_headings: self.places.len() > 1 || self.recursive,
            is_first: true,
        };
        for place in self.places.iter().map(|place| DiskPath::parse(place)) {
            match disks.of(&place) {
                Ok(fs) => listing.place(&fs, place)?,
                Err(failure) => listing.report.tell(&failure),
            }
        }
        disks.finish()?;
        let Listing { mut output, documents, report, .. } = listing;
        if self.reading.json {
            output.json(&json!({ "listings": documents }))?;
        }
        output.finish()?;
        Ok(report.exit())
    }

    /// Whether names alone are shown, so that no inode has to be read.
    fn is_short(&self) -> bool {
        !self.long && !self.inode && !self.reading.json
    }
}

impl Listing<'_> {
    /// Lists what is at one place. What cannot be read is reported; output that cannot be written ends the list.
    fn place(&mut self, fs: &Filesystem, place: DiskPath) -> Result<(), Failure> {
        let names =
            if self.verb.long && !self.verb.numeric { NamesByNumber::on(fs) } else { Default::default() };
        let found = self.find(fs, &place).map_err(failed_at(&place));
        let Some((file, dir)) = self.report.unless_failed(found) else { return Ok(()) };
        let Some(dir) = dir else {
            let row = Row { name: place.path.as_os_str().as_encoded_bytes().to_vec(), file: Some(file) };
            return self.rows(&names, &place, vec![row]);
        };
        if self.verb.recursive {
            let needs_inodes = !self.verb.is_short() || self.colors.is_some();
            let what = if needs_inodes { ReadAhead::Inodes } else { ReadAhead::Names };
            for visited in Directories::new(place, dir, what) {
                if let Some(visited) = self.report.unless_failed(visited) {
                    self.directory(&names, &visited)?;
                }
            }
            return Ok(());
        }
        let entries = sorted(&dir).map_err(failed_at(&place));
        let Some(entries) = self.report.unless_failed(entries) else { return Ok(()) };
        self.directory(&names, &Visited { place, dir, entries })
    }

    /// What is to be listed: a file, or what is in a directory.
    fn find(&self, fs: &Filesystem, place: &DiskPath) -> extant::Result<(File, Option<Dir>)> {
        let file = fs.symlink_lookup(&place.path)?;
        // A link to a directory is listed as the directory only if it is not looked at closely, as ls does.
        let follows = !self.verb.long && !self.verb.directory
            || place.path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let file = if follows { fs.lookup(&place.path).unwrap_or(file) } else { file };
        let is_listed = file.metadata().file_type == FileType::Directory && !self.verb.directory;
        let dir = if is_listed { Some(fs.dir(&place.path)?) } else { None };
        Ok((file, dir))
    }

    fn directory(&mut self, names: &NamesByNumber, visited: &Visited) -> Result<(), Failure> {
        let place = &visited.place;
        if self.has_headings && !self.verb.reading.json {
            let heading = self.output.name(place.to_string().as_bytes());
            self.output.bytes(if self.is_first { b"" } else { b"\n" })?;
            self.output.line([heading.as_slice(), b":"].concat())?;
        }
        let dots: &[&[u8]] = if self.verb.all { &[b".", b".."] } else { &[] };
        let shown = visited.entries.iter().map(|entry| entry.name.as_slice());
        let shown = dots.iter().copied().chain(shown.filter(|name| self.verb.all || !name.starts_with(b".")));
        let mut rows = Vec::new();
        for name in shown {
            let mut file = None;
            if !self.verb.is_short() || self.colors.is_some() {
                let found = visited.dir.lookup(name).map_err(failed_at(&child(place, name)));
                let Some(found) = self.report.unless_failed(found) else { continue };
                file = Some(found);
            }
            rows.push(Row { name: name.to_vec(), file });
        }
        self.rows(names, place, rows)
    }

    fn rows(&mut self, names: &NamesByNumber, place: &DiskPath, rows: Vec<Row>) -> Result<(), Failure> {
        self.is_first = false;
        if self.verb.reading.json {
            let mut object = Map::new();
            object.insert("image".to_owned(), place.image.display().to_string().into());
            put_text(&mut object, "path", place.path.as_os_str().as_encoded_bytes());
            let entries = rows.iter().filter_map(|row| {
                let mut entry = Map::new();
                put_text(&mut entry, "name", &row.name);
                let fields = row.file.as_ref().map_or(Ok(Map::new()), document);
                entry.extend(self.report.unless_failed(fields.map_err(failed_at(&child(place, &row.name))))?);
                Some(Value::Object(entry))
            });
            let entries = entries.collect();
            object.insert("entries".to_owned(), Value::Array(entries));
            self.documents.push(Value::Object(object));
            return Ok(());
        }
        let columns: Vec<_> = rows.iter().map(|row| columns(row, names, self.verb.human_readable)).collect();
        let width = |column: usize| {
            columns.iter().flatten().map(|columns| columns[column].chars().count()).max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2), width(3)];
        for (row, columns) in rows.iter().zip(&columns) {
            self.row(place, row, columns.as_ref(), widths)?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        place: &DiskPath,
        row: &Row,
        columns: Option<&[String; 4]>,
        widths: [usize; 4],
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        if let (Some(file), true) = (&row.file, self.verb.inode) {
            line.extend(format!("{:>7} ", file.number().0).bytes());
        }
        let long = row.file.as_ref().zip(columns).filter(|_| self.verb.long);
        if let Some((file, [links, user, group, size])) = long {
            let metadata = file.metadata();
            let [a, b, c, d] = widths;
            line.extend(permissions(&metadata).bytes());
            line.extend(format!(" {links:>a$} {user:<b$} {group:<c$} {size:>d$}").bytes());
            line.extend(format!(" {} ", &metadata.mtime.date_time()[..16]).bytes());
        }
        let name = self.output.name(&row.name);
        line.extend(match (&self.colors, &row.file) {
            (Some(colors), Some(file)) => colors.paint(name, &row.name, &file.metadata()),
            _ => name,
        });
        if let Some((file, _)) = long
            && file.metadata().file_type == FileType::Symlink
        {
            let target = file.read_link().map_err(failed_at(&child(place, &row.name)));
            let target = self.report.unless_failed(target).unwrap_or_default();
            line.extend([b" -> ".as_slice(), &self.output.name(&target)].concat());
        }
        self.output.line(line)
    }
}

fn columns(row: &Row, names: &NamesByNumber, is_human: bool) -> Option<[String; 4]> {
    let metadata = row.file.as_ref()?.metadata();
    let size = match metadata.file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", metadata.device.0, metadata.device.1)
        }
        _ if is_human => size::short(metadata.size),
        _ => metadata.size.to_string(),
    };
    Some([metadata.links.to_string(), names.user(metadata.uid), names.group(metadata.gid), size])
}
