//! `extant check`.

use std::path::PathBuf;

use clap::Args;
use extant::{Error, Finding};
use serde_json::{Map, Value, json};

use super::Outcome;
use crate::disks::{self, Reading, open_for_reading};
use crate::failure::{EXIT_FSCK_ERRORS, EXIT_FSCK_OPERATIONAL, Failure};
use crate::output::{self, Output};
use crate::progress::{Display, ProgressForm};

/// Look for damage on a disk
///
/// Compares everything on the disk with everything else, and changes nothing; e2fsck repairs. Exits with 0 if the disk
/// is clean, be it after its journal was replayed in memory, 4 if there is damage, 8 if it could not be looked at, 16 if it was asked for in a wrong way.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant check disk.img\n  extant check --json --partition 2 /dev/sdb")]
pub struct Check {
    #[command(flatten)]
    reading: Reading,
    /// The image
    image: PathBuf,
}

/// What was found: all of it, or that the disk cannot even be mounted.
enum Found {
    /// With the blocks of the journal that were replayed in memory.
    Findings(Vec<Finding>, usize),
    Unmountable(Failure),
}

impl Check {
    /// Checks.
    pub fn run(self) -> Outcome {
        match self.look().and_then(|found| self.tell(&found)) {
            Ok(status) => Ok(status),
            Err(failure) => {
                output::report(&failure, self.reading.json);
                Ok(EXIT_FSCK_OPERATIONAL)
            }
        }
    }

    fn look(&self) -> Result<Found, Failure> {
        let fs = match open_for_reading(&self.image, self.reading) {
            Ok(fs) => fs,
            Err(failure) if failure.kind == "corrupt" => {
                return Ok(Found::Unmountable(failure));
            }
            Err(failure) => return Err(failure),
        };
        let display = Display::new(ProgressForm::new(self.reading.json, false));
        let findings = fs.check(&mut |progress| display.show(&progress));
        drop(display);
        let findings = findings.map_err(|error| {
            let mut failure = Failure::disk(self.image.display(), &error);
            if matches!(error, Error::Incompatible(_)) {
                failure.message += "; whether such a disk is sound cannot be told here";
            }
            failure
        })?;
        if let Some(by) = disks::used_elsewhere(&fs) {
            output::note(&format!("{}: {by}; what is found may be passing", self.image.display()));
        }
        if let Some(skipped) = disks::journal_skipped(&fs) {
            output::note(&format!("{}: {skipped}", self.image.display()));
        }
        if let Some(met) = disks::errors_met(&fs) {
            output::note(&format!("{}: {met}", self.image.display()));
        }
        Ok(Found::Findings(findings, fs.mounted().replayed_blocks))
    }

    fn tell(&self, found: &Found) -> Outcome {
        let image = self.image.display().to_string();
        let mut output = Output::new();
        let (documents, lines): (Vec<_>, Vec<_>) = match found {
            Found::Findings(findings, _) => {
                findings.iter().map(|finding| (document(finding), format!("{image}: {finding}"))).unzip()
            }
            Found::Unmountable(failure) => {
                let object = json!({ "where": failure.place, "what": failure.message });
                (vec![object], vec![failure.to_string()])
            }
        };
        let is_clean = lines.is_empty();
        let replayed = if let Found::Findings(_, replayed) = found { *replayed } else { 0 };
        if self.reading.json {
            output.json(&json!({
                "image": image,
                "is_clean": is_clean,
                "journal_replay_blocks": replayed,
                "findings": documents,
            }))?;
        } else {
            lines.iter().try_for_each(|line| output.line(line))?;
            if is_clean {
                let after = match replayed {
                    0 => String::new(),
                    _ => format!(" after replaying {replayed} blocks of its journal, in memory only"),
                };
                output.line(format!("{image}: clean{after}"))?;
            }
        }
        output.finish()?;
        Ok(if is_clean { 0 } else { EXIT_FSCK_ERRORS })
    }
}

fn document(finding: &Finding) -> Value {
    let location = &finding.location;
    let mut object = Map::new();
    object.insert("where".to_owned(), location.to_string().into());
    object.insert("structure".to_owned(), location.structure.to_string().into());
    if let Some(group) = location.group {
        object.insert("group".to_owned(), group.0.into());
    }
    if let Some(inode) = location.inode {
        object.insert("inode".to_owned(), inode.0.into());
    }
    if let Some(block) = location.block {
        object.insert("block".to_owned(), block.0.into());
    }
    object.insert("what".to_owned(), finding.what.clone().into());
    Value::Object(object)
}
