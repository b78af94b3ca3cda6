//! `import` and `export`, with `tar` as the judge.

use std::fs;

use serde_json::Value;

use super::bench::{Bench, DISK, is_root, tool};

fn listing(bench: &Bench, archive: &str) -> Vec<String> {
    let text = bench.program("tar", &["--numeric-owner", "--full-time", "-tvf", archive]).out;
    let mut lines: Vec<String> =
        text.lines().map(|line| line.replace(" ./", " ").replace(" link to ./", " link to ")).collect();
    lines.retain(|line| !line.ends_with(' ') && !line.contains("lost+found"));
    lines.sort();
    lines
}

/// An archive with everything that tar knows and an ordinary user can make.
fn rich_archive(bench: &Bench) {
    fs::hard_link(bench.path("tree/bin/tool"), bench.path("tree/bin/hard")).expect("link");
    let sparse = fs::File::create(bench.path("tree/sparse")).expect("file");
    sparse.set_len(64 << 20).expect("length");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 32 << 20).expect("write");
    fs::create_dir_all(bench.path("tree").join("n".repeat(200)).join("m".repeat(200))).expect("long names");
    if is_root() {
        bench.program("mknod", &["tree/null", "c", "1", "3"]);
        bench.program("mkfifo", &["tree/pipe"]);
        if tool("setfattr").is_some() {
            bench.program("setfattr", &["-n", "user.origin", "-v", "here", "tree/bin/tool"]);
        }
    }
    bench.program(
        "tar",
        &[
            "--format=pax",
            "--sort=name",
            "--xattrs",
            "-S",
            "--owner=1000",
            "--group=100",
            "-cf",
            "rich.tar",
            "-C",
            "tree",
            ".",
        ],
    );
}

#[test]
fn archives_go_in_and_come_out_as_they_were() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    rich_archive(&bench);
    bench.mke2fs("new.img", "16M", &[]);
    bench.ok(&["import", "new.img", "rich.tar"]);
    bench.assert_clean("new.img");
    assert_eq!(bench.field("new.img", "/bin/tool", "User:"), "1000");
    assert_eq!(bench.field("new.img", "/bin/tool", "Links:"), "2");
    let blocks: u64 = bench.field("new.img", "/sparse", "Blockcount:").parse().expect("number");
    assert!(blocks <= 64, "{blocks}");
    bench.ok(&["export", "new.img", "-o", "back.tar"]);
    assert_eq!(listing(&bench, "back.tar"), listing(&bench, "rich.tar"));
    // The same disk gives the same bytes, to a file or through a pipe.
    assert!(bench.ok(&["export", "new.img"]).stdout == bench.bytes("back.tar"));
    let document = bench.ok(&["export", "--json", "new.img", "-o", "again.tar"]).json();
    assert!(document["entries"].as_u64().expect("count") > 10, "{document}");
    assert!(bench.bytes("again.tar") == bench.bytes("back.tar"));
}

#[test]
fn archives_come_from_pipes_and_compressed_into_directories() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar").and(tool("gzip"))) else { return };
    bench.program("tar", &["-czf", "etc.tar.gz", "-C", "tree", "etc"]);
    bench.ok(&["mkdir", "disk.img:/srv", "disk.img:/srv/two"]);
    bench.ok(&["import", "disk.img:/srv", "etc.tar.gz"]);
    let archive = bench.bytes("etc.tar.gz");
    let run = bench.finish(bench.extant().args(["import", "disk.img:/srv/two", "-"]), &archive);
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    for path in ["/srv/etc/hostname", "/srv/two/etc/hostname"] {
        assert_eq!(bench.content(DISK, path), b"guest\n");
    }
    bench.assert_clean(DISK);
    let part = bench.ok(&["export", "disk.img:/srv/two"]).stdout;
    fs::write(bench.path("part.tar"), part).expect("file");
    assert!(bench.program("tar", &["-tf", "part.tar"]).out.contains("etc/hostname"));
}

