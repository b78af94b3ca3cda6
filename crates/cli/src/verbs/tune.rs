//! `extant tune`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use extant::{ErrorBehavior, Tune as Builder};
use extant_block::DeviceAccess;
use serde_json::json;

use super::Outcome;
use crate::disks::{ImageLocation, clock, open_located};
use crate::failure::Failure;
use crate::foreign::{explain, has_superblock};
use crate::output::{self, Output};

/// Seconds of a day.
const DAY_S: u32 = 86_400;

/// Change what a file system was made with
///
/// The letters are those of tune2fs. A dirty journal is replayed first. A crash leaves the disk as it was or as it is to
/// be, or with a log from which `e2fsck -p` and every command of Extant make it so. A new UUID changes the superblock
/// alone on disks with metadata_csum_seed (-O); on others it changes every checksum, and a crash may leave the disk
/// without checksums: any further tune then completes that.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant tune -L root -U random disk.img\n  extant tune -m 0 -e remount-ro disk.img\n  extant tune -c 0 -i 6m -o acl,^user_xattr disk.img\n  extant tune -O metadata_csum_seed disk.img\n  extant tune -O ^metadata_csum --partition 2 disk.img\n  extant tune -J size=64 -O orphan_file disk.img"
)]
pub struct Tune {
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The volume's name
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<OsString>,
    /// The UUID, or `clear`, `random` or `time`
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// The share of blocks that only root may use, in percent
    #[arg(short = 'm', value_name = "PERCENT", conflicts_with = "reserved_blocks")]
    reserved_percent: Option<f64>,
    /// How many blocks only root may use
    #[arg(short = 'r', value_name = "BLOCKS")]
    reserved_blocks: Option<u64>,
    /// What is done after an error
    #[arg(short = 'e', value_name = "BEHAVIOR", value_parser = ["continue", "remount-ro", "panic"])]
    errors: Option<String>,
    /// Default mount options to set, and after ^ to clear
    #[arg(short = 'o', value_name = "OPTIONS")]
    default_mount_options: Vec<String>,
    /// After how many mounts e2fsck checks the disk; 0 or -1: after no number
    #[arg(short = 'c', value_name = "COUNT", allow_negative_numbers = true)]
    max_mount_count: Option<i32>,
    /// How often it was mounted since the last check
    #[arg(short = 'C', value_name = "COUNT")]
    mount_count: Option<u16>,
    /// After how long e2fsck checks the disk: days, or with d, w, m or s behind the number; 0: after no time
    #[arg(short = 'i', value_name = "INTERVAL", value_parser = parse_interval)]
    check_interval_s: Option<u32>,
    /// When it was last checked: `now`, or seconds since 1970 after @
    #[arg(short = 'T', value_name = "TIME")]
    check_time: Option<String>,
    /// The directory where it was last mounted
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<OsString>,
    /// Features to turn on, and after ^ off
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// Give the disk a journal, as -O has_journal does
    #[arg(short = 'j')]
    has_journal: bool,
    /// The journal's size: size=MEGABYTES, fast_commit_size=KILOBYTES; a disk without a journal gets one
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal: Vec<String>,
    /// stride=, stripe_width=, hash_alg=, mount_opts=, mmp_update_interval=, orphan_file_size=, test_fs, ^test_fs
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// The image
    image: PathBuf,
}

/// `30`, `30d`, `4w`, `6m`, `3600s`: seconds.
fn parse_interval(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "d" | "D" => DAY_S,
        "w" | "W" => 7 * DAY_S,
        "m" | "M" => 30 * DAY_S,
        "s" | "S" => 1,
        _ => return Err("an interval is a number with d, w, m or s behind it, as in 6m".to_owned()),
    };
    let count: u32 = digits.parse().map_err(|_| format!("no number of days: '{text}'"))?;
    count.checked_mul(unit_s).ok_or_else(|| "an interval has 2^32 seconds at most".to_owned())
}

