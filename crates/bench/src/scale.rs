//! A disk of 600 TiB: how long mounting takes and how much memory, after an unmount and after a crash; what a group costs
//! that nobody touched; and what an allocation costs by the number of groups.
//!
//! Each mount is a process of its own, so that its memory is its own. The image is sparse: 2.2 GB of it are written.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use extant::Mount;

use crate::Result;
use crate::report::Series;
use crate::scratch::{Scratch, output, run};

mod groups;

const DISK_BYTES: u64 = 600 << 40;
/// 16 inodes to a group, the fewest; each meta group has its descriptors.
const FORMAT: [&str; 13] = [
    "-q",
    "-F",
    "-t",
    "ext4",
    "-b",
    "4096",
    "-N",
    "78643200",
    "-J",
    "size=1024",
    "-O",
    "meta_bg,^resize_inode,64bit",
    "-Elazy_itable_init=1,lazy_journal_init=1",
];

/// See [`crate::What::Scale`].
pub fn measure(dir: &Path, rounds: usize, plot: Option<&Path>) -> Result<()> {
    groups::measure(rounds, plot)?;
    let scratch = Scratch::new(dir)?;
    let image = scratch.path("large.img");
    std::fs::File::create(&image)?.set_len(DISK_BYTES)?;
    run(Command::new("mke2fs").args(FORMAT).arg(&image))?;
    for crashes in [false, true] {
        // Whoever went before leaves the state that the next one finds.
        output(&mut worker(&image, crashes, false)?)?;
        let mut series = <[Series; 4]>::default();
        for _ in 0..rounds {
            let line = output(&mut worker(&image, crashes, crashes)?)?;
            let figures = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
            series.iter_mut().zip(figures).for_each(|(series, figure)| series.push(figure));
        }
        let [mounting, memory, counted, memory_then] = &series;
        println!("600 TiB after {}", if crashes { "a crash" } else { "an unmount" });
        println!("{}", mounting.line("  mounting", 1.0, "ms"));
        println!("{}", memory.line("  most memory until then", 1.0, "MiB"));
        if crashes {
            println!("{}", counted.line("  until all groups were counted", 1.0, "ms"));
        }
        println!("{}", memory_then.line("  most memory in the end, a file written", 1.0, "MiB"));
    }
    output(&mut worker(&image, false, true)?)?;
    let text = output(Command::new("dumpe2fs").arg("-h").arg(&image))?;
    let lines = text.lines().filter(|line| line.starts_with("Free ") || line.starts_with("Filesystem state"));
    lines.for_each(|line| println!("{line}"));
    Ok(())
}

fn worker(image: &Path, crashes: bool, counts: bool) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("scale-worker").arg(image);
    if crashes {
        command.arg("--crash");
    }
    if counts {
        command.arg("--count");
    }
    Ok(command)
}

/// Mounts, writes a file, waits after a crash until all is counted, and unmounts or ends as a crash does. Prints
/// milliseconds and MiB.
pub fn worker_main(image: &Path, crashes: bool, counts: bool) -> Result<()> {
    let start = Instant::now();
    let fs = Mount::new().open(image)?;
    let (mounting, memory) = (milliseconds(start), most_memory()?);
    fs.write("/file", [7; 1 << 20])?;
    fs.sync()?;
    if counts {
        while fs.descriptors().read < fs.descriptors().blocks {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counted = milliseconds(start);
    println!("{mounting} {memory} {counted} {}", most_memory()?);
    if crashes {
        std::process::exit(0);
    }
    Ok(fs.unmount()?)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The most memory that the process ever had, in MiB.
fn most_memory() -> Result<f64> {
    memory("VmHWM:")
}

/// A line of the process's memory, in MiB.
fn memory(name: &str) -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line of memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
