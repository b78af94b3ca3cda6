//! Disks with damage of all kinds at once: whatever is on them, the check, the library and what it writes answer within bounds.
//!
//! Each case takes a disk, changes bytes or whole fields of up to six metadata blocks or of the journal, most with their checksums set
//! right, or writes a log of such blocks, and then mounts it for reading, checks it, walks all of it, mounts it for writing, works on what
//! was found and on new files, and checks what that left. Nothing may panic, take longer than [`LOOKS_MAX`], or need more than
//! [`MEMORY_MAX`], and a mount for reading writes nothing. One case in [`JUDGED`] is judged by e2fsck: if the disk is clean to it, so it is
//! after the work.
//!
//! `EXTANT_FUZZ_SECONDS=3600` goes on for longer, `EXTANT_FUZZ_FROM=N` begins with another case, and `EXTANT_FUZZ_CASE=N` runs one.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extant::{Dir, Fallocate, File, Filesystem, Mount, XattrMode};
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{FileType, FsBlock};
use extant_rt::{Arc, HAS_THREADS, WallClock};
use extant_testing::{has_e2fsprogs, scratch};

use crate::damage::{Random, choose, damage_block};
use crate::disk::{Disk, Kind};
use crate::e2fsck::{e2fsck, replay};
use crate::extant;
use crate::fields::{change_field, journal_blocks, write_log};
use crate::layouts::LAYOUTS;
use crate::tools::make_disk;

/// How often it is looked whether a case hangs, and how many such looks one may last: 20 s. Looks are counted instead of time, which
/// passes for a process that is stopped too.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_MAX: u64 = 200;
/// For the whole process: the disks, and what works on them.
const MEMORY_MAX: u64 = 512 << 20;
const SECONDS: u64 = 20;
/// One in so many cases is checked by e2fsck.
const JUDGED: u64 = 16;
const THREADS: usize = 2;
/// Files and directories that a walk visits; on a disk with cycles it would go on.
const VISITED_MAX: usize = 1000;

/// A disk whose journal is dirty, and where its metadata lies.
struct Base {
    bytes: Vec<u8>,
    blocks: Vec<(FsBlock, Kind)>,
    journal: Vec<FsBlock>,
}

fn options(pages: u64) -> Mount {
    Mount::new().background(false).page_cache_bytes(pages).clock(WallClock::Fixed(1_700_000_000, 0))
}

impl Base {
    fn new(dir: &Path, layout: &[&str]) -> Option<Self> {
        let bytes = fs::read(make_disk(dir, layout, 8 << 10)?).expect("a disk's bytes");
        let disk = Disk::new(bytes.clone());
        let (blocks, journal) = (disk.metadata(), journal_blocks(&disk));
        let device = Arc::new(MemoryDevice::new(bytes.len() as u64));
        device.write_at(0, &bytes).expect("a copy");
        let mut crashed = None;
        // Read-only layouts stay as they are.
        if let Ok(fs) = options(0).open_device(device.clone()) {
            work(&fs, &mut Random::new(0), &walk(&fs));
            fs.sync().expect("a commit");
            crashed = Some(device.snapshot());
        }
        let mut bytes = bytes;
        if let Some(image) = crashed {
            image.read_at(0, &mut bytes).expect("the image of a crash");
        }
        Some(Self { bytes, blocks, journal })
    }

    fn damaged(&self, random: &mut Random) -> (Vec<u8>, usize) {
        let mut disk = Disk::new(self.bytes.clone());
        // While places on the disk are as they were.
        if random.below(4) == 0 {
            write_log(&mut disk, &self.journal, &self.blocks, random);
        }
        let count = 1 + random.below(6);
        let mut chosen: Vec<_> = (0..count).map(|_| choose(&self.blocks, random)).collect();
        // Checksums of the others are set with what these say.
        chosen.sort_by_key(|(_, kind)| matches!(kind, Kind::Descriptors | Kind::Superblock));
        for (block, kind) in chosen {
            if random.below(2) == 0 {
                change_field(&mut disk, &self.blocks, (block, kind), random);
            } else if !self.journal.is_empty() && random.below(8) == 0 {
                let range = disk.range(self.journal[random.below(self.journal.len().min(64))]);
                let reach = [16, 64, range.len()][random.below(3)];
                let at = range.start + random.below(reach);
                disk.bytes[at] = random.below(256) as u8;
            } else {
                damage_block(&mut disk, block, kind, random);
            }
        }
        (disk.bytes, count)
    }
}

