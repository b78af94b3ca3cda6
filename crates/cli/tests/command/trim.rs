//! `trim`: what it gives back to the host, and what it leaves alone.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::bench::{Bench, DISK, is_root, tool};

const MIB: u64 = 1 << 20;

fn host_bytes(bench: &Bench) -> u64 {
    fs::metadata(bench.path(DISK)).expect("image").blocks() * 512
}

/// A disk whose inode table, not initialised yet, and free blocks all have blocks of the host, with files around a removed one.
fn full_disk() -> Option<(Bench, Vec<u8>)> {
    tool("mke2fs").and(tool("debugfs")).and(tool("e2fsck"))?;
    let bench = Bench::empty();
    fs::write(bench.path(DISK), vec![0xDB; 64 << 20]).expect("image");
    bench.mke2fs(DISK, "64M", &["-F", "-E", "nodiscard,lazy_itable_init=1", "-N", "16384"]);
    let content: Vec<u8> =
        (0..3 * MIB as u32 / 4).flat_map(|word| word.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
    fs::write(bench.path("file"), &content).expect("file");
    bench.ok(&["cp", "file", "disk.img:/removed"]);
    bench.ok(&["cp", "file", "disk.img:/file"]);
    bench.ok(&["rm", "disk.img:/removed"]);
    Some((bench, content))
}

#[test]
fn trim_gives_free_blocks_and_unused_tables_back_and_keeps_files() {
    let Some((bench, content)) = full_disk() else { return };
    let before = host_bytes(&bench);
    let planned = bench.ok(&["trim", "--dry-run", "--json", DISK]).json();
    let done = bench.ok(&["trim", "--json", DISK]).json();
    assert_eq!((&done["trimmed_bytes"], &done["is_dry_run"]), (&planned["trimmed_bytes"], &false.into()));
    assert_eq!(done["host_bytes_before"], before);
    assert_eq!(done["host_bytes_after"], host_bytes(&bench));
    let (free, tables) =
        (done["trimmed_bytes"].as_u64().expect("bytes"), done["zeroed_table_bytes"].as_u64().expect("bytes"));
    assert_eq!(free, bench.document("df --json disk.img")["disks"][0]["free_bytes"].as_u64().expect("bytes"));
    assert!(tables > 3 * MIB && free > 40 * MIB, "{done}");
    // All but what the log took meanwhile.
    assert!(host_bytes(&bench) + free + tables <= before + MIB, "{done}");
    bench.assert_clean(DISK);
    assert!(bench.content(DISK, "/file") == content, "the file has other bytes");
    assert!(bench.program("dumpe2fs", &[DISK]).out.contains("ITABLE_ZEROED"));
    let again = bench.ok(&["trim", DISK]).out;
    assert!(
        again.starts_with("disk.img: ") && again.contains("bytes) of free space trimmed; the host has "),
        "{again}"
    );
}

#[test]
fn dry_run_writes_nothing_and_short_runs_stay() {
    let Some((bench, _)) = full_disk() else { return };
    bench.assert_untouched(DISK, || {
        let said = bench.ok(&["trim", "--dry-run", DISK]).out;
        assert!(said.starts_with("would trim disk.img: "), "{said}");
    });
    let all = bench.document("trim --json --dry-run disk.img")["trimmed_bytes"].as_u64().expect("bytes");
    let long = bench.document("trim --json --dry-run --minimum 16M disk.img")["trimmed_bytes"]
        .as_u64()
        .expect("bytes");
    assert!(long < all, "{long} of {all}");
    assert_eq!(bench.document("trim --json --minimum 16M disk.img")["trimmed_bytes"], long);
}

#[test]
fn what_cannot_be_trimmed_is_named() {
    let bench = Bench::empty();
    fs::create_dir(bench.path("dir")).expect("directory");
    fs::write(bench.path("text"), "no disk").expect("file");
    assert!(bench.fails(2, &["trim", "--dry-run", "dir"]).contains("`df`"));
    assert!(bench.fails(1, &["trim", "text"]).contains("text"));
    if std::path::Path::new("/proc/self").is_dir() {
        let said = bench.fails(1, &["trim", "/proc/self"]);
        assert!(said.contains("cannot be trimmed"), "{said}");
    }
}

#[test]
fn kernels_mount_is_trimmed_by_the_kernel() {
    let Some((bench, content)) = full_disk() else { return };
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    fs::create_dir(bench.path("dir")).expect("directory");
    if bench.finish(bench.command("mount").args(["-o", "loop", DISK, "dir"]), b"").status != 0 {
        println!("skipped: no loop device");
        return;
    }
    let (before, run) = (host_bytes(&bench), bench.run(&["trim", "--json", "dir"]));
    bench.program("umount", &["dir"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.json()["trimmed_bytes"].as_u64().expect("bytes") > 40 * MIB, "{}", run.out);
    assert!(host_bytes(&bench) + 40 * MIB < before);
    assert!(bench.content(DISK, "/file") == content, "the file has other bytes");
    bench.assert_clean(DISK);
}
