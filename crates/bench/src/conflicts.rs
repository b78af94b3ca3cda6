//! Which memory two operations share: the stores and loads of each, as valgrind's lackey sees them, intersected by
//! cache line.
//!
//! Two threads take turns, so that each has its own stack and heap, and say so in the stream of the trace. A line that
//! one thread writes and the other touches is one that two CPUs would pass to and fro.
//!
//! Leaves out: how often it costs anything. That is for the measurements on CPUs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::ValueEnum;
use extant::{Dir, Fallocate, File, Mount, New, NewKind};

use crate::Result;
use crate::scratch::Scratch;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Operations of each thread before the trace counts, and while it counts.
const OPERATIONS: u32 = 64;
/// Operations of a thread that may touch a line in common, for a refill.
const REFILLS_MAX: u64 = 1;
/// Until a thread that has nothing to do sleeps.
const ASLEEP: Duration = Duration::from_millis(300);
/// Shown of the places that touch a line.
const PLACES_MAX: usize = 4;

/// What a thread says when its turn begins, written before it does.
const TURNS: [&str; 2] = ["turn 0", "turn 1"];
/// What it says before each operation.
const NEXT: &str = "next";
/// Starts a line of the traced process among lackey's.
const SAYS: &str = "extant-bench: ";

/// What both threads do, each in its own directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// An empty file is created and unlinked.
    CreateUnlink,
    /// 8 KiB are allocated at the end of a file.
    Append,
    /// The same, and every 16th time the file is truncated to 0.
    Fallocate2,
    /// 4 KiB are written over.
    Overwrite,
}

impl Operation {
    fn run(self, dir: &Dir, file: &File, count: u32) -> Result<()> {
        let new = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };
        let block = [7; 4096];
        for turn in 0..count {
            say(NEXT)?;
            match self {
                Self::CreateUnlink => {
                    dir.create(b"file", &new)?;
                    dir.unlink(b"file")?;
                }
                Self::Append | Self::Fallocate2 => {
                    let end = file.metadata().size;
                    file.allocate(Fallocate::Allocate { keep_size: false }, end, 8192)?;
                    if self == Self::Fallocate2 && turn % 16 == 15 {
                        file.set_len(0)?;
                    }
                }
                Self::Overwrite => {
                    file.write_at(&block, u64::from(turn % 16) * 4096)?;
                }
            }
        }
        Ok(())
    }
}

/// How many operations did something.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    operations: u64,
    last: Option<u64>,
}

impl Seen {
    fn add(&mut self, operation: u64) {
        if self.last.replace(operation) != Some(operation) {
            self.operations += 1;
        }
    }

    /// Of an operation.
    fn share(self) -> f64 {
        self.operations as f64 / f64::from(OPERATIONS)
    }
}

/// What a thread did to a line.
#[derive(Clone, Debug, Default)]
struct Touches {
    stores: Seen,
    loads: Seen,
    either: Seen,
    /// How often each instruction of the program did, itself or through a library that it called.
    places: BTreeMap<u64, u64>,
}

/// The traced process: takes turns in two threads.
pub fn traced(image: &Path, operation: Operation) -> Result<()> {
    // A commit of the background thread would count as the turn's.
    let fs = Mount::new().background(false).open(image)?;
    let code = own_code()?;
    say(&format!("code {:x} {:x} {:x}", say as *const () as usize, code.start, code.end))?;
    let mut threads = Vec::new();
    for (thread, turn) in TURNS.into_iter().enumerate() {
        let path = format!("/dir-{thread}");
        fs.create_dir_all(&path)?;
        let dir = fs.dir(&path)?;
        let (start, started) = sync_channel::<()>(0);
        let (end, ended) = sync_channel::<()>(0);
        let work = move || -> Result<()> {
            let new = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };
            let file = dir.create(b"kept", &new)?;
            file.write_at(&[1; 65536], 0)?;
            operation.run(&dir, &file, OPERATIONS)?;
            end.send(())?;
            started.recv()?;
            say(turn)?;
            operation.run(&dir, &file, OPERATIONS)?;
            say("end")?;
            end.send(())?;
            // Nothing is given back while the other is traced.
            Ok(started.recv()?)
        };
        threads.push((start, ended, std::thread::spawn(work)));
    }
    for (_, ended, _) in &threads {
        ended.recv()?;
    }
    for (start, ended, _) in &threads {
        // Whoever had the turn before sleeps then, and does nothing that would count as this one's.
        std::thread::sleep(ASLEEP);
        start.send(())?;
        ended.recv()?;
    }
    for (start, _, thread) in threads {
        start.send(())?;
        thread.join().map_err(|_| "a thread panicked")??;
    }
    fs.unmount()?;
    Ok(())
}

/// Says something between the lines of the trace, by one system call and with no memory of its own.
fn say(what: &str) -> Result<()> {
    let parts = [SAYS, what, "\n"].map(|part| IoSlice::new(part.as_bytes()));
    rustix::io::writev(std::io::stderr(), &parts)?;
    Ok(())
}

/// Where the code of this program stands, without its libraries'.
fn own_code() -> Result<Range<u64>> {
    let here = say as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut ranges = maps.lines().filter_map(|line| range_of(line.split(' ').next()?, '-'));
    ranges.find(|range| range.contains(&here)).ok_or("no code of this program".into())
}

