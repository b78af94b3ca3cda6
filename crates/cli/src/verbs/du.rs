//! `extant du`.

use std::collections::HashMap;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use extant::{FileType, ReadAhead};
use serde_json::{Map, Value, json};

use super::{Outcome, Report};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::failed_at;
use crate::output::Output;
use crate::size;
use crate::tree::{Directories, child};

/// Tell how much space directories on a disk take
///
/// In KiB of blocks, each directory with all that is in it, those inside before those around them. A file with several
/// names counts once.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant du -sh disk.img:/var\n  extant du disk.img | sort -n | tail"
)]
pub struct Du {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Sizes as people read them: 1.5G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Only a sum for each argument
    #[arg(short, long)]
    summarize: bool,
    #[command(flatten)]
    reading: Reading,
    /// What to look at
    #[arg(required = true, value_name = "IMAGE[:/PATH]")]
    places: Vec<OsString>,
}

impl Du {
    /// Tells.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut report = Report::new(self.reading.json);
        let mut output = Output::new();
        let mut documents = Vec::new();
        for place in self.places.iter().map(|place| DiskPath::parse(place)) {
            let found = disks.of(&place).and_then(|fs| sums(&fs, &place, &mut report));
            let Some(sums) = report.unless_failed(found) else { continue };
            let shown = if self.summarize { &sums[..1] } else { &sums[..] };
            for (path, bytes) in shown.iter().rev() {
                if self.reading.json {
                    let mut object = Map::new();
                    object.insert("image".to_owned(), place.image.display().to_string().into());
                    put_text(&mut object, "path", path.as_os_str().as_encoded_bytes());
                    object.insert("allocated_bytes".to_owned(), (*bytes).into());
                    documents.push(Value::Object(object));
                    continue;
                }
                let size =
                    if self.human_readable { size::short(*bytes) } else { bytes.div_ceil(1024).to_string() };
                let name = output.name(path.as_os_str().as_encoded_bytes());
                output.line([size.as_bytes(), b"\t", &name].concat())?;
            }
        }
        disks.finish()?;
        if self.reading.json {
            output.json(&json!({ "directories": documents }))?;
        }
        output.finish()?;
        Ok(report.exit())
    }
}

/// The bytes that each directory at and below `place` takes with all that is in it, each before those inside it.
fn sums(
    fs: &extant::Filesystem,
    place: &DiskPath,
    report: &mut Report,
) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let bytes = |metadata: &extant::Metadata| metadata.blocks_512.saturating_mul(512);
    let first = fs.symlink_metadata(&place.path).map_err(failed_at(place))?;
    if first.file_type != FileType::Directory {
        return Ok(vec![(place.path.clone(), bytes(&first))]);
    }
    let mut sums: Vec<(PathBuf, u64)> = Vec::new();
    let mut index = HashMap::new();
    let mut seen = HashSet::new();
    for visited in
        Directories::new(place.clone(), fs.dir(&place.path).map_err(failed_at(place))?, ReadAhead::Inodes)
    {
        let Some(visited) = report.unless_failed(visited) else { continue };
        let mut sum = bytes(&visited.dir.metadata());
        for entry in &visited.entries {
            let found = visited.dir.symlink_metadata(&entry.name);
            let found = found.map_err(failed_at(&child(&visited.place, &entry.name)));
            let Some(found) = report.unless_failed(found) else { continue };
            // Directories count themselves when they are visited.
            let is_counted =
                found.file_type != FileType::Directory && (found.links < 2 || seen.insert(found.inode));
            sum = sum.saturating_add(if is_counted { bytes(&found) } else { 0 });
        }
        index.insert(visited.place.path.clone(), sums.len());
        sums.push((visited.place.path, sum));
    }
    // Those inside come later, so each is complete when its turn comes.
    for at in (1..sums.len()).rev() {
        let above = sums[at].0.parent().and_then(|parent| index.get(parent)).copied();
        if let Some(above) = above {
            sums[above].1 = sums[above].1.saturating_add(sums[at].1);
        }
    }
    Ok(sums)
}
