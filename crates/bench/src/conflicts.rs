//! Which memory two operations share: the stores and loads of each, as valgrind's lackey sees them, intersected by
//! cache line.
//!
//! Two threads take turns, so that each has its own stack and heap, and say so in the stream of the trace. A line that
//! one thread writes and the other touches is one that two CPUs would pass to and fro.
//!
//! Leaves out: how often it costs anything. That is for the measurements on CPUs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;

use clap::ValueEnum;
use extant::{Dir, Fallocate, File, Mount, New, NewKind};

use crate::Result;
use crate::scratch::Scratch;

/// Bytes of a cache line.
const LINE: u64 = 64;
/// Operations of each thread before the trace counts, and while it counts.
const OPERATIONS: u32 = 64;
/// Shown of the places that touch a line.
const PLACES_MAX: usize = 4;

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

/// What a thread did to a line.
#[derive(Clone, Debug, Default)]
struct Touches {
    stores: u64,
    loads: u64,
    /// How often each instruction did.
    places: BTreeMap<u64, u64>,
}

/// The traced process: takes turns in two threads.
pub fn traced(image: &Path, operation: Operation) -> Result<()> {
    let fs = Mount::new().open(image)?;
    say(&format!("code {:x}", say as *const () as usize))?;
    let mut threads = Vec::new();
    for thread in 0..2 {
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
            say(&format!("turn {thread}"))?;
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

/// Says something between the lines of the trace, by one system call and no lock.
fn say(what: &str) -> Result<()> {
    rustix::io::write(std::io::stderr(), format!("{SAYS}{what}\n").as_bytes())?;
    Ok(())
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
    println!("stores and loads of each per operation, and the functions that touch the line:");
    for [first, second] in &shared {
        println!(
            "{:6.2} {:6.2}   {:6.2} {:6.2}",
            first.stores(),
            first.loads(),
            second.stores(),
            second.loads()
        );
        let mut places: Vec<_> = first.places.iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (place, _) in places.into_iter().take(PLACES_MAX) {
            println!("       {}", function(&own, place.wrapping_sub(reader.code))?);
        }
    }
    Ok(())
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
    /// Where [`say`] stands in the traced process.
    code: u64,
    turns: usize,
    turn: Option<usize>,
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
                "I  " => self.instruction = address,
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
        } else if let Some(code) = said.strip_prefix("code ") {
            self.code = u64::from_str_radix(code, 16).unwrap_or(0);
        } else {
            self.turn = None;
        }
    }

    fn touch(&mut self, thread: usize, address: u64, bytes: u64, is_store: bool) {
        for line in address / LINE..=(address + bytes.max(1) - 1) / LINE {
            let touches = &mut self.lines.entry(line).or_default()[thread];
            if is_store {
                touches.stores += 1
            } else {
                touches.loads += 1
            }
            *touches.places.entry(self.instruction).or_default() += 1;
        }
    }

    /// The lines that one thread writes and the other touches, the most written first.
    fn shared(&self) -> Vec<&[Touches; 2]> {
        let is_shared = |[a, b]: &&[Touches; 2]| {
            let touched = |touches: &Touches| touches.stores + touches.loads > 0;
            (a.stores > 0 && touched(b)) || (b.stores > 0 && touched(a))
        };
        let mut shared: Vec<_> = self.lines.values().filter(is_shared).collect();
        shared.sort_by_key(|[a, b]| std::cmp::Reverse(a.stores + b.stores));
        shared
    }
}

impl Touches {
    fn stores(&self) -> f64 {
        self.stores as f64 / f64::from(OPERATIONS)
    }

    fn loads(&self) -> f64 {
        self.loads as f64 / f64::from(OPERATIONS)
    }
}
