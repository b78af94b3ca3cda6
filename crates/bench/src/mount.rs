//! A mounted Extant beside other servers and the kernel: the same loads by client processes, each side in turn.

mod client;
mod clients;
mod empty;
mod git;
mod latency;
mod side;
mod store;

use std::path::Path;

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;
use client::{Client, Load, together};
use git::Git;

pub use client::serve as client;
pub use clients::{compare as clients, serve as timed_client};
pub use empty::serve as empty;
pub use latency::{latency, serve_slow};
pub use side::Side;

/// A line of the report: what was measured, and the unit to print it in, as a part of operations per second.
struct Figure {
    name: &'static str,
    unit: &'static str,
    per_second: f64,
}

const fn figure(name: &'static str, unit: &'static str, per_second: f64) -> Figure {
    Figure { name, unit, per_second }
}

const FIGURES: [Figure; 7] = [
    figure("create, write 2 KiB, close", "k/s", 1e3),
    figure("create, write 2 KiB, close; 2 clients", "k/s", 1e3),
    figure("unlink", "k/s", 1e3),
    figure("stat again", "k/s", 1e3),
    figure("open, read 2 KiB, close", "k/s", 1e3),
    figure("write in pieces of 1 MiB", "MiB/s", 1.0),
    figure("git init to clone", "/min", 1.0 / 60.0),
];

/// The figures of one client, and of two, for files created.
const ONE_CLIENT: usize = 0;
const TWO_CLIENTS: usize = 1;

type Figures = [f64; FIGURES.len()];

/// A side's figures of all runs, or why there are none.
struct Column {
    side: Side,
    series: [Series; FIGURES.len()],
    missing: Option<String>,
}

/// One run of one side on a fresh file system.
fn run(side: Side, scratch: &Scratch, git: &Git) -> Result<Figures> {
    let mounted = side.mount(scratch)?;
    let start = |name: &str| Client::start("client", mounted.path().join(name));
    let mut clients = [start("one")?, start("two")?];
    // The first files find caches cold and threads not yet started.
    together(&mut clients, Load::Create)?;
    together(&mut clients, Load::Unlink)?;
    let one = &mut clients[..1];
    let create = together(one, Load::Create)?;
    let stat = together(one, Load::Stat)?;
    let read = together(one, Load::Read)?;
    let unlink = together(one, Load::Unlink)?;
    let create2 = together(&mut clients, Load::Create)?;
    together(&mut clients, Load::Unlink)?;
    let write = together(&mut clients[..1], Load::Write)?;
    drop(clients);
    let git = git.run(mounted.path())?;
    mounted.end()?;
    Ok([create, create2, unlink, stat, read, write, git])
}

/// See [`crate::What::Mount`].
pub fn compare(runs: usize, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let git = Git::new(&scratch)?;
    let mut columns = Side::ALL.map(|side| Column { side, series: Default::default(), missing: None });
    for _ in 0..runs {
        for column in columns.iter_mut().filter(|column| column.missing.is_none()) {
            match run(column.side, &scratch, &git) {
                Ok(figures) => {
                    column.series.iter_mut().zip(figures).for_each(|(series, figure)| series.push(figure));
                }
                Err(error) if column.side.may_be_missing() => column.missing = Some(error.to_string()),
                Err(error) => return Err(format!("{}: {error}", column.side.name()).into()),
            }
        }
    }
    println!("mounted, {runs} runs, alternating, each on a fresh file system");
    for (index, figure) in FIGURES.iter().enumerate() {
        println!("\n{}", figure.name);
        print(&columns, |name, series| series[index].line(name, figure.per_second, figure.unit));
        for column in columns.iter().skip(1).filter(|column| column.missing.is_none()) {
            let ratio = columns[0].series[index].over(&column.series[index]);
            println!("{}", ratio.ratio_line(&format!("  extant / {}", column.side.name())));
        }
    }
    println!("\n{}: T2/T1", FIGURES[ONE_CLIENT].name);
    print(&columns, |name, series| series[TWO_CLIENTS].over(&series[ONE_CLIENT]).ratio_line(name));
    Ok(())
}

/// Prints a line of each side.
fn print(columns: &[Column], line: impl Fn(&str, &[Series]) -> String) {
    for column in columns {
        let name = format!("  {}", column.side.name());
        match &column.missing {
            None => println!("{}", line(&name, &column.series)),
            Some(why) => println!("{name}: not measured ({why})"),
        }
    }
}
