//! `extant defrag`.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use extant::{DefragEvent, DefragOptions, Defragmented};
use extant_block::defrag_mounted;
use serde_json::{Map, Value, json};

use super::Outcome;
use super::frag::Layout;
use crate::address::DiskPath;
use crate::disks::{ImageLocation, Reading, errors_met, open_for_reading, open_for_writing, unmount};
use crate::failure::{EXIT_FAILED, Failure};
use crate::json::put_text;
use crate::mounts;
use crate::output::{self, Output};
use crate::progress::{Display, ProgressForm, Stage, object, rate};
use crate::size;

/// Bring files into fewer extents, directories into fewer blocks, and free space into longer runs
///
/// Works on PATH and what is below it; free space is joined if that is the whole disk. A dirty journal is replayed first. Content, times,
/// attributes and inode numbers stay. Each move is one transaction: a crash leaves the disk whole, and the same command goes on.
/// Immutable files, swap files and the disk's own files stay where they are. DIR is a directory of a disk that Extant has mounted, or a
/// file there, and is defragmented while it is in use, which is for root or who mounted it.
#[derive(Args)]
#[command(after_help = "\
A line is written for each file and directory that changed, or that stays as it is for a reason: a file that is fragmented while
no free run is long enough, for one. `extant frag` says how a disk is broken up, `extant trim` gives free space back to the host.

Examples:
  extant defrag --dry-run disk.img
  extant defrag disk.img
  extant defrag disk.img:/var/lib/db
  extant defrag dir")]
pub struct Defrag {
    #[command(flatten)]
    location: ImageLocation,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    /// What to defragment
    #[arg(value_name = "IMAGE[:/PATH]|DIR")]
    place: OsString,
}

/// Reports on files, by line or by object.
struct Lines<'d> {
    as_json: bool,
    place: &'d DiskPath,
    output: Output,
    /// The first failure to write a line.
    written: Result<(), Failure>,
    files: Vec<Value>,
}

impl Lines<'_> {
    fn add(&mut self, event: &DefragEvent<'_>) {
        let (path, what, line) = match event {
            DefragEvent::File { path, runs } => (
                path,
                json!({ "extents_before": runs.before, "extents_after": runs.after, "moved_bytes": runs.moved_bytes }),
                format!("{} extents, before {}", runs.after, runs.before),
            ),
            DefragEvent::Directory { path, blocks, runs, .. } => (
                path,
                json!({
                    "extents_before": runs.before,
                    "extents_after": runs.after,
                    "blocks_before": blocks.before,
                    "blocks_after": blocks.after,
                    "moved_bytes": blocks.moved_bytes,
                }),
                format!(
                    "{} blocks, before {}; {} extents, before {}",
                    blocks.after, blocks.before, runs.after, runs.before
                ),
            ),
            DefragEvent::Left { path, reason } => {
                (path, json!({ "left_because": reason }), format!("left as it is: {reason}"))
            }
            DefragEvent::Failed { path, error } => {
                output::report(&Failure::disk(self.at(path), error), self.as_json);
                return;
            }
            _ => return,
        };
        if self.as_json {
            let mut object = Map::new();
            put_text(&mut object, "path", path.as_os_str().as_encoded_bytes());
            object.extend(what.as_object().cloned().unwrap_or_default());
            self.files.push(Value::Object(object));
        } else if self.written.is_ok() {
            let name = self.output.name(path.as_os_str().as_encoded_bytes());
            self.written = self.output.line([&name, b": ".as_slice(), line.as_bytes()].concat());
        }
    }

    fn at(&self, path: &Path) -> DiskPath {
        DiskPath { image: self.place.image.clone(), path: path.to_owned() }
    }
}

impl Defrag {
    /// Defragments.
    pub fn run(self) -> Outcome {
        let place = DiskPath::parse(&self.place);
        let is_directory = place.path == Path::new("/") && place.image.is_dir();
        if is_directory || mounts::ours_around(&place.image)?.is_some() {
            return self.defrag_mount(&place.image);
        }
        let fs = match self.dry_run {
            true => {
                open_for_reading(&place.image, Reading { location: self.location, ..Reading::default() })?
            }
            false => open_for_writing(&place.image, self.location)?,
        };
        let failed = |error: extant::Error| Failure::disk(&place, &error);
        if !self.dry_run
            && let Some(met) = errors_met(&fs)
        {
            // Blocks that two files have would be freed when one has moved.
            return Err(Failure::new("corrupt", place.image.display().to_string(), met));
        }
        let before = Layout::of(&fs).map_err(failed)?;
        let display = Display::new(ProgressForm::new(self.json, false));
        let mut lines = Lines {
            as_json: self.json,
            place: &place,
            output: Output::new(),
            written: Ok(()),
            files: Vec::new(),
        };
        let options = DefragOptions { dry_run: self.dry_run };
        let done = fs.defrag(&place.path, &options, &mut |event| {
            match event {
                DefragEvent::Moved { moved_bytes } => display.show(&Moved(moved_bytes)),
                event => lines.add(&event),
            }
            // Who reads no further wants no more.
            lines.written.is_ok()
        });
        drop(display);
        let after = Layout::of(&fs).map_err(failed)?;
        let block_bytes = u64::from(fs.statistics().block_size);
        let Lines { output, written, files, .. } = lines;
        // The disk is left clean whatever the output came to.
        let unmounted = if self.dry_run { Ok(()) } else { unmount(&place.image, fs) };
        written?;
        let done = done.map_err(failed)?;
        unmounted?;
        let layouts = Layouts { before, after, block_bytes };
        self.tell(&place, &done, &layouts, (output, files))?;
        Ok(if done.failed > 0 { EXIT_FAILED } else { 0 })
    }

