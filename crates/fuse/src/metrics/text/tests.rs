//! Checks of the text against OpenMetrics 1.0.

use std::collections::{BTreeMap, BTreeSet};

use extant::{Filesystem, Mount, mkfs::Mkfs};
use extant_block::MemoryDevice;
use extant_rt::Arc;

use super::super::{Metrics, Request};
use crate::ops::Transport;
use crate::timed_device::TimedDevice;

/// The families: type of each, and whether it has a unit.
type Families = BTreeMap<String, (String, bool)>;

fn is_name(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// Checks the text and gives its samples by name and labels.
fn check(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
    let mut families = Families::new();
    let mut samples = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut family = String::new();
    for line in body.lines() {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(keyword), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("a word is missing"));
            };
            if !is_name(name) || rest.is_empty() {
                return Err(wrong("a name or a text"));
            }
            match keyword {
                "HELP" if helped.insert(name.to_owned()) => family = name.to_owned(),
                "TYPE" if name == family && ["counter", "gauge", "info"].contains(&rest) => {
                    if families.insert(name.to_owned(), (rest.to_owned(), false)).is_some() {
                        return Err(wrong("a second type"));
                    }
                }
                "UNIT" if name == family && name.ends_with(&format!("_{rest}")) => {
                    families.get_mut(name).ok_or_else(|| wrong("a unit before the type"))?.1 = true;
                }
                _ => return Err(wrong("out of place")),
            }
            continue;
        }
        let (kind, _) = families.get(&family).ok_or_else(|| wrong("no type"))?;
        let (sample, value) = line.rsplit_once(' ').ok_or_else(|| wrong("no value"))?;
        let (name, labels) = sample.find('{').map_or((sample, ""), |at| sample.split_at(at));
        let suffix = [("counter", "_total"), ("gauge", ""), ("info", "_info")].into_iter();
        let suffix = suffix.filter(|(of, _)| of == kind).map(|(_, suffix)| suffix).next().unwrap_or_default();
        if name != format!("{family}{suffix}") {
            return Err(wrong("not of its family"));
        }
        if !labels.is_empty() {
            let inner = labels.strip_prefix('{').and_then(|inner| inner.strip_suffix('}'));
            let mut names = BTreeSet::new();
            for label in inner.ok_or_else(|| wrong("no brace"))?.split(',') {
                let (name, word) = label.split_once('=').ok_or_else(|| wrong("no label"))?;
                let word = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
                if !is_name(name) || !names.insert(name) || word.is_none_or(|word| word.contains(['"', '\\']))
                {
                    return Err(wrong("a label"));
                }
            }
        }
        let value: f64 = value.parse().map_err(|_| wrong("no number"))?;
        if !value.is_finite() || value < 0.0 || samples.insert(sample.to_owned(), value).is_some() {
            return Err(wrong("a number"));
        }
    }
    for (name, (kind, has_unit)) in &families {
        let ends = ["_seconds", "_bytes"].iter().any(|unit| name.ends_with(unit));
        if ends != *has_unit || ["_total", "_info"].iter().any(|suffix| name.ends_with(suffix)) {
            return Err(format!("{name}: a {kind} of that name"));
        }
    }
    Ok(samples)
}

fn open(device: TimedDevice<Arc<MemoryDevice>>, page_cache_bytes: u64) -> Filesystem {
    let mount = Mount::new().page_cache_bytes(page_cache_bytes);
    mount.open_device(Arc::new(device)).expect("a mount")
}

#[test]
fn text_is_openmetrics_with_and_without_a_page_cache() {
    for page_cache_bytes in [0, 8 << 20] {
        let memory = Arc::new(MemoryDevice::new(64 << 20));
        Mkfs::new().format(&*memory).expect("a file system");
        let device = TimedDevice::new(memory);
        let metrics = Metrics::new(Some(device.times()));
        let fs = open(device, page_cache_bytes);
        let file = fs.options().write(true).create(true).open("/file").expect("a file");
        {
            let mut timed = metrics.begin(Request::Write);
            timed.moves(file.write_at(&[7; 8192], 0).expect("write"));
        }
        {
            let _timed = metrics.begin(Request::Sync);
            file.sync_all().expect("sync");
        }
        let _under_way = metrics.begin(Request::Read);
        let text = metrics.text(&fs, 5, Transport::Rings);
        let samples = check(&text).expect("OpenMetrics");
        let value =
            |sample: &str| samples.get(sample).copied().unwrap_or_else(|| panic!("{sample} in {text}"));
        assert_eq!(value("extant_transport_info{name=\"io_uring\"}"), 1.0);
        assert_eq!(value("extant_requests_total{op=\"write\"}"), 1.0);
        assert_eq!(value("extant_requests_total{op=\"read\"}"), 0.0);
        assert_eq!(value("extant_requests_under_way{op=\"read\"}"), 1.0);
        assert_eq!(value("extant_written_bytes_total"), 8192.0);
        assert_eq!(value("extant_known_inodes"), 5.0);
        assert!(value("extant_journal_commits_total") >= 1.0);
        let (took, waited) = (
            value("extant_request_seconds_total{op=\"fsync\"}"),
            value("extant_request_device_seconds_total{op=\"fsync\",io=\"flush\"}"),
        );
        assert!(0.0 < waited && waited <= took, "{waited} of {took}");
        // Reading the disk at its opening was no request.
        let of_requests = value("extant_request_device_seconds_total{op=\"fsync\",io=\"read\"}");
        assert!(of_requests < value("extant_device_seconds_total{io=\"read\"}"));
        let throttled = samples.get("extant_writeback_throttled_seconds_total{context=\"0\"}");
        assert_eq!(throttled.copied(), (page_cache_bytes > 0).then_some(0.0));
    }
}

#[test]
fn what_is_no_openmetrics_is_refused() {
    let good = "# HELP a_seconds Words.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{b=\"c\"} 1\n# EOF\n";
    assert_eq!(check(good).map(|samples| samples.len()), Ok(1));
    for (from, to) in [
        ("# EOF\n", "# EOF"),
        ("# EOF\n", ""),
        ("# HELP a_seconds Words.\n", ""),
        ("# UNIT a_seconds seconds\n", ""),
        ("UNIT a_seconds seconds", "UNIT a_seconds bytes"),
        ("_total", ""),
        ("\"c\"", "c"),
        (" 1\n", " NaN\n"),
        (" 1\n", "\n"),
        (" 1\n", " 1\na_seconds_total{b=\"c\"} 2\n"),
        (" 1\n", " 1\n\n"),
        ("TYPE a_seconds counter", "TYPE a_seconds count"),
    ] {
        assert!(check(&good.replacen(from, to, 1)).is_err(), "{from:?} made {to:?}");
    }
}