/// Looks at everything that can be reached, and gives the paths.
fn walk(fs: &Filesystem) -> Vec<String> {
    let mut paths = Vec::new();
    let mut directories: VecDeque<(String, Dir)> =
        fs.root().ok().map(|root| (String::new(), root)).into_iter().collect();
    while let Some((path, dir)) = directories.pop_front() {
        let Ok(entries) = dir.entries_from(0, VISITED_MAX) else { continue };
        for (entry, _) in entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            if paths.len() >= VISITED_MAX {
                return paths;
            }
            let Ok(file) = dir.lookup(&entry.name) else { continue };
            look_at(&file);
            if file.metadata().file_type == FileType::Directory
                && let Ok(dir) = dir.dir(&entry.name)
            {
                directories.push_back((path.clone(), dir));
            }
            paths.push(path);
        }
    }
    paths
}

fn look_at(file: &File) {
    let metadata = file.metadata();
    let mut bytes = vec![0; 16 << 10];
    for offset in [0, 70_000, metadata.size.saturating_sub(5000), metadata.size / 2] {
        let _ = file.read_at(&mut bytes, offset);
    }
    let _ = file.extents(0, metadata.size.min(1 << 30));
    let _ = file.read_link();
    for name in file.list_xattrs().unwrap_or_default() {
        let _ = file.xattr(&name);
    }
}

/// Random operations on what there is and on new names. Any may be refused.
fn work(fs: &Filesystem, random: &mut Random, paths: &[String]) {
    let bytes = vec![0x5A; 20_000];
    for serial in 0..40 {
        let path = match random.below(3) {
            0 => format!("/new{}", random.below(12)),
            _ => paths.get(random.below(paths.len())).cloned().unwrap_or_default(),
        };
        let new = format!("{}{serial}", paths.get(random.below(paths.len())).map_or("/n", String::as_str));
        let (at, len) = (random.below(200_000) as u64, 1 + random.below(bytes.len() - 1));
        let file = || fs.options().read(true).write(true).open(&path);
        let allocate =
            |what| file().and_then(|file| file.allocate(what, at / 4096 * 4096, len as u64 / 4096 * 4096));
        // Whether it succeeds is the disk's affair.
        let _ = match random.below(18) {
            0 => fs.write(&path, &bytes[..len]),
            1 | 2 => file().and_then(|file| file.write_all_at(&bytes[..len], at)),
            3 => file().and_then(|file| file.set_len(at)),
            4 => fs.remove_file(&path),
            5 => fs.rename(&path, &new),
            6 => fs.create_dir(&new),
            7 => fs.remove_dir(&path),
            8 => fs.hard_link(&path, &new),
            9 => fs.symlink("target/".repeat(1 + len % 30), &new),
            10 => fs
                .lookup(&path)
                .and_then(|file| file.set_xattr(b"user.new", &bytes[..len % 700], XattrMode::default())),
            11 => fs.lookup(&path).and_then(|file| file.remove_xattr(b"user.long")),
            12 => allocate(Fallocate::Allocate { keep_size: len.is_multiple_of(2) }),
            13 => allocate(Fallocate::PunchHole),
            14 => allocate(Fallocate::CollapseRange),
            15 => allocate(Fallocate::InsertRange),
            16 => fs.sync(),
            _ => fs.set_mode(&path, 0o700),
        };
    }
}

fn content(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).expect("its bytes");
    bytes
}

/// Whether e2fsck finds a disk clean; with its journal replayed, if requested.
fn is_clean(bytes: &[u8], is_replayed: bool) -> bool {
    let dir = scratch();
    let image = dir.path().join("image");
    fs::write(&image, bytes).expect("an image");
    if is_replayed {
        replay(&image);
    }
    let (is_clean, said) = e2fsck(&image);
    if !is_clean && !is_replayed {
        eprintln!("{said}");
    }
    if is_clean && is_replayed {
        // The two may replay less or more of a damaged log, and `e2fsck -n` ignores the list of orphans.
        fs::write(&image, bytes).expect("an image");
        return extant(&image).0;
    }
    is_clean
}

