//! `extant diff`.

use std::path::{Path, PathBuf};

use clap::Args;
use extant_archive::{Aspect, Change, ChangeKind, Difference};
use serde_json::{Map, Value, json};

use super::Outcome;
use crate::disks::{Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::output::{self, Output};
use crate::progress::{Compared, Display, ProgressForm};

/// Exit status of diff: there are differences.
const EXIT_DIFFERENT: u8 = 1;
/// Exit status of diff: it could not be found out.
const EXIT_TROUBLE: u8 = 2;

/// List the files that differ between two disks
///
/// A line for each file of IMAGE that is not as in BASE: A added, C changed, D deleted, as podman diff marks them; behind a changed one
/// is what changed. Compared are types, contents, modes, owners, times of modification, extended attributes and hard links. Of a
/// directory that is gone only itself is listed. Neither disk is written to.
///
/// If one disk was copied from the other and both were unmounted, a file whose inode has the same bytes on both is taken as unchanged,
/// unless its times are in whole seconds. The contents of all other files of equal sizes are read.
///
/// Exits with 0 if nothing differs, 1 if something does, 2 if it could not be found out.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant diff base.img guest.img\n  extant diff base.img guest.img /etc\n  extant diff --json base.img guest.img"
)]
pub struct Diff {
    #[command(flatten)]
    reading: Reading,
    /// Read and compare the contents of all files, whatever their inodes say
    #[arg(short, long)]
    checksum: bool,
    /// The disk to compare with
    base: PathBuf,
    /// The disk that was changed
    image: PathBuf,
    /// Only what is at and below this path of both disks
    #[arg(default_value = "/", hide_default_value = true)]
    path: PathBuf,
}

impl Diff {
    /// Compares.
    pub fn run(self) -> Outcome {
        match self.compare() {
            Ok(false) => Ok(0),
            Ok(true) => Ok(EXIT_DIFFERENT),
            Err(failure) => {
                output::report(&failure, self.reading.json);
                Ok(EXIT_TROUBLE)
            }
        }
    }

    /// Whether something differs.
    fn compare(&self) -> Result<bool, Failure> {
        let base = open_for_reading(&self.base, self.reading)?;
        let disk = open_for_reading(&self.image, self.reading)?;
        let mut output = Output::new();
        let mut documents = Vec::new();
        let mut unwritten = None;
        let mut differs = false;
        let difference = Difference::new(&base, &disk).root(&self.path).reads_all(self.checksum);
        let display = Display::new(ProgressForm::new(self.reading.json, false));
        let mut compared = Compared(0);
        let met = || {
            compared.0 += 1;
            display.show(&compared);
        };
        let visited = difference.visit(met, |change| {
            differs = true;
            let path = full_path(&self.path, &change);
            if self.reading.json {
                documents.push(document(&path, &change.kind));
                return Ok(());
            }
            output.line([letter(&change.kind), output.name(&path), remark(&change.kind)].concat()).map_err(
                |failure| {
                    unwritten = Some(failure);
                    extant_archive::Error::Cancelled
                },
            )
        });
        drop(display);
        if let Some(failure) = unwritten {
            return Err(failure);
        }
        visited.map_err(|error| Failure::comparing(&self.base, &self.image, &self.path, error))?;
        if self.reading.json {
            output.json(&json!({
                "base": self.base.display().to_string(),
                "image": self.image.display().to_string(),
                "changes": documents,
            }))?;
        }
        output.finish()?;
        Ok(differs)
    }
}

/// The path on the disks.
fn full_path(root: &Path, change: &Change) -> Vec<u8> {
    let root = root.as_os_str().as_encoded_bytes().trim_ascii_end();
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let path = [root, b"/", &change.path.to_bytes()].concat();
    if path.len() > 1 && change.path.is_root() { path[..path.len() - 1].to_vec() } else { path }
}

fn letter(kind: &ChangeKind) -> Vec<u8> {
    match kind {
        ChangeKind::Added => b"A ",
        ChangeKind::Changed(_) => b"C ",
        ChangeKind::Removed => b"D ",
    }
    .to_vec()
}

fn remark(kind: &ChangeKind) -> Vec<u8> {
    let ChangeKind::Changed(aspects) = kind else { return Vec::new() };
    let words: Vec<_> = aspects.iter().copied().map(word).collect();
    format!(" ({})", words.join(", ")).into_bytes()
}

fn word(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Type => "type",
        Aspect::Content => "content",
        Aspect::Mode => "mode",
        Aspect::Owner => "owner",
        Aspect::Mtime => "mtime",
        Aspect::Xattrs => "xattrs",
        Aspect::Links => "links",
    }
}

fn document(path: &[u8], kind: &ChangeKind) -> Value {
    let mut object = Map::new();
    put_text(&mut object, "path", path);
    let change = match kind {
        ChangeKind::Added => "added",
        ChangeKind::Changed(_) => "changed",
        ChangeKind::Removed => "deleted",
    };
    object.insert("change".to_owned(), change.into());
    if let ChangeKind::Changed(aspects) = kind {
        let words: Vec<_> = aspects.iter().copied().map(word).collect();
        object.insert("differs_in".to_owned(), words.into());
    }
    Value::Object(object)
}
