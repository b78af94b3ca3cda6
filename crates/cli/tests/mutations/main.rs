//! Mutated disks through every door: `check`, reading and writing by commands, and a mount that is walked, read and written.
//!
//! Each case takes a disk with files of all kinds and a dirty journal, changes bytes or fields of up to six metadata blocks, most with
//! their checksums set right, or writes a log of such blocks, and goes through the doors. Whatever the commands say, none may end by a signal or a panic, take longer than
//! [`TIME_MAX`], or ask for more than [`MEMORY_MAX`]; and when the mount is gone so is its server.
//!
//! `EXTANT_MUTATIONS=N` tries so many, `EXTANT_MUTATIONS_FROM=N` begins with another, and who fails prints both for itself.

#[path = "../../../extant/tests/check/damage.rs"]
mod damage;
#[path = "../../../extant/tests/check/disk.rs"]
mod disk;
#[path = "../../../extant/tests/check/fields.rs"]
mod fields;
mod mounted;
#[path = "../../../extant/tests/check/tools.rs"]
mod tools;

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use extant::Mount;
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::FsBlock;
use extant_rt::Arc;

use damage::{Random, choose, damage_block};
use disk::{Disk, Kind};
use fields::{change_field, journal_blocks, write_log};
use tools::{has_tools, make_disk, scratch};

/// For each command, and for all that is done with a mount.
const TIME_MAX: Duration = Duration::from_secs(20);
/// What a process may have of memory that it can write to: the host gives no more.
const MEMORY_MAX: u64 = 512 << 20;
const CASES: u64 = 40;

const LAYOUTS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "4096", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"],
    &["-b", "4096", "-O", "orphan_file,metadata_csum_seed", "-I", "512"],
    &["-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg", "-g", "2048"],
    &["-b", "4096", "-O", "^has_journal"],
    &["-b", "1024", "-O", "bigalloc"],
    &["-b", "1024", "-O", "inline_data"],
    &["-b", "4096", "-O", "ea_inode"],
];

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

/// That a process ended by itself, and none of its threads panicked.
pub fn judge(status: ExitStatus, words: &Path) -> Result<(), String> {
    let said = fs::read_to_string(words).unwrap_or_default();
    if status.signal().is_some() || status.code() == Some(101) || said.contains("panicked") {
        return Err(format!("{status}: {said}"));
    }
    Ok(())
}

/// Runs `extant` to its end.
pub fn run(arguments: &[&str], words: &Path) -> Result<(), String> {
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
        std::thread::sleep(Duration::from_millis(2));
    };
    judge(status, words).map_err(|why| format!("{arguments:?}: {why}"))
}

/// One disk through all doors; whether a mount served it.
fn try_case(dir: &Path, bytes: &[u8]) -> Result<bool, String> {
    let [image, copy, words, tar] = ["image", "copy", "words", "tar"].map(|name| dir.join(name));
    fs::write(&image, bytes).expect("an image");
    fs::write(dir.join("file"), vec![b'x'; 5000]).expect("a file");
    let name = |path: &Path| path.to_str().expect("a path").to_owned();
    let (image, place) = (name(&image), format!("{}:/", name(&image)));
    run(&["check", &image], &words)?;
    run(&["ls", "-lR", &place], &words)?;
    run(&["export", &image, "-o", &name(&tar)], &words)?;
    run(&["frag", &image], &words)?;
    assert!(fs::read(&image).expect("an image") == bytes, "reading has written");
    fs::write(&copy, bytes).expect("a copy");
    let on = |path: &str| format!("{}:{path}", name(&copy));
    run(&["mkdir", "-p", &on("/sub/new")], &words)?;
    run(&["cp", &name(&dir.join("file")), &on("/sub/new/file")], &words)?;
    run(&["cp", &name(&dir.join("file")), &on("/big")], &words)?;
    run(&["mv", &on("/attributes"), &on("/many/moved")], &words)?;
    run(&["chmod", "-R", "700", &on("/sub")], &words)?;
    run(&["rm", "-rf", &on("/many")], &words)?;
    fs::write(&copy, bytes).expect("a copy");
    mounted::pass(&name(&copy), dir)
}

fn number_of(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn mutated_disks_end_no_door_by_a_signal_a_hang_or_much_memory() {
    if !has_tools() || Command::new("prlimit").arg("-V").output().is_err() {
        println!("skipped: no e2fsprogs or no prlimit");
        return;
    }
    let dir = scratch();
    let bases: Vec<Base> = LAYOUTS.iter().filter_map(|layout| Base::new(dir.path(), layout)).collect();
    let from = number_of("EXTANT_MUTATIONS_FROM").unwrap_or(0);
    let count = number_of("EXTANT_MUTATIONS").unwrap_or(CASES);
    let (mut served, mut bad) = (0, Vec::new());
    for number in from..from + count {
        let mut random = Random::new(number);
        let (bytes, done) = bases[number as usize % bases.len()].mutated(&mut random);
        match try_case(dir.path(), &bytes) {
            Ok(is_served) => served += u64::from(is_served),
            Err(why) => {
                bad.push(format!("EXTANT_MUTATIONS_FROM={number} EXTANT_MUTATIONS=1: {done}\n{why}"));
            }
        }
        if bad.len() >= 10 {
            break;
        }
    }
    println!(
        "mutations: {count} disks of {} layouts, {served} served by a mount for writing, {} signals, panics and hangs",
        bases.len(),
        bad.len()
    );
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(served * 10 > count || !mounted::can_mount(), "only {served} were served");
}
