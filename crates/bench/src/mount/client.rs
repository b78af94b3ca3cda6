//! The client: a process that does what it is told in a directory, and says how long it took.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use clap::ValueEnum;

use crate::Result;

const FILES: usize = 5000;
const FILE_BYTES: usize = 2048;
const STATS: usize = 50_000;
const PIECES: usize = 256;
const PIECE_BYTES: usize = 1 << 20;

/// What a client does. Files that one load made are there for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Creates files, writes 2 KiB into each and closes it.
    Create,
    /// Asks for the attributes of these files again and again.
    Stat,
    /// Opens each, reads its 2 KiB and closes it.
    Read,
    /// Unlinks them.
    Unlink,
    /// Writes a file of 256 MiB in pieces of 1 MiB.
    Write,
}

impl Load {
    /// Operations of one client.
    pub const fn count(self) -> usize {
        match self {
            Self::Create | Self::Read | Self::Unlink => FILES,
            Self::Stat => STATS,
            Self::Write => PIECES,
        }
    }

    /// Does it in the working directory; seconds.
    fn run(self, names: &[String], buf: &mut [u8]) -> Result<f64> {
        let start = Instant::now();
        let took = || start.elapsed().as_secs_f64();
        match self {
            Self::Create => {
                for name in names {
                    File::create_new(name)?.write_all(&buf[..FILE_BYTES])?;
                }
            }
            Self::Stat => {
                for name in names.iter().cycle().take(STATS) {
                    std::fs::metadata(name)?;
                }
            }
            Self::Read => {
                for name in names {
                    File::open(name)?.read_exact(&mut buf[..FILE_BYTES])?;
                }
            }
            Self::Unlink => {
                for name in names {
                    std::fs::remove_file(name)?;
                }
            }
            Self::Write => {
                let mut file = File::create_new("large")?;
                for _ in 0..PIECES {
                    file.write_all(buf)?;
                }
                let took = took();
                drop(file);
                std::fs::remove_file("large")?;
                return Ok(took);
            }
        }
        Ok(took())
    }
}

/// A client: reads the names of loads from standard input and writes the seconds that each took.
pub fn serve(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir)?;
    std::env::set_current_dir(dir)?;
    let names: Vec<String> = (0..FILES).map(|index| index.to_string()).collect();
    let mut buf = vec![b'x'; PIECE_BYTES];
    for line in std::io::stdin().lines() {
        let took = Load::from_str(&line?, false)?.run(&names, &mut buf)?;
        println!("{took}");
    }
    Ok(())
}

/// A process that follows orders. It ends when it is dropped.
pub struct Client {
    child: Child,
    /// Closed by taking it.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts one by its verb in a new directory.
    pub fn start(verb: &str, dir: PathBuf) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(verb).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take().ok_or("no pipe")?);
        Ok(Self { child, orders, answers: BufReader::new(answers) })
    }

    /// Tells it what to do.
    pub fn order(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.orders.as_mut().ok_or("no pipe")?, "{line}")?)
    }

    /// Waits until it has done that; its figure.
    pub fn answer(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().parse().map_err(|_| "a client failed")?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// Has all clients do a load at once; operations per second of all together, until the last has ended.
pub fn together(clients: &mut [Client], load: Load) -> Result<f64> {
    let name = load.to_possible_value().ok_or("a load without a name")?;
    for client in &mut *clients {
        client.order(name.get_name())?;
    }
    let mut longest: f64 = 0.0;
    for client in &mut *clients {
        longest = longest.max(client.answer()?);
    }
    Ok((clients.len() * load.count()) as f64 / longest)
}