/// One case: how many blocks were changed, and whether the disk was served for writing.
fn try_case(bases: &[Base], number: u64) -> (usize, bool) {
    let mut random = Random::new(number);
    let base = &bases[number as usize % bases.len()];
    // Every other one of the cases that are checked is undamaged, as a crash left it.
    let (bytes, count) = match number.is_multiple_of(2 * JUDGED) {
        true => (base.bytes.clone(), 0),
        false => base.damaged(&mut random),
    };
    let device = Arc::new(MemoryDevice::new(bytes.len() as u64));
    device.write_at(0, &bytes).expect("a copy");
    let is_judged = number.is_multiple_of(JUDGED) && is_clean(&bytes, true);
    let look = || {
        let looked_at = Arc::new(device.snapshot());
        let paths = match options(0).read_only(true).open_device(looked_at.clone()) {
            Ok(fs) => {
                // A disk that cannot be checked says so.
                let _ = fs.check(&mut |_| {});
                walk(&fs)
            }
            Err(_) => Vec::new(),
        };
        assert!(content(&looked_at) == content(&device), "reading has written");
        paths
    };
    let paths = look();
    let pages = [0, 4 << 20, 64 << 10][random.below(3)];
    let mounted = options(pages).open_device(device.clone());
    let is_served = mounted.is_ok();
    if let Ok(fs) = mounted {
        work(&fs, &mut random, &paths);
        // It may have stopped writing.
        let unmounted = fs.unmount();
        look();
        if is_judged && unmounted.is_ok() {
            assert!(is_clean(&content(&device), false), "clean before the work, and not after it");
        }
    }
    (count, is_served)
}

fn number_of(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// The most memory that this process ever had.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// A case that is running: its number, and how often it was seen.
type Watch = Mutex<Option<(u64, u64)>>;

fn look_for_hangs(watches: &[Watch]) {
    for watch in watches {
        if let Some((number, looks)) = &mut *watch.lock().expect("a watch") {
            *looks += 1;
            if *looks > LOOKS_MAX {
                eprintln!("EXTANT_FUZZ_CASE={number} hangs");
                std::process::exit(1);
            }
        }
    }
}

#[test]
fn damaged_disks_never_panic_hang_or_take_much_memory() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let bases: Vec<Base> = LAYOUTS.iter().filter_map(|layout| Base::new(dir.path(), layout)).collect();
    if let Some(number) = number_of("EXTANT_FUZZ_CASE") {
        try_case(&bases, number);
        return;
    }
    let seconds = number_of("EXTANT_FUZZ_SECONDS").unwrap_or(SECONDS);
    let from = number_of("EXTANT_FUZZ_FROM").unwrap_or(0);
    let (next, changes, served) = (AtomicU64::new(from), AtomicUsize::new(0), AtomicUsize::new(0));
    let end = Instant::now() + Duration::from_secs(seconds);
    let bad = Mutex::new(Vec::new());
    let watches: [Watch; THREADS] = Default::default();
    let work = |watch: &Watch| {
        while Instant::now() < end && bad.lock().expect("cases").len() < 10 {
            let number = next.fetch_add(1, Ordering::Relaxed);
            *watch.lock().expect("a watch") = Some((number, 0));
            match catch_unwind(AssertUnwindSafe(|| try_case(&bases, number))) {
                Ok((count, is_served)) => {
                    changes.fetch_add(count, Ordering::Relaxed);
                    served.fetch_add(usize::from(is_served), Ordering::Relaxed);
                }
                Err(_) => bad.lock().expect("cases").push(number),
            }
            *watch.lock().expect("a watch") = None;
        }
    };
    if HAS_THREADS {
        thread::scope(|scope| {
            let workers: Vec<_> = watches.iter().map(|watch| scope.spawn(|| work(watch))).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                thread::sleep(LOOK);
                look_for_hangs(&watches);
            }
        });
    } else {
        work(&watches[0]);
    }
    let (cases, peak) = (next.into_inner() - from, peak_bytes());
    let (changes, served) = (changes.into_inner(), served.into_inner());
    let bad = bad.into_inner().expect("cases");
    println!(
        "fuzz: {cases} damaged disks with {changes} changed blocks in {seconds} s, {served} of them served for writing, {} panics, at most {} MiB",
        bad.len(),
        peak >> 20
    );
    assert!(bad.is_empty(), "EXTANT_FUZZ_CASE={bad:?}");
    assert!(peak < MEMORY_MAX, "{peak} bytes of memory");
    assert!(cases > 5 * seconds && served > 0, "only {cases} cases");
}