    fn tell(
        &self,
        place: &DiskPath,
        done: &Defragmented,
        layouts: &Layouts,
        (mut output, files): (Output, Vec<Value>),
    ) -> Result<(), Failure> {
        if self.json {
            let mut document = sums(&place.image, self.dry_run, done);
            put_text(&mut document, "path", place.path.as_os_str().as_encoded_bytes());
            document.insert("entries".to_owned(), files.into());
            document.insert("before".to_owned(), layouts.before.document(layouts.block_bytes));
            if !self.dry_run {
                document.insert("after".to_owned(), layouts.after.document(layouts.block_bytes));
            }
            output.json(&document.into())?;
            return output.finish();
        }
        if done.joined_runs > 0 {
            output.line(format!("free space: {} extents of files moved to join it", done.joined_runs))?;
        }
        output.line(summary(&place.image, self.dry_run, done))?;
        if self.dry_run {
            output.line(layouts.line("now", &layouts.before))?;
        } else {
            output.line(layouts.line("before", &layouts.before))?;
            output.line(layouts.line("after", &layouts.after))?;
        }
        output.finish()
    }

    fn defrag_mount(&self, dir: &Path) -> Outcome {
        let Some(_) = mounts::ours_around(dir)? else {
            let failure = mounts::not_ours(dir);
            let message =
                format!("{}; of a disk that the kernel has mounted e4defrag rewrites files", failure.message);
            return Err(Failure { message, ..failure });
        };
        let done = defrag_mounted(dir, self.dry_run).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Failure::new(
                "unsupported",
                dir.display().to_string(),
                "its server is of a version that cannot defragment",
            ),
            _ => Failure::host(dir, &error),
        })?;
        let mut output = Output::new();
        if self.json {
            output.json(&sums(dir, self.dry_run, &done).into())?;
        } else {
            output.line(summary(dir, self.dry_run, &done))?;
        }
        output.finish()?;
        Ok(if done.failed > 0 { EXIT_FAILED } else { 0 })
    }
}

fn sums(place: &Path, is_dry_run: bool, done: &Defragmented) -> Map<String, Value> {
    object([
        ("image", place.display().to_string().into()),
        ("is_dry_run", is_dry_run.into()),
        ("files", done.files.into()),
        ("directories", done.directories.into()),
        ("extents_before", done.runs_before.into()),
        ("extents_after", done.runs_after.into()),
        ("joined_extents", done.joined_runs.into()),
        ("moved_bytes", done.moved_bytes.into()),
        ("left", done.left.into()),
        ("failed", done.failed.into()),
    ])
}

fn summary(place: &Path, is_dry_run: bool, done: &Defragmented) -> String {
    let (place, prefix) = (place.display(), if is_dry_run { "would be: " } else { "" });
    let mut line = format!(
        "{place}: {prefix}{} files and {} directories in {} extents, before {}; {} copied",
        done.files,
        done.directories,
        done.runs_after,
        done.runs_before,
        size::show(done.moved_bytes)
    );
    for (count, words) in [(done.left, "left as they are"), (done.failed, "failed")] {
        if count > 0 {
            line += &format!("; {count} {words}");
        }
    }
    line
}

/// How the disk is broken up before and after.
struct Layouts {
    before: Layout,
    after: Layout,
    block_bytes: u64,
}

impl Layouts {
    fn line(&self, when: &str, layout: &Layout) -> String {
        format!(
            "{when}: {} extents where {} would do, score {}; free space in {} runs, the longest {}",
            layout.extents.runs(),
            layout.needed,
            layout.score(),
            layout.free.runs(),
            size::show(layout.longest * self.block_bytes)
        )
    }
}

/// Bytes that were copied.
struct Moved(u64);

impl Stage for Moved {
    fn line(&self, elapsed: Duration) -> String {
        format!("{} copied, {}", size::show(self.0), rate(self.0, elapsed))
    }

    fn event(&self) -> Map<String, Value> {
        object([("step", "copy".into()), ("done_bytes", self.0.into())])
    }
}
