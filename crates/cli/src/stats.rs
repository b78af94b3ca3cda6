//! The report of `--stats` at the end of a command: the requests to the devices of its images.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use extant_block::BlockDevice;
use extant_fuse::{DeviceTimes, TimedDevice};
use extant_rt::Arc;

use crate::size;

/// Begun with the command, if it has the option.
static STATS: OnceLock<Stats> = OnceLock::new();

struct Stats {
    begun: Instant,
    /// The devices in the order in which they were opened. One image may be opened several times.
    devices: Mutex<Vec<(PathBuf, DeviceTimes)>>,
}

/// Has devices that are opened from now on counted.
pub fn begin() {
    STATS.get_or_init(|| Stats { begun: Instant::now(), devices: Mutex::default() });
}

/// The device of `image`, whose requests are counted if the command has `--stats`.
pub fn counted(image: &Path, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    if STATS.get().is_none() {
        return device;
    }
    let device = TimedDevice::new(device);
    add(image, device.times());
    Arc::new(device)
}

/// Adds a device that is counted anyway.
pub fn add(image: &Path, times: DeviceTimes) {
    if let Some(stats) = STATS.get() {
        stats.devices.lock().unwrap_or_else(PoisonError::into_inner).push((image.to_owned(), times));
    }
}

/// Requests of one kind to one image.
#[derive(Clone, Copy, Default)]
struct Requests {
    count: u64,
    bytes: u64,
    time: Duration,
}

/// Writes the counts of all devices to standard error: a line for each image, or one document.
pub fn report(as_json: bool) {
    let Some(stats) = STATS.get() else { return };
    let elapsed = stats.begun.elapsed();
    let mut images: Vec<(PathBuf, Vec<(&str, Requests)>)> = Vec::new();
    for (image, times) in stats.devices.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let totals = times.totals();
        let at = images.iter().position(|(known, _)| known == image).unwrap_or_else(|| {
            images.push((image.clone(), totals.map(|(kind, _)| (kind, Requests::default())).to_vec()));
            images.len() - 1
        });
        for ((_, sum), (_, total)) in images[at].1.iter_mut().zip(totals) {
            sum.count += total.ended;
            sum.bytes += total.bytes;
            sum.time += total.time;
        }
    }
    let text = if as_json { document(elapsed, &images) } else { lines(elapsed, &images) };
    // The results are there; a report that cannot be written is no failure.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn document(elapsed: Duration, images: &[(PathBuf, Vec<(&str, Requests)>)]) -> String {
    let devices = images.iter().map(|(image, kinds)| {
        let kinds = kinds.iter().map(|(kind, requests)| {
            let Requests { count, bytes, time } = requests;
            let value =
                serde_json::json!({ "count": count, "bytes": bytes, "time_ns": time.as_nanos() as u64 });
            ((*kind).to_owned(), value)
        });
        let mut device: serde_json::Map<_, _> = kinds.collect();
        device.insert("image".to_owned(), image.display().to_string().into());
        device
    });
    let devices: Vec<_> = devices.collect();
    serde_json::json!({ "stats": { "elapsed_ns": elapsed.as_nanos() as u64, "devices": devices } })
        .to_string()
}

fn lines(elapsed: Duration, images: &[(PathBuf, Vec<(&str, Requests)>)]) -> String {
    let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
    let mut lines: Vec<_> = images
        .iter()
        .map(|(image, kinds)| {
            let kinds = kinds.iter().filter(|(kind, requests)| *kind == "read" || requests.count > 0);
            let kinds = kinds.map(|(kind, Requests { count, bytes, time })| {
                format!("{kind} {count} times, {} ({bytes} bytes), {}", size::show(*bytes), seconds(*time))
            });
            format!("extant: {}: {}", image.display(), kinds.collect::<Vec<_>>().join("; "))
        })
        .collect();
    lines.push(format!("extant: the command took {}", seconds(elapsed)));
    lines.join("\n")
}
