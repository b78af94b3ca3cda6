//! Disks whose journal a crash left full.

use super::bench::{Bench, DISK};

/// A disk that is as it was but for its journal, which holds a new file `/etc/late` and a changed `/etc/hostname`:
/// the blocks in which a changed copy differs.
pub fn dirty_disk() -> Option<Bench> {
    const BLOCK: usize = 4096;
    let bench = Bench::new()?;
    std::fs::copy(bench.path(DISK), bench.path("after.img")).expect("copy");
    std::fs::write(bench.path("late"), "in the journal\n").expect("file");
    std::fs::write(bench.path("renamed"), "renamed\n").expect("file");
    bench.debugfs_write("after.img", "cd /etc\nwrite late late\nrm hostname\nwrite renamed hostname\n");
    bench.program("e2fsck", &["-fy", "after.img"]);
    let (before, after) = (bench.bytes(DISK), bench.bytes("after.img"));
    let changed =
        before.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate().filter(|(_, (old, new))| old != new);
    let (numbers, blocks): (Vec<String>, Vec<&[u8]>) =
        changed.map(|(at, (_, new))| (at.to_string(), new)).unzip();
    assert!(numbers.len() > 3, "{numbers:?}");
    std::fs::write(bench.path("blocks"), blocks.concat()).expect("file");
    bench.debugfs_write(DISK, &format!("jo\njw -b {} blocks\njc\n", numbers.join(",")));
    let header = bench.program("dumpe2fs", &["-h", DISK]).out;
    assert!(header.contains("needs_recovery"), "{header}");
    Some(bench)
}

#[test]
fn reading_shows_what_the_journal_holds_and_writes_nothing() {
    let Some(bench) = dirty_disk() else { return };
    bench.assert_untouched(DISK, || {
        assert_eq!(bench.ok(&["ls", "disk.img:/etc"]).out, "group\nhostname\nlate\nlink\npasswd\n");
        assert_eq!(bench.ok(&["cat", "disk.img:/etc/late"]).out, "in the journal\n");
        assert_eq!(bench.ok(&["cat", "disk.img:/etc/hostname"]).out, "renamed\n");
        bench.ok(&["stat", "disk.img:/etc/late"]);
        bench.ok(&["export", DISK, "-o", "out.tar"]);
        bench.ok(&["cp", "disk.img:/etc/late", "out"]);
        bench.ok(&["check", DISK]);
        let document = bench.ok(&["info", "--json", DISK]).json();
        assert!(document["journal_replay_blocks"].as_u64().expect("count") > 3, "{document}");
        assert_eq!(document["is_clean"], false);
    });
    assert_eq!(bench.bytes("out"), b"in the journal\n");
    assert!(bench.program("tar", &["-tf", "out.tar"]).out.contains("etc/late"));
}

#[test]
fn norecovery_shows_the_disk_as_it_lies_there() {
    let Some(bench) = dirty_disk() else { return };
    bench.assert_untouched(DISK, || {
        assert_eq!(bench.ok(&["cat", "--norecovery", "disk.img:/etc/hostname"]).out, "guest\n");
        bench.fails(1, &["cat", "--norecovery", "disk.img:/etc/late"]);
    });
}

#[test]
fn writing_replays_first_and_says_so() {
    let Some(bench) = dirty_disk() else { return };
    let run = bench.run(&["mkdir", "disk.img:/new"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.starts_with("extant: disk.img: ") && run.err.contains("replayed"), "{}", run.err);
    bench.assert_clean(DISK);
    assert_eq!(bench.content(DISK, "/etc/late"), b"in the journal\n");
    assert!(bench.debugfs(DISK, "stat /new").contains("directory"));
    assert!(!bench.program("dumpe2fs", &["-h", DISK]).out.contains("needs_recovery"));
    bench.ok(&["mkdir", "disk.img:/newer"]);
}

#[test]
fn replay_brings_the_journal_home_and_leaves_a_clean_disk_alone() {
    let Some(bench) = dirty_disk() else { return };
    let run = bench.run(&["replay", DISK]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.contains("blocks replayed"), "{}", run.out);
    bench.assert_clean(DISK);
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"renamed\n");
    bench.assert_untouched(DISK, || {
        bench.ok(&["replay", DISK]);
    });
}

#[test]
fn disks_left_by_the_kernel_are_read_and_written() {
    let Some(bench) = Bench::new() else { return };
    if !super::bench::is_root() {
        println!("skipped: not root");
        return;
    }
    std::fs::create_dir(bench.path("mnt")).expect("directory");
    let mount = bench.finish(bench.command("mount").args(["-o", "loop", DISK, "mnt"]), b"");
    if mount.status != 0 {
        println!("skipped: {}", mount.err);
        return;
    }
    std::fs::write(bench.path("mnt/etc/late"), "in the journal\n").expect("file");
    bench.program("sync", &["-f", "mnt"]);
    std::fs::copy(bench.path(DISK), bench.path("crashed.img")).expect("copy");
    bench.program("umount", &["mnt"]);
    bench.assert_untouched("crashed.img", || {
        assert_eq!(bench.ok(&["cat", "crashed.img:/etc/late"]).out, "in the journal\n");
    });
    assert_eq!(bench.run(&["mkdir", "crashed.img:/new"]).status, 0);
    assert_eq!(bench.content("crashed.img", "/etc/late"), b"in the journal\n");
    bench.assert_clean("crashed.img");
}

#[test]
fn writer_that_is_killed_leaves_the_old_or_the_new() {
    let Some(bench) = Bench::new() else { return };
    bench.mke2fs("large.img", "96M", &["-d", "tree"]);
    std::fs::write(bench.path("new"), vec![7; 24 << 20]).expect("file");
    for delay_ms in [0, 3, 10, 20, 30, 40, 60] {
        let mut child = bench.extant().args(["cp", "new", "large.img:/etc/hostname"]).spawn().expect("spawn");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        child.kill().expect("kill");
        child.wait().expect("wait");
        let read = bench.ok(&["cat", "large.img:/etc/hostname"]).stdout;
        assert!(read == b"guest\n" || read == bench.bytes("new"), "{delay_ms} ms: {} bytes", read.len());
        // The next writer completes what the crash left.
        let run = bench.run(&["mkdir", "-p", &format!("large.img:/after/{delay_ms}")]);
        assert_eq!(run.status, 0, "{}", run.err);
        bench.assert_clean("large.img");
        assert!(
            bench.content("large.img", "/etc/hostname") == read,
            "{delay_ms} ms: other content after the replay"
        );
    }
}