#[test]
fn progress_of_a_slow_archive_is_told_in_events() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    fs::write(bench.path("tree/large"), vec![b'x'; 4 << 20]).expect("file");
    bench.program("tar", &["-cf", "tree.tar", "-C", "tree", "."]);
    let extant = env!("CARGO_BIN_EXE_extant");
    bench.shell(&format!(
        "half=$(($(wc -c < tree.tar) / 1024 * 512)); mkfifo slow
        (head -c $half tree.tar; sleep 0.5; tail -c +$((half + 1)) tree.tar) > slow &
        {extant} mkdir disk.img:/srv; {extant} import --json disk.img:/srv slow > out 2> events"
    ));
    let told = |name: &str| String::from_utf8(bench.bytes(name)).expect("text");
    let result: Value = serde_json::from_str(&told("out")).expect("JSON");
    let events: Vec<Value> =
        told("events").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = &events.last().expect("events")["progress"];
    assert_eq!(last["step"], "copy");
    assert!(last["elapsed_ns"].as_u64() >= Some(100_000_000), "{last}");
    for (key, whole) in [("files", "entries"), ("done_bytes", "content_bytes")] {
        let counts: Vec<_> = events.iter().map(|event| event["progress"][key].as_u64()).collect();
        assert!(counts.is_sorted() && counts[0].is_some(), "{counts:?}");
        assert!(*counts.last().expect("events") <= result[whole].as_u64(), "{counts:?} of {result}");
    }
}

#[test]
fn archive_from_a_named_pipe_is_read() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar").and(tool("mkfifo"))) else { return };
    bench.program("tar", &["-cf", "etc.tar", "-C", "tree", "etc"]);
    bench.program("mkfifo", &["pipe"]);
    let (archive, pipe) = (bench.bytes("etc.tar"), bench.path("pipe"));
    let writer = std::thread::spawn(move || fs::write(pipe, archive));
    bench.ok(&["mkdir", "disk.img:/srv"]);
    bench.ok(&["import", "disk.img:/srv", "pipe"]);
    writer.join().expect("thread").expect("pipe");
    assert_eq!(bench.content(DISK, "/srv/etc/hostname"), b"guest\n");
}

#[test]
fn bad_archives_fail_by_name_and_leave_the_disk_clean() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    bench.program("tar", &["-cf", "whole.tar", "-C", "tree", "."]);
    let whole = bench.bytes("whole.tar");
    fs::write(bench.path("cut.tar"), &whole[..whole.len() / 2 / 512 * 512 + 100]).expect("file");
    fs::write(bench.path("none.tar"), vec![b'x'; 2048]).expect("file");
    bench
        .program("tar", &["-P", "-cf", "out.tar", "--transform", "s,^,../../../,", "-C", "tree", "bin/tool"]);
    for archive in ["cut.tar", "none.tar", "out.tar", "missing.tar"] {
        let said = bench.fails(1, &["import", DISK, archive]);
        assert!(said.contains(archive), "{archive}: {said}");
        bench.assert_clean(DISK);
    }
    let said = bench.fails(1, &["import", "disk.img:/missing", "whole.tar"]);
    assert!(said.contains("disk.img:/missing: no such file"), "{said}");
    let said = bench.fails(1, &["import", "disk.img:/etc/hostname", "whole.tar"]);
    assert!(said.contains("disk.img:/etc/hostname: not a directory"), "{said}");
}

#[test]
fn archive_too_large_for_the_disk_fails_and_leaves_it_clean() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    fs::write(bench.path("tree/large"), vec![7; 32 << 20]).expect("file");
    bench.program("tar", &["-cf", "large.tar", "-C", "tree", "."]);
    bench.ok(&["mkdir", "disk.img:/srv"]);
    let said = bench.fails(1, &["import", "disk.img:/srv", "large.tar"]);
    assert!(said.contains("disk.img:/srv/large: no space left"), "{said}");
    bench.assert_clean(DISK);
}

#[test]
fn export_that_fails_leaves_no_archive() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("old.tar"), "old").expect("file");
    bench.fails(1, &["export", "disk.img:/missing", "-o", "new.tar"]);
    assert!(!bench.path("new.tar").exists());
    bench.fails(1, &["export", "disk.img:/missing", "-o", "old.tar"]);
    assert_eq!(bench.bytes("old.tar"), b"old");
    bench.fails(1, &["export", DISK, "-o", "missing/new.tar"]);
    bench.fails(2, &["export", "--json", DISK]);
    bench.debugfs_write(DISK, "link /deep /deep/er/again\n");
    bench.fails(1, &["export", DISK, "-o", "new.tar"]);
    assert!(!bench.path("new.tar").exists());
}