impl Tune {
    /// Changes it.
    pub fn run(self) -> Outcome {
        let builder = self.builder()?;
        if builder.is_empty() {
            return Err(Failure::usage(format!(
                "nothing to change; name an option (`extant tune --help`), or see `extant info {}`",
                self.image.display()
            )));
        }
        let place = self.image.display().to_string();
        let (device, _) = open_located(&self.image, DeviceAccess::read_write(), self.location)?;
        if !has_superblock(&*device) {
            return Err(Failure::new("no_file_system", place, explain(&*device)));
        }
        let tuned = builder.apply(device).map_err(|error| Failure::opening(&self.image, &error))?;
        if tuned.mounted.replayed_blocks > 0 {
            output::note(&format!("{place}: replayed the journal: {} blocks", tuned.mounted.replayed_blocks));
        }
        if tuned.has_completed {
            output::note(&format!("{place}: completed a change that was interrupted"));
        }
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": place,
                "journal_replay_blocks": tuned.mounted.replayed_blocks,
                "checksums_rewritten": tuned.checksums_rewritten,
                "has_completed": tuned.has_completed,
            }))?;
        } else if tuned.checksums_rewritten > 0 {
            output.line(format!("{place}: {} checksums rewritten", tuned.checksums_rewritten))?;
        }
        output.finish()?;
        Ok(0)
    }

    /// What the letters say.
    fn builder(&self) -> Result<Builder, Failure> {
        let clock = clock()?;
        let mut builder = Builder::new().clock(clock);
        let now = u64::try_from(clock.now().0).unwrap_or(0);
        if let Some(text) = &self.check_time {
            let seconds = if text == "now" {
                Some(now)
            } else {
                text.strip_prefix('@').and_then(|text| text.parse().ok())
            };
            let invalid = || {
                Failure::usage(format!("invalid time: '{text}'; it is `now`, or @ and seconds since 1970"))
            };
            builder = builder.check_time_s(seconds.ok_or_else(invalid)?);
        }
        if let Some(count) = self.max_mount_count {
            let invalid = |_| Failure::usage("a number of mounts is from -1 to 65534");
            let count = if count == -1 { 0 } else { u16::try_from(count).map_err(invalid)? };
            builder = builder.max_mount_count(Some(count).filter(|count| *count > 0));
        }
        if let Some(count) = self.mount_count {
            builder = builder.mount_count(count);
        }
        if let Some(seconds) = self.check_interval_s {
            builder = builder.check_interval_s(seconds);
        }
        if let Some(blocks) = self.reserved_blocks {
            builder = builder.reserved_blocks(blocks);
        }
        match self.errors.as_deref() {
            Some("continue") => builder = builder.errors(ErrorBehavior::Continue),
            Some("panic") => builder = builder.errors(ErrorBehavior::Panic),
            Some(_) => builder = builder.errors(ErrorBehavior::RemountReadOnly),
            None => {}
        }
        self.with_words(builder).map_err(|error| Failure::usage(error.to_string()))
    }

    fn with_words(&self, mut builder: Builder) -> extant::Result<Builder> {
        if let Some(label) = &self.label {
            builder = builder.label(label.as_encoded_bytes())?;
        }
        if let Some(directory) = &self.last_mounted {
            builder = builder.last_mounted(directory.as_encoded_bytes())?;
        }
        if let Some(percent) = self.reserved_percent {
            builder = builder.reserved_percent(percent)?;
        }
        if let Some(uuid) = &self.uuid {
            builder = builder.uuid_text(uuid)?;
        }
        for words in &self.default_mount_options {
            builder = builder.default_mount_options(words)?;
        }
        for words in &self.extended {
            builder = builder.extended(words)?;
        }
        for words in &self.features {
            builder = builder.features(words)?;
        }
        if self.has_journal {
            builder = builder.features("has_journal")?;
        }
        for words in &self.journal {
            builder = builder.journal(words)?;
        }
        Ok(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_tune2fs() {
        for (text, seconds) in
            [("0", 0), ("1", DAY_S), ("2d", 2 * DAY_S), ("3w", 21 * DAY_S), ("1m", 30 * DAY_S), ("9s", 9)]
        {
            assert_eq!(parse_interval(text), Ok(seconds), "{text}");
        }
        for text in ["", "d", "1x", "-1", "4294967295d"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
