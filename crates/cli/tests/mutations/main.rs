//! Mutated disks through every verb of the command and through mounts for reading and for writing.
//!
//! Each case takes a disk with files of all kinds and, where it can be written, a dirty journal, changes bytes or fields of up to six
//! metadata blocks, most with their checksums set right, or writes a log of such blocks; one in [`WHOLE`] stays as it is. Whatever the
//! commands say, none may end by a signal or a panic, take longer than [`TIME_MAX`], or ask for more than [`MEMORY_MAX`]; those that
//! read write nothing, no copy leaves its directory, and when a mount is gone so is its server. A disk that is clean for `e2fsck` and
//! `check` is clean for `e2fsck` after the verbs that write, and after a mount.
//!
//! `EXTANT_MUTATIONS=N` tries so many, `EXTANT_MUTATIONS_FROM=N` begins with another, and a failing case prints both.

#[path = "../../../extant/tests/check/damage.rs"]
mod damage;
#[path = "../../../extant/tests/check/disk.rs"]
mod disk;
#[path = "../../../extant/tests/check/e2fsck.rs"]
mod e2fsck;
#[path = "../../../extant/tests/check/fields.rs"]
mod fields;
#[path = "../../../extant/tests/check/layouts.rs"]
mod layouts;
mod mounted;
#[path = "../../../extant/tests/check/tools.rs"]
mod tools;
mod verbs;

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extant::Mount;
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::FsBlock;
use extant_rt::Arc;
use extant_testing::{has_e2fsprogs, scratch};

use damage::{Random, choose, damage_block};
use disk::{Disk, Kind};
use e2fsck::{e2fsck, replay};
use fields::{change_field, journal_blocks, write_log};
use layouts::LAYOUTS;
use tools::make_disk;

/// For each command, and for all that is done with a mount.
const TIME_MAX: Duration = Duration::from_secs(20);
/// The limit of a process's writable memory, which the host enforces.
const MEMORY_MAX: u64 = 512 << 20;
const CASES: u64 = 60;
const THREADS: usize = 2;

/// One in so many cases is an unchanged disk.
const WHOLE: u64 = 16;

/// A disk, as a crash left it where it can be written, and where its metadata lies.
struct Base {
    bytes: Vec<u8>,
    blocks: Vec<(FsBlock, Kind)>,
    journal: Vec<FsBlock>,
}

impl Base {
    fn new(dir: &Path, layout: &[&str]) -> Option<Self> {
        let mut bytes = fs::read(make_disk(dir, layout, 8 << 10)?).expect("a disk's bytes");
        let disk = Disk::new(bytes.clone());
        let (blocks, journal) = (disk.metadata(), journal_blocks(&disk));
        let device = Arc::new(MemoryDevice::new(bytes.len() as u64));
        device.write_at(0, &bytes).expect("a copy");
        if let Ok(fs) = Mount::new().background(false).open_device(device.clone()) {
            fs.write("/late", vec![7; 30_000]).and_then(|()| fs.remove_file("/short")).expect("changes");
            fs.sync().expect("a commit");
            device.snapshot().read_at(0, &mut bytes).expect("the image of a crash");
        }
        Some(Self { bytes, blocks, journal })
    }

    fn mutated(&self, random: &mut Random) -> (Vec<u8>, String) {
        let mut disk = Disk::new(self.bytes.clone());
        // While places on the disk are as they were.
        let log = (random.below(4) == 0).then(|| write_log(&mut disk, &self.journal, &self.blocks, random));
        let mut chosen: Vec<_> = (0..=random.below(6)).map(|_| choose(&self.blocks, random)).collect();
        // Checksums of the others are set with what these say.
        chosen.sort_by_key(|(_, kind)| matches!(kind, Kind::Descriptors | Kind::Superblock));
        let mut done: Vec<_> = chosen
            .into_iter()
            .map(|(block, kind)| match random.below(2) {
                0 => damage_block(&mut disk, block, kind, random),
                _ => change_field(&mut disk, &self.blocks, (block, kind), random),
            })
            .collect();
        done.extend(log);
        let done = done.join("; ");
        (disk.bytes, done)
    }
}

/// `extant` with no more memory than [`MEMORY_MAX`], its words in a file.
pub fn extant(arguments: &[&str], words: &Path) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={MEMORY_MAX}")).arg(env!("CARGO_BIN_EXE_extant")).args(arguments);
    let words = fs::File::create(words).expect("a file");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words);
    command
}

/// Checks that a process was not killed, and none of its threads panicked.
pub fn judge(status: ExitStatus, words: &Path) -> Result<(), String> {
    let said = fs::read_to_string(words).unwrap_or_default();
    if status.signal().is_some() || status.code() == Some(101) || said.contains("panicked") {
        return Err(format!("{status}: {said}"));
    }
    Ok(())
}

