//! How many instructions an operation takes, as valgrind's callgrind counts them: nearly the same on every run, however busy
//! the machine is.
//!
//! The counted process does an operation `count` times through the library and leaves; the difference of two counts is what
//! the operations between them took. Without a background thread, so that no commit of a timer counts.
//!
//! Leaves out: the kernel's work, and how long an instruction takes.

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use extant::{Fallocate, Mount, New, NewKind};

use crate::Result;
use crate::scratch::Scratch;

/// Operations of the two processes that are compared.
const COUNTS: [u32; 2] = [2_000, 6_000];

/// An operation through the library, by one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// An empty file is created, 1,000 of them in each directory.
    Create,
    /// An empty file is created and unlinked.
    CreateUnlink,
    /// A name is looked up and the file's attributes read.
    Stat,
    /// 4 KiB are written at the end of a file.
    Append,
    /// The same through a page cache.
    AppendCached,
    /// 4 KiB are written over.
    Overwrite,
    /// The same through a page cache.
    OverwriteCached,
    /// 4 KiB are read.
    Read,
    /// The same through a page cache that has them.
    ReadCached,
    /// 8 KiB are allocated at the end of a file.
    Fallocate,
}

/// The counted process: does an operation `count` times on an image.
pub fn counted(image: &Path, operation: Operation, count: u32) -> Result<()> {
    use Operation as O;
    const BLOCK: u64 = 4096;
    const BLOCKS: u32 = 64;
    let is_cached = matches!(operation, O::AppendCached | O::OverwriteCached | O::ReadCached);
    let pages = if is_cached { 256 << 20 } else { 0 };
    let fs = Mount::new().background(false).page_cache_bytes(pages).open(image)?;
    let new = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };
    fs.create_dir_all("/d")?;
    let mut dir = fs.dir("/d")?;
    let file = dir.create(b"kept", &new)?;
    let mut block = [7; BLOCK as usize];
    for at in 0..u64::from(BLOCKS) {
        file.write_at(&block, at * BLOCK)?;
    }
    for turn in 0..count {
        let at = u64::from(turn % BLOCKS) * BLOCK;
        match operation {
            O::Create => {
                if turn % 1000 == 0 {
                    let path = format!("/d{}", turn / 1000);
                    fs.create_dir_all(&path)?;
                    dir = fs.dir(&path)?;
                }
                dir.create(format!("file-{turn}").as_bytes(), &new)?;
            }
            O::CreateUnlink => {
                dir.create(b"file", &new)?;
                dir.unlink(b"file")?;
            }
            O::Stat => drop(dir.symlink_metadata(b"kept")?),
            O::Append | O::AppendCached => drop(file.write_at(&block, u64::from(BLOCKS + turn) * BLOCK)?),
            O::Overwrite | O::OverwriteCached => drop(file.write_at(&block, at)?),
            O::Read | O::ReadCached => drop(file.read_at(&mut block, at)?),
            O::Fallocate => {
                let end = file.metadata().size;
                file.allocate(Fallocate::Allocate { keep_size: false }, end, 2 * BLOCK)?;
            }
        }
    }
    // Without what unmounting does: it writes back what the operations left.
    std::process::exit(0)
}

/// See [`crate::What::Instructions`].
pub fn instructions(operations: &[Operation], dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let operations = if operations.is_empty() { Operation::value_variants() } else { operations };
    println!("| operation | instructions |");
    println!("|---|---|");
    for operation in operations {
        let value = operation.to_possible_value().ok_or("a hidden operation")?;
        let mut counts = [0; 2];
        for (found, count) in counts.iter_mut().zip(COUNTS) {
            *found = count_of(&scratch.image("counted.img")?, value.get_name(), count)?;
        }
        let each = (counts[1].saturating_sub(counts[0])) / u64::from(COUNTS[1] - COUNTS[0]);
        println!("| {} | {each} |", value.get_name());
    }
    Ok(())
}

/// Instructions of a counted process.
fn count_of(image: &Path, operation: &str, count: u32) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .arg("counted")
        .arg(image)
        .args([operation, &count.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the counted process failed: {words}").into());
    }
    let collected = words.lines().find_map(|line| line.split("Collected : ").nth(1));
    Ok(collected.and_then(|count| count.trim().parse().ok()).ok_or("valgrind names no count")?)
}
