//! How many operations several clients of a mount have answered in a second, together.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::client::Client;
use super::side::Side;
use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;

const CREATED_BYTES: usize = 2048;
const PIECE_BYTES: usize = 4096;
/// A file of pieces is begun again after so many.
const PIECES: usize = 1024;
/// Before times are taken, so that caches are warm and threads started.
const WARM_UP: Duration = Duration::from_millis(100);

/// What clients do again and again, each in a directory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Creates a file, writes 2 KiB into it and closes it.
    Create,
    /// Writes 4 KiB behind those before.
    Write,
    /// Writes 4 KiB behind those before and calls fsync.
    Fsync,
}

impl Operation {
    const ALL: [Self; 3] = [Self::Create, Self::Write, Self::Fsync];

    const fn name(self) -> &'static str {
        match self {
            Self::Create => "create, write 2 KiB, close",
            Self::Write => "write 4 KiB",
            Self::Fsync => "write 4 KiB, fsync",
        }
    }

    fn of(name: &str) -> Result<Self> {
        Ok(Self::from_str(name, false)?)
    }

    /// Does it in the working directory until `time` is over; operations per second.
    fn run(self, time: Duration) -> io::Result<f64> {
        let dir = Path::new("files");
        fs::create_dir(dir)?;
        let (start, mut count) = (Instant::now(), 0_usize);
        let mut file = None;
        while start.elapsed() < time {
            if self == Self::Create {
                File::create_new(dir.join(count.to_string()))?.write_all(&[1; CREATED_BYTES])?;
            } else {
                let file = match &mut file {
                    Some(file) if !count.is_multiple_of(PIECES) => file,
                    file => file.insert(File::create(dir.join("pieces"))?),
                };
                file.write_all(&[2; PIECE_BYTES])?;
                if self == Self::Fsync {
                    file.sync_all()?;
                }
            }
            count += 1;
        }
        let rate = count as f64 / start.elapsed().as_secs_f64();
        if self == Self::Create {
            // By name: fuse2fs does not list all of a directory that changes meanwhile.
            (0..count).try_for_each(|name| fs::remove_file(dir.join(name.to_string())))?;
        } else if file.is_some() {
            fs::remove_file(dir.join("pieces"))?;
        }
        fs::remove_dir(dir)?;
        Ok(rate)
    }
}

/// A client: reads operations and milliseconds from standard input and writes how many it had in a second.
pub fn serve(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    std::env::set_current_dir(dir)?;
    for line in io::stdin().lines() {
        let line = line?;
        let (name, milliseconds) = line.split_once(' ').ok_or("no time")?;
        let rate = Operation::of(name)?.run(Duration::from_millis(milliseconds.parse()?))?;
        println!("{rate}");
    }
    Ok(())
}

/// Has all clients do the same at once; operations per second of all together.
fn together(clients: &mut [Client], operation: Operation, time: Duration) -> Result<f64> {
    let name = operation.to_possible_value().ok_or("an operation without a name")?;
    for client in &mut *clients {
        client.order(&format!("{} {}", name.get_name(), time.as_millis()))?;
    }
    clients.iter_mut().map(Client::answer).sum()
}

/// One side's figures on a fresh file system: for each operation and number of clients.
fn measure(side: Side, scratch: &Scratch, counts: &[usize], time: Duration) -> Result<Vec<f64>> {
    let mounted = side.mount(scratch)?;
    let most = counts.iter().copied().max().unwrap_or(0);
    let start = |number: usize| Client::start("timed-client", mounted.path().join(number.to_string()));
    let mut clients = (0..most).map(start).collect::<Result<Vec<_>>>()?;
    let mut figures = Vec::new();
    for operation in Operation::ALL {
        for count in counts {
            let clients = &mut clients[..*count];
            together(clients, operation, WARM_UP)?;
            figures.push(together(clients, operation, time)?);
        }
    }
    drop(clients);
    mounted.end()?;
    Ok(figures)
}

/// See [`crate::What::MountClients`].
pub fn compare(rounds: usize, counts: &[usize], sides: &[Side], time: Duration, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let cells = Operation::ALL.len() * counts.len();
    let mut columns: Vec<_> = sides.iter().map(|side| (*side, vec![Series::default(); cells])).collect();
    for _ in 0..rounds {
        let mut missing = Vec::new();
        for (side, series) in &mut columns {
            match measure(*side, &scratch, counts, time) {
                Ok(figures) => {
                    series.iter_mut().zip(figures).for_each(|(series, figure)| series.push(figure))
                }
                Err(error) if side.may_be_missing() => {
                    eprintln!("{}: not measured ({error})", side.name());
                    missing.push(*side);
                }
                Err(error) => return Err(format!("{}: {error}", side.name()).into()),
            }
        }
        columns.retain(|(side, _)| !missing.contains(side));
    }
    println!("{rounds} rounds, alternating, each on a fresh file system, {} ms each", time.as_millis());
    for (row, operation) in Operation::ALL.iter().enumerate() {
        println!("\n| {}; thousands a second | clients | together | beside one |", operation.name());
        println!("|---|---|---|---|");
        for (side, series) in &columns {
            let series = &series[row * counts.len()..][..counts.len()];
            for (count, own) in counts.iter().zip(series) {
                let (rate, ratio) = (own.cell(1e3, 1), own.over(&series[0]).cell(1.0, 2));
                println!("| {} | {count} | {rate} | {ratio} |", side.name());
            }
        }
    }
    Ok(())
}