/// Runs `extant` to its end; its exit status.
pub fn run(arguments: &[&str], words: &Path) -> Result<i32, String> {
    let mut child = extant(arguments, words).spawn().expect("prlimit");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if start.elapsed() > TIME_MAX {
            child.kill().expect("kill");
            child.wait().expect("its end");
            return Err(format!("{arguments:?} hangs"));
        }
        thread::sleep(Duration::from_millis(1));
    };
    judge(status, words).map_err(|why| format!("{arguments:?}: {why}"))?;
    Ok(status.code().unwrap_or(-1))
}

/// Where one case lies.
pub struct CaseDir {
    /// All of it.
    pub path: PathBuf,
    /// The disk that is only read.
    pub image: PathBuf,
    /// The one that is written.
    pub copy: PathBuf,
    /// The file that is copied into it.
    pub file: PathBuf,
    /// The archive that the disk was packed into.
    pub tar: PathBuf,
    /// Where the disk is copied to.
    pub out: PathBuf,
    /// The output of the last command.
    pub words: PathBuf,
}

impl CaseDir {
    fn new(path: PathBuf) -> Self {
        let [image, copy, file, tar, out, words] =
            ["image", "copy", "file", "tar", "out", "words"].map(|name| path.join(name));
        fs::create_dir_all(&out).expect("a directory");
        fs::write(&file, vec![b'x'; 5000]).expect("a file");
        Self { path, image, copy, file, tar, out, words }
    }
}

/// How many cases there were of each kind.
#[derive(Default)]
struct Counts {
    served: AtomicU64,
    judged: AtomicU64,
}

/// One disk through all doors.
fn try_case(dir: &CaseDir, bytes: &[u8], counts: &Counts) -> Result<(), String> {
    fs::write(&dir.image, bytes).expect("an image");
    let copy = || fs::write(&dir.copy, bytes).expect("a copy");
    copy();
    replay(&dir.copy);
    let is_clean = e2fsck(&dir.copy).0 & verbs::read(dir, bytes)?;
    let is_clean_after = |what: &str| {
        // Where writing was refused, the log is as it was, and e2fsck -n does not look past it.
        if !is_clean || verbs::has_not_written(&dir.copy, bytes).is_ok() {
            return Ok(());
        }
        match e2fsck(&dir.copy) {
            (true, _) => Ok(()),
            (false, said) => Err(format!("clean before, and not after {what}: {said}")),
        }
    };
    mounted::pass(&dir.image, "ro", dir)?;
    verbs::has_not_written(&dir.image, bytes)?;
    copy();
    verbs::write(dir)?;
    is_clean_after("the verbs that write")?;
    copy();
    let is_served = mounted::pass(&dir.copy, "rw", dir)?;
    is_clean_after("a mount")?;
    counts.served.fetch_add(u64::from(is_served), Ordering::Relaxed);
    counts.judged.fetch_add(u64::from(is_clean), Ordering::Relaxed);
    Ok(())
}

fn number_of(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn mutated_disks_end_no_door_by_a_signal_a_hang_or_much_memory() {
    if !has_e2fsprogs() || Command::new("prlimit").arg("-V").output().is_err() {
        println!("skipped: no e2fsprogs or no prlimit");
        return;
    }
    let dir = scratch();
    let bases: Vec<Base> = LAYOUTS.iter().filter_map(|layout| Base::new(dir.path(), layout)).collect();
    let from = number_of("EXTANT_MUTATIONS_FROM").unwrap_or(0);
    let count = number_of("EXTANT_MUTATIONS").unwrap_or(CASES);
    let (next, counts, bad) = (AtomicU64::new(from), Counts::default(), Mutex::new(Vec::new()));
    let work = |dir: CaseDir| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= from + count || bad.lock().expect("cases").len() >= 10 {
                return;
            }
            let base = &bases[number as usize % bases.len()];
            let (bytes, done) = match number.is_multiple_of(WHOLE) {
                true => (base.bytes.clone(), "a whole disk".to_owned()),
                false => base.mutated(&mut Random::new(number)),
            };
            if let Err(why) = try_case(&dir, &bytes, &counts) {
                let case = format!("EXTANT_MUTATIONS_FROM={number} EXTANT_MUTATIONS=1: {done}\n{why}");
                bad.lock().expect("cases").push(case);
            }
        }
    };
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let dir = CaseDir::new(dir.path().join(worker.to_string()));
            scope.spawn(|| work(dir));
        }
    });
    let (served, judged) = (counts.served.into_inner(), counts.judged.into_inner());
    let bad = bad.into_inner().expect("cases");
    println!(
        "mutations: {count} disks of {} layouts, {served} served by a mount for writing, {judged} clean before and after; {} bad",
        bases.len(),
        bad.len()
    );
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    // One case that is tried again may be refused.
    assert!(count < CASES || served * 10 > count || !mounted::can_mount(), "only {served} were served");
    assert!(count < CASES || judged > 0, "none was clean");
}
