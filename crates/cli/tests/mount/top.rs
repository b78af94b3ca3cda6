//! `extant top`: what a mount does and waits on.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::common::{Disk, EXTANT, can_mount, extant, run};

fn top(options: &[&str], dir: &Path) -> Output {
    extant(&[&["top"], options, &[dir.to_str().expect("path")]].concat())
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn documents(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a document in a line")).collect()
}

/// The one of `list` that says `word` for `key`.
fn of<'v>(list: &'v Value, key: &str, word: &str) -> &'v Value {
    let list = list.as_array().expect("a list");
    list.iter().find(|value| value[key] == word).unwrap_or_else(|| panic!("no {word} in {list:?}"))
}

/// Has two threads write and sync until `act` is done.
fn under_load<T>(point: &Path, act: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let is_done = &is_done;
            scope.spawn(move || {
                let file = File::create(point.join(name)).expect("create");
                for round in 0.. {
                    file.write_all_at(&[7; 16 << 10], round % 64 * (16 << 10)).expect("write");
                    file.sync_all().expect("sync");
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let done = act();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn requests_are_counted_exactly_and_their_time_is_accounted_for() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("page_cache=8M");
    let file = File::create(disk.point.join("file")).expect("create");
    for round in 0..20 {
        file.write_all_at(&[1; 5000], round * 5000).expect("write");
        file.sync_all().expect("sync");
    }
    drop(file);
    let output = top(&["--json", "-n", "1"], &disk.point);
    let shown = documents(&String::from_utf8_lossy(&output.stdout));
    assert_eq!((shown.len(), output.status.code()), (1, Some(0)), "{}", words(&output));
    let shown = &shown[0];
    assert_eq!(shown["is_since_mounting"], true);
    assert_eq!(shown["written_bytes"], 100_000);
    assert_eq!(shown["image"], disk.image.to_str().expect("path"));
    let sync = of(&shown["requests"], "request", "fsync");
    assert_eq!((&sync["count"], &sync["under_way"]), (&20.into(), &0.into()));
    assert!(sync["device_flush_ns"].as_u64() > Some(0), "{sync}");
    let number = |value: &Value| value.as_f64().expect("a number");
    for request in shown["requests"].as_array().expect("requests") {
        let parts = ["device_read", "device_write", "device_flush", "device_discard", "throttling", "server"];
        let sum: f64 = parts.map(|part| number(&request[format!("{part}_ns")])).iter().sum();
        assert!((sum - number(&request["time_ns"])).abs() < 10.0, "{request}");
    }
    let shares: f64 =
        shown["waiting_on"].as_array().expect("waits").iter().map(|wait| number(&wait["share"])).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shown}");
    // The log was written and flushed for each, by whichever thread.
    assert!(number(&shown["journal"]["commits"]) >= 1.0, "{shown}");
    assert!(number(&of(&shown["device"], "operation", "flush")["count"]) >= 20.0, "{shown}");
    let written: f64 =
        shown["contexts"].as_array().expect("contexts").iter().map(|of| number(&of["dirtied_bytes"])).sum();
    assert!(written >= 100_000.0, "{shown}");
    disk.finish();
}

#[test]
fn a_load_is_shown_in_24_lines_of_80_columns_that_end_with_what_it_waits_on() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("page_cache=8M");
    let (plain, drawn) = under_load(&disk.point, || {
        let arguments = ["top", "-n", "2", "-d", "0.5", disk.point.to_str().expect("path")];
        // `script` gives a terminal.
        let typed = format!("stty rows 24; exec '{EXTANT}' {}", arguments.join(" "));
        let drawn = Command::new("script").args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null()).output();
        (run(&arguments), drawn)
    });
    let blocks: Vec<_> = plain.split("\n\n").collect();
    assert_eq!(blocks.len(), 2, "{plain}");
    assert!(blocks[0].contains("since mounting") && blocks[1].contains("the last "), "{plain}");
    for block in blocks {
        assert!(block.trim_end().lines().count() < 24, "{block}");
        assert!(block.lines().all(|line| line.chars().count() < 80), "{block}");
        assert!(!block.contains('\x1b'), "{block}");
        for head in [
            "request ",
            "write ",
            "fsync ",
            "device ",
            "flush ",
            "journal ",
            "allocator ",
            "memory ",
            "context ",
        ] {
            assert!(block.lines().any(|line| line.starts_with(head)), "no {head}in {block}");
        }
        let last = block.trim_end().lines().last().expect("a line");
        assert!(last.starts_with("waits on ") && last.contains('%'), "{block}");
    }
    match drawn {
        Ok(drawn) => {
            let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
            assert_eq!(drawn.matches("\x1b[H").count(), 2, "{drawn:?}");
            assert!(drawn.contains("since mounting") && drawn.contains("the last "), "{drawn:?}");
            assert_eq!(drawn.matches("waits on ").count(), 2, "{drawn:?}");
        }
        Err(error) => println!("skipped: script: {error}"),
    }
    disk.finish();
}

#[test]
fn what_cannot_be_shown_is_named() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("64M");
    let refused = |said: &str| {
        let output = top(&["-n", "1"], &disk.point);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
        assert!(words(&output).contains(said), "{}", words(&output));
    };
    refused("no disk of extant is mounted there");
    disk.mount("nocontrol");
    refused("nocontrol");
    fs::create_dir(disk.point.join(".extant")).expect("directory");
    fs::write(disk.point.join(".extant/metrics"), "extant_served_seconds_total 1\n# EOF\n").expect("write");
    disk.umount();
    disk.mount("rw");
    refused("the disk's own");
    fs::remove_dir_all(disk.point.join(".extant")).expect("remove");
    disk.umount();
    disk.serve();
    disk.kill();
    let output = top(&["--json"], &disk.point);
    assert_eq!(output.status.code(), Some(1));
    let error: Value = serde_json::from_str(&words(&output)).expect("a document");
    assert_eq!(error["error"]["kind"], "stale_mount", "{error}");
    disk.umount();
}

/// Begins to show every tenth of a second, and waits for the first line.
fn begin(dir: &Path) -> (Child, String) {
    let mut command = Command::new(EXTANT);
    command.args(["top", "-d", "0.1"]).arg(dir).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("top");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    // It is not to be stopped by a full pipe.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    (child, line)
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let status = child.wait().expect("its end");
    let mut said = String::new();
    child.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    (status.code(), said)
}

#[test]
fn an_unmount_ends_it_well_and_the_death_of_the_server_does_not() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("64M");
    disk.mount("rw");
    let (child, first) = begin(&disk.point);
    assert!(first.contains("since mounting"), "{first}");
    // It does not keep the mount in use.
    disk.umount();
    let (code, said) = end(child);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with(": unmounted\n"), "{said}");
    disk.serve();
    let (child, _) = begin(&disk.point);
    disk.kill();
    let (code, said) = end(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("server is gone"), "{said}");
    disk.umount();
}
