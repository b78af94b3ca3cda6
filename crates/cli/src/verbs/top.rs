//! `extant top`.

mod document;
mod interval;
mod screen;
mod snapshot;
mod waits;

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustix::fs::{Mode, OFlags};

use self::interval::Interval;
use self::snapshot::Snapshot;
use super::Outcome;
use crate::failure::Failure;
use crate::json::put_text;
use crate::mounts::{self, Mounted};
use crate::output::{self, Output, escape};

/// More than any server of Extant reports.
const METRICS_BYTES_MAX: u64 = 1 << 20;
/// Lines where the terminal does not say how many it has.
const ROWS: usize = 24;
/// The longest wait, in seconds: a day.
const DELAY_MAX: f64 = 86_400.0;

/// Show what a mounted disk does and what the time is spent waiting on: first since mounting, then for each interval.
///
/// On a terminal each block is drawn over the last one until Ctrl-C; elsewhere they follow each other.
#[derive(Args)]
#[command(after_help = "\
Of each kind of request: how many in a second, how long each, how many are under way now, and the time of all (100% is \
one request always under way). Of that time, in per cent, what it is spent on: reads, writes and flushes of the device \
by the request's own thread; being stopped until writeback has caught up; and the server itself: computing, and \
waiting for its locks and for commits and writeback of other threads, which cannot be told apart. Time in the kernel, \
and until a thread takes a request, is not counted.\n\n\
The device's lines are of all threads, those that commit and write back by themselves too. Of the journal, waits are \
handles that did not open at once; of the allocator, groups are those that searches looked at, left out because \
another had them locked, or waited for. The last line says what the time of all requests is spent waiting on, with the kind of request that waits most for each.\n\n\
With --json a document in a line for each interval, with its counts and times, not rates.\n\n\
Ends with 0 when the disk is unmounted, and says so; with 1 if its server died.\n\n\
Examples:\n  extant top dir\n  extant top -n 1 dir               since mounting\n  \
extant top -b -d 10 dir >top.log\n  extant top --json -d 5 dir | jq -c .waiting_on")]
pub struct Top {
    /// Seconds from one block to the next
    #[arg(short, value_name = "SECONDS", default_value = "1", value_parser = parse_delay)]
    delay: Duration,
    /// End after so many blocks
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// One block below the other, on a terminal too
    #[arg(short)]
    batch: bool,
    /// Write a JSON document for each block
    #[arg(long)]
    json: bool,
    /// Where it is mounted, or a place below
    dir: PathBuf,
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=DELAY_MAX).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("not from 0.1 to {DELAY_MAX} seconds")),
    }
}

impl Top {
    /// Shows.
    pub fn run(self) -> Outcome {
        if mounts::is_stale(&self.dir) {
            return Err(mounts::server_gone(&self.dir));
        }
        let Some(mounted) = mounts::ours_around(&self.dir)? else { return Err(mounts::not_ours(&self.dir)) };
        let mut before = None;
        let mut shown = 0;
        loop {
            let after = match self.read(&mounted) {
                Ok(after) => after,
                Err(_) if shown > 0 && mounts::ours_at(&mounted.point)?.is_none() => {
                    output::note(&format!("{}: unmounted", self.dir.display()));
                    return Ok(0);
                }
                Err(failure) => return Err(failure),
            };
            let interval = Interval::new(before.as_ref(), &after)
                .ok_or_else(|| self.not_told("its metrics do not say how long it is served"))?;
            self.show(&interval, &mounted, shown)?;
            shown += 1;
            if self.count == Some(shown) {
                return Ok(0);
            }
            before = Some(after);
            extant_rt::sleep(self.delay);
        }
    }

    /// The server's metrics now. What it opens it closes, so that the mount does not stay busy.
    fn read(&self, mounted: &Mounted) -> Result<Snapshot, Failure> {
        let path = mounted.point.join(".extant/metrics");
        let failed = |error: std::io::Error| {
            if mounts::is_stale(&mounted.point) {
                return mounts::server_gone(&self.dir);
            }
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => {
                    self.not_told("mounted with nocontrol, or its `.extant` is the disk's own")
                }
                ErrorKind::PermissionDenied => Failure::new(
                    "permission_denied",
                    path.display().to_string(),
                    "only who mounted it can read it",
                ),
                _ => Failure::host(&path, &error),
            }
        };
        // A disk may hold a pipe of that name.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let file = File::from(file);
        let found = file.metadata().map_err(failed)?;
        // Inodes of the disk have 32 bits.
        let is_control = found.ino() > u64::from(u32::MAX);
        let is_there = std::fs::metadata(&mounted.point).is_ok_and(|root| root.dev() == found.dev());
        if !is_control || !found.is_file() || !is_there {
            return Err(self.not_told("its `.extant` is the disk's own"));
        }
        let mut text = Vec::new();
        file.take(METRICS_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        Snapshot::parse(&String::from_utf8_lossy(&text)).map_err(|wrong| self.not_told(wrong))
    }

    fn not_told(&self, why: &str) -> Failure {
        Failure::new("no_metrics", self.dir.display().to_string(), why)
    }

    fn show(&self, interval: &Interval<'_>, mounted: &Mounted, shown: u64) -> Result<(), Failure> {
        let mut output = Output::new();
        let point = mounted.point.as_os_str().as_bytes();
        if self.json {
            let mut document = document::document(interval);
            put_text(&mut document, "image", mounted.source.as_os_str().as_bytes());
            put_text(&mut document, "dir", point);
            output.line(serde_json::Value::Object(document).to_string())?;
            return output.finish();
        }
        let image = mounted.source.file_name().unwrap_or_default();
        let place = format!("{} on {}", escape(image.as_bytes()), escape(point));
        if self.batch || !std::io::stdout().is_terminal() {
            if shown > 0 {
                output.line("")?;
            }
            for line in screen::lines(interval, &place, ROWS - 1) {
                output.line(line)?;
            }
            return output.finish();
        }
        let rows = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_row.into());
        let rows = if rows == 0 { ROWS } else { rows };
        output.bytes(if shown == 0 { "\x1b[H\x1b[2J" } else { "\x1b[H" }.as_bytes())?;
        // The last row is the cursor's.
        for line in screen::lines(interval, &place, rows.saturating_sub(1).max(1)) {
            output.line(format!("{line}\x1b[K"))?;
        }
        output.bytes(b"\x1b[J")?;
        output.finish()
    }
}
