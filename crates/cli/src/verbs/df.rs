//! `extant df`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::output::Output;
use crate::size;

/// Tell how full disks are
///
/// In KiB, without what the file system keeps for itself. Available is what others than root may use.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant df -h disk.img\n  extant df --json --partition 1 disk.img"
)]
pub struct Df {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Sizes as people read them: 1.5G
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Inodes, not space
    #[arg(short, long)]
    inodes: bool,
    #[command(flatten)]
    reading: Reading,
    /// The disks
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<OsString>,
}

impl Df {
    /// Tells.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut rows = vec![self.heading()];
        let mut documents = Vec::new();
        let exit = for_each(&self.images, self.reading.json, |image| {
            let place = DiskPath { image: PathBuf::from(image), path: "/".into() };
            let statistics = disks.of(&place)?.statistics();
            let bytes = |blocks: u64| blocks.saturating_mul(u64::from(statistics.block_size));
            let (total, free) = (bytes(statistics.blocks), bytes(statistics.free_blocks));
            let available = bytes(statistics.available_blocks);
            let (inodes, free_inodes) = (u64::from(statistics.inodes), u64::from(statistics.free_inodes));
            documents.push(json!({
                "image": place.image.display().to_string(),
                "size_bytes": total,
                "used_bytes": total.saturating_sub(free),
                "free_bytes": free,
                "available_bytes": available,
                "inodes": inodes,
                "free_inodes": free_inodes,
            }));
            let name = place.image.display().to_string();
            rows.push(if self.inodes {
                self.row(name, inodes, inodes.saturating_sub(free_inodes), free_inodes, &|count| {
                    count.to_string()
                })
            } else {
                self.row(name, total, total.saturating_sub(free), available, &|bytes| self.size(bytes))
            });
            Ok(())
        });
        disks.finish()?;
        let mut output = Output::new();
        if self.reading.json {
            output.json(&json!({ "disks": documents }))?;
        } else {
            let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let [a, b, c, d, e] = [width(0), width(1), width(2), width(3), width(4)];
            for [name, total, used, available, share] in &rows {
                let name = String::from_utf8_lossy(&output.name(name.as_bytes())).into_owned();
                output.line(format!("{name:<a$} {total:>b$} {used:>c$} {available:>d$} {share:>e$}"))?;
            }
        }
        output.finish()?;
        Ok(exit)
    }

    fn heading(&self) -> [String; 5] {
        let words = match (self.inodes, self.human_readable) {
            (true, _) => ["Image", "Inodes", "IUsed", "IFree", "IUse%"],
            (_, true) => ["Image", "Size", "Used", "Avail", "Use%"],
            _ => ["Image", "1K-blocks", "Used", "Available", "Use%"],
        };
        words.map(str::to_owned)
    }

    fn size(&self, bytes: u64) -> String {
        if self.human_readable { size::short(bytes) } else { bytes.div_ceil(1024).to_string() }
    }

    fn row(
        &self,
        name: String,
        total: u64,
        used: u64,
        available: u64,
        show: &dyn Fn(u64) -> String,
    ) -> [String; 5] {
        // As df: of what is used and what can be.
        let share = match used.saturating_add(available) {
            0 => "-".to_owned(),
            whole => format!("{}%", (u128::from(used) * 100).div_ceil(u128::from(whole))),
        };
        [name, show(total), show(used), show(available), share]
    }
}
