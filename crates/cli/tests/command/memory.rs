//! The memory that disks from container images take, whatever the number of files.

use super::bench::{Bench, tool};
use super::images::PACK;

/// Files of the image: a share of the million for which the bound is meant.
const FILES: u64 = 120_000;
/// What it takes for each file, its name included.
const FILE_BYTES: u64 = 96;
/// What is left for the rest, program, caches and pieces of content, so that a million files stay below 128 MiB.
const FIXED_BYTES: u64 = (128 << 20) - 1_000_000 * FILE_BYTES;

#[test]
fn a_disk_from_an_image_of_many_files_takes_little_memory() {
    let Some(time) = tool("time") else { return };
    let bench = Bench::empty();
    bench.shell(&format!(
        "mkdir -p tree/dir; cd tree/dir; for d in $(seq {}); do mkdir $d; (cd $d; seq -f 'file-name-%04g' 1000 | xargs touch); done",
        FILES / 1000
    ));
    bench.shell(PACK);
    bench.shell("rm -r tree layer.tar");
    let mut command = bench.command(time);
    command.args(["-f", "%M", env!("CARGO_BIN_EXE_extant"), "mkfs", "-q", "-d", "layout", "disk.img"]);
    let run = bench.finish(&mut command, b"");
    assert_eq!(run.status, 0, "{}", run.err);
    let peak_kib: u64 = run.err.trim().parse().expect("KiB");
    let (bytes, bound) = (peak_kib * 1024, FIXED_BYTES + FILES * FILE_BYTES);
    println!("{FILES} files: {bytes} bytes of memory, {bound} allowed");
    assert!(bytes <= bound, "{bytes} bytes of memory, {bound} allowed");
}
