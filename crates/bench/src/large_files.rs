//! Large files by one, two and four writers: the library with its page cache beside the kernel's ext4 and XFS on loop devices,
//! and the file below by itself, in turns, each with the sync at its end.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use extant::Mount;

use crate::Result;
use crate::kernel::KernelMount;
use crate::report::Series;
use crate::scratch::Scratch;

const WRITERS: [usize; 3] = [1, 2, 4];
/// Of each writer's file.
const FILE_BYTES: u64 = 256 << 20;
const PIECE_BYTES: usize = 1 << 20;
const CACHE_BYTES: u64 = 256 << 20;

/// Who writes.
#[derive(Clone, Copy, Debug)]
enum Side {
    /// The image itself, each writer at a place of its own.
    Below,
    Extant,
    Ext4,
    Xfs,
}

const SIDES: [Side; 4] = [Side::Below, Side::Extant, Side::Ext4, Side::Xfs];

/// Prints MiB/s of each side by writers, and ratios.
pub fn compare(rounds: usize, dir: &Path) -> Result<()> {
    println!("| writers, MiB/s | below | extant | kernel ext4 | kernel XFS | extant to ext4 | to XFS |");
    println!("|---|---|---|---|---|---|---|");
    let mut below = Vec::new();
    for writers in WRITERS {
        let mut rates: [Series; SIDES.len()] = Default::default();
        for _ in 0..rounds {
            for (side, series) in SIDES.into_iter().zip(&mut rates) {
                series.push(rate(side, writers, dir)?);
            }
        }
        let cells: Vec<_> = rates.iter().map(|series| series.cell(f64::from(1 << 20), 0)).collect();
        let ratios = [2, 3].map(|kernel| rates[1].over(&rates[kernel]).cell(1.0, 2));
        println!("| {writers} | {} | {} |", cells.join(" | "), ratios.join(" | "));
        below.push(rates[0].median());
    }
    println!("\nBelow, two writers have {:.2} times what one has.", below[1] / below[0]);
    Ok(())
}

fn rate(side: Side, writers: usize, dir: &Path) -> Result<f64> {
    let scratch = Scratch::new(dir)?;
    let at_once = |file: &std::fs::File, bytes: &[u8], at| Ok(file.write_all_at(bytes, at)?);
    match side {
        Side::Below => {
            let path = scratch.path("image");
            let image = std::fs::File::create(&path)?;
            image.set_len(4 << 30)?;
            let places: Vec<u64> = (0..writers as u64).map(|writer| writer * FILE_BYTES).collect();
            timed(&places, |place, bytes, at| at_once(&image, bytes, place + at), || Ok(()))
        }
        Side::Extant => {
            let fs = Mount::new().page_cache_bytes(CACHE_BYTES).open(scratch.image("image")?)?;
            let mut files = Vec::new();
            for writer in 0..writers {
                fs.create_dir(format!("/{writer}"))?;
                files.push(fs.options().write(true).create(true).open(format!("/{writer}/file"))?);
            }
            let rate = timed(&files, |file, bytes, at| Ok(file.write_all_at(bytes, at)?), || Ok(fs.sync()?))?;
            drop(files);
            fs.unmount()?;
            Ok(rate)
        }
        Side::Ext4 | Side::Xfs => {
            let image = match side {
                Side::Xfs => scratch.xfs_image("image")?,
                _ => scratch.image("image")?,
            };
            let mount = KernelMount::new(&image, &scratch.path("point"))?;
            let mut files = Vec::new();
            for writer in 0..writers {
                let directory = mount.path().join(writer.to_string());
                std::fs::create_dir(&directory)?;
                files.push(std::fs::File::create(directory.join("file"))?);
            }
            let rate = timed(&files, at_once, || Ok(mount.sync()?))?;
            drop(files);
            mount.unmount()?;
            Ok(rate)
        }
    }
}

/// Bytes per second of all who write a file each, with the sync.
fn timed<F: Sync>(
    files: &[F],
    write: impl Fn(&F, &[u8], u64) -> Result<()> + Sync,
    sync: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let piece = vec![5; PIECE_BYTES];
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = files
            .iter()
            .map(|file| {
                let (write, piece) = (&write, &piece);
                scope.spawn(move || {
                    (0..FILE_BYTES).step_by(PIECE_BYTES).try_for_each(|at| write(file, piece, at))
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    })?;
    sync()?;
    Ok((files.len() as u64 * FILE_BYTES) as f64 / start.elapsed().as_secs_f64())
}