/// Two hexadecimal numbers.
fn range_of(text: &str, between: char) -> Option<Range<u64>> {
    let (start, end) = text.split_once(between)?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// See [`crate::What::Conflicts`].
pub fn conflicts(operation: Operation, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let own = std::env::current_exe()?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(&own)
        .arg("traced")
        .arg(scratch.image("traced.img")?)
        .arg(operation.to_possible_value().ok_or("a hidden operation")?.get_name())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("valgrind: {error}"))?;
    let mut trace = BufReader::with_capacity(1 << 20, child.stderr.take().ok_or("no pipe")?);
    let mut reader = Reader::default();
    let mut line = Vec::new();
    while trace.read_until(b'\n', &mut line)? > 0 {
        reader.read(&line);
        line.clear();
    }
    if !child.wait()?.success() {
        return Err("the traced process failed".into());
    }
    if reader.turns != 2 {
        return Err(format!("{} turns in the trace", reader.turns).into());
    }
    let shared = reader.shared();
    println!("{} lines of {LINE} bytes shared by two threads of {OPERATIONS} operations each", shared.len());
    println!("how many of each one's operations write it and read it, and the functions that do:");
    for [first, second] in &shared {
        println!(
            "{:6.2} {:6.2}   {:6.2} {:6.2}",
            first.stores.share(),
            first.loads.share(),
            second.stores.share(),
            second.loads.share()
        );
        let mut places: Vec<_> = first.places.iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (place, _) in places.into_iter().take(PLACES_MAX) {
            println!("       {}", function(&own, place.wrapping_sub(reader.code))?);
        }
    }
    // It passes to and fro no more often than the one touches it who does so in fewer.
    let is_steady = |both: &&&[Touches; 2]| both.iter().all(|one| one.either.operations > REFILLS_MAX);
    match shared.iter().filter(is_steady).count() {
        0 => Ok(()),
        lines => Err(format!(
            "{lines} lines pass to and fro in more than {REFILLS_MAX} of {OPERATIONS} operations"
        )
        .into()),
    }
}

/// The functions, inlined ones first, that the instruction at `offset` from [`say`] belongs to.
fn function(program: &Path, offset: u64) -> Result<String> {
    static SAY: OnceLock<u64> = OnceLock::new();
    let base = match SAY.get() {
        Some(base) => *base,
        None => {
            let symbols = Command::new("nm").arg("-C").arg(program).output()?;
            let text = String::from_utf8_lossy(&symbols.stdout).into_owned();
            let line =
                text.lines().find(|line| line.ends_with("conflicts::say")).ok_or("no symbol of `say`")?;
            let address = line.split(' ').next().unwrap_or_default();
            *SAY.get_or_init(|| u64::from_str_radix(address, 16).unwrap_or(0))
        }
    };
    let address = format!("{:x}", base.wrapping_add(offset));
    let output =
        Command::new("addr2line").args(["-C", "-f", "-i", "-s", "-e"]).arg(program).arg(address).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    let frames = lines.chunks(2).map(|frame| {
        let name = frame[0].rsplit("::").next().unwrap_or_default();
        format!("{name} {}", frame.get(1).copied().unwrap_or_default())
    });
    Ok(frames.collect::<Vec<_>>().join(" < "))
}

/// Reads lackey's lines.
#[derive(Debug, Default)]
struct Reader {
    /// Where [`say`] stands in the traced process, and all code of the program.
    code: u64,
    own: Range<u64>,
    turns: usize,
    turn: Option<usize>,
    operation: u64,
    /// The last one of the program itself.
    instruction: u64,
    lines: BTreeMap<u64, [Touches; 2]>,
}

impl Reader {
    fn read(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        let line = line.trim_end();
        if let Some(said) = line.strip_prefix(SAYS) {
            self.hear(said);
        } else if let (Some(thread), Some((kind, place))) = (self.turn, line.split_at_checked(3)) {
            let Some((address, bytes)) = place.split_once(',') else { return };
            let (Ok(address), Ok(bytes)) = (u64::from_str_radix(address, 16), bytes.parse::<u64>()) else {
                return;
            };
            match kind {
                "I  " if self.own.contains(&address) => self.instruction = address,
                " L " => self.touch(thread, address, bytes, false),
                " S " | " M " => self.touch(thread, address, bytes, true),
                _ => {}
            }
        }
    }

    fn hear(&mut self, said: &str) {
        if let Some(thread) = said.strip_prefix("turn ") {
            self.turn = thread.parse().ok().filter(|thread| *thread < 2);
            self.turns += 1;
        } else if said == NEXT {
            self.operation += 1;
        } else if let Some(code) = said.strip_prefix("code ") {
            let (say, own) = code.split_once(' ').unwrap_or((code, ""));
            self.code = u64::from_str_radix(say, 16).unwrap_or(0);
            self.own = range_of(own, ' ').unwrap_or_default();
        } else {
            self.turn = None;
        }
    }

    fn touch(&mut self, thread: usize, address: u64, bytes: u64, is_store: bool) {
        for line in address / LINE..=(address + bytes.max(1) - 1) / LINE {
            let touches = &mut self.lines.entry(line).or_default()[thread];
            touches.either.add(self.operation);
            if is_store {
                touches.stores.add(self.operation);
            } else {
                touches.loads.add(self.operation);
            }
            *touches.places.entry(self.instruction).or_default() += 1;
        }
    }

    /// The lines that one thread writes and the other touches, the most written first.
    fn shared(&self) -> Vec<&[Touches; 2]> {
        let is_shared = |[a, b]: &&[Touches; 2]| {
            let is_written = a.stores.operations + b.stores.operations > 0;
            is_written && a.either.operations > 0 && b.either.operations > 0
        };
        let mut shared: Vec<_> = self.lines.values().filter(is_shared).collect();
        shared.sort_by_key(|[a, b]| std::cmp::Reverse(a.stores.operations + b.stores.operations));
        shared
    }
}
