//! A file that is read in order and not in memory, beside its device: as many requests of 256 KiB at once as the engine has in flight.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use extant::{FileExtent, Mount};
use extant_block::{BlockDevice, DeviceAccess, FileDevice, Model, ModelledDevice, Transfer};

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;

const CACHE_BYTES: u64 = 256 << 20;
const BLOCK: u64 = 4096;
const REQUEST_BYTES: u64 = 256 << 10;
const REQUESTS: usize = 16;
/// Bytes that the file's reader asks for at once.
const READS: [u64; 3] = [4 << 10, 128 << 10, 1 << 20];

/// Prints bytes per second of the device and of a file of `mib` MiB on it, in turns: on an image past the host's cache, or on modelled devices
/// over an image, whose latencies and rates are slept for.
pub fn compare(rounds: usize, mib: u64, models: &[String], dir: &Path) -> Result<()> {
    println!("| | MiB/s, read by | device | file | ratio |");
    println!("|---|---|---|---|---|");
    if models.is_empty() {
        return compare_on("image", None, rounds, mib << 20, dir);
    }
    models.iter().try_for_each(|name| compare_on(name, Some(Model::kept(name)?), rounds, mib << 20, dir))
}

fn compare_on(name: &str, model: Option<Model>, rounds: usize, bytes: u64, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let image = scratch.image("image")?;
    let transfer = if model.is_none() { Transfer::Direct } else { Transfer::default() };
    let file = FileDevice::open(&image, DeviceAccess { transfer, ..DeviceAccess::read_write() })?;
    let device: Arc<dyn BlockDevice> = match model {
        None => Arc::new(file),
        Some(model) => Arc::new(ModelledDevice::new(file, model)),
    };
    let mount = || Mount::new().page_cache_bytes(CACHE_BYTES).open_device(device.clone());
    let fs = mount()?;
    let written = fs.options().write(true).create(true).open("/file")?;
    let piece = vec![5; 8 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        written.write_all_at(&piece, at)?;
    }
    written.sync_all()?;
    let extents = written.extents(0, bytes)?;
    drop(written);
    fs.unmount()?;
    for read in READS {
        let [mut alone, mut through] = [Series::default(), Series::default()];
        for _ in 0..rounds {
            alone.push(read_device(&*device, &extents)?);
            let fs = mount()?;
            let file = fs.open("/file")?;
            let mut piece = vec![0; read as usize];
            let start = Instant::now();
            for at in (0..bytes).step_by(piece.len()) {
                file.read_at(&mut piece, at)?;
            }
            through.push(bytes as f64 / start.elapsed().as_secs_f64());
            drop(file);
            fs.unmount()?;
        }
        let unit = f64::from(1 << 20);
        let ratio = through.over(&alone).cell(1.0, 2);
        println!(
            "| {name} | {} KiB | {} | {} | {ratio} |",
            read >> 10,
            alone.cell(unit, 0),
            through.cell(unit, 0)
        );
    }
    Ok(())
}

/// Reads what the extents have, several requests at once: bytes per second.
fn read_device(device: &dyn BlockDevice, extents: &[FileExtent]) -> Result<f64> {
    let requests: Vec<(u64, u64)> = extents
        .iter()
        .flat_map(|extent| {
            let (start, end) = (extent.start.0 * BLOCK, (extent.start.0 + u64::from(extent.len)) * BLOCK);
            (start..end).step_by(REQUEST_BYTES as usize).map(move |at| (at, REQUEST_BYTES.min(end - at)))
        })
        .collect();
    let next = AtomicU64::new(0);
    let work = || -> Result<()> {
        let mut piece = vec![0; REQUEST_BYTES as usize];
        while let Some((at, bytes)) = requests.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            device.read_at(*at, &mut piece[..*bytes as usize])?;
        }
        Ok(())
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..REQUESTS).map(|_| scope.spawn(|| work().map_err(|error| error.to_string()))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a reader panicked")?.map_err(Into::into))
    })
    .map_err(|error: Box<dyn std::error::Error>| error.to_string())?;
    let bytes: u64 = requests.iter().map(|(_, bytes)| bytes).sum();
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}
