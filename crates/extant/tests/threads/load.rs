//! Sixteen threads create, write, allocate, punch, cut, rename and remove files until the disk is full, and on. Each knows
//! what its files hold.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extant::mkfs::Mkfs;
use extant::{Error, Fallocate, File, Filesystem, Mount, Result};
use extant_testing::Random;

use crate::tools::{Image, assert_clean, has};
use crate::usage::Usage;
use crate::{alone, number};

const THREADS: u64 = 16;
/// A round ends with a check of the disk; at most so long, and at least two of them.
const ROUND_SECONDS_MAX: u64 = 60;
const FILES_MAX: usize = 60;
const BYTES_MAX: u64 = 600_000;

/// Counts of events, so that a load that meets no limit is noticed.
#[derive(Default)]
struct Counts {
    steps: AtomicU64,
    no_space: AtomicU64,
    no_inodes: AtomicU64,
}

struct Worker<'a> {
    fs: &'a Filesystem,
    counts: &'a Counts,
    number: u64,
    random: Random,
    /// By path.
    files: BTreeMap<String, Vec<u8>>,
    made: u64,
}

impl Worker<'_> {
    fn run(mut self, until: Instant) -> BTreeMap<String, Vec<u8>> {
        self.fs.create_dir(format!("/{}", self.number)).expect("a directory");
        while Instant::now() < until {
            self.counts.steps.fetch_add(1, Ordering::Relaxed);
            match self.step().map_err(Error::into_cause) {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    self.counts.no_space.fetch_add(1, Ordering::Relaxed);
                    self.make_room();
                }
                Err(Error::NoInodes) => {
                    self.counts.no_inodes.fetch_add(1, Ordering::Relaxed);
                    self.make_room();
                }
                Err(error) => panic!("thread {}: {error}", self.number),
            }
        }
        for (path, content) in &self.files {
            assert!(self.fs.read(path).expect("a file") == *content, "{path} holds something else");
        }
        self.files
    }

    /// A path of its own: in its directory or in the one that all share.
    fn new_path(&mut self) -> String {
        self.made += 1;
        let directory = if self.random.below(3) == 0 { "shared".into() } else { self.number.to_string() };
        format!("/{directory}/{}.{}", self.number, self.made)
    }

    fn some_path(&mut self) -> Option<String> {
        let at = self.random.below(self.files.len() as u64) as usize;
        self.files.keys().nth(at).cloned()
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        self.fs.remove_file(path)?;
        self.files.remove(path);
        Ok(())
    }

    fn make_room(&mut self) {
        for _ in 0..1 + self.random.below(self.files.len() as u64 / 2 + 1) {
            let Some(path) = self.some_path() else { return };
            self.remove(&path).expect("removing needs no space");
        }
    }

    fn step(&mut self) -> Result<()> {
        let choice = self.random.below(100);
        if choice < 20 && self.files.len() < FILES_MAX {
            return self.create();
        }
        let Some(path) = self.some_path() else { return Ok(()) };
        match choice {
            20..28 => self.remove(&path),
            28..36 => self.rename(&path),
            36..40 => self.remove_in_use(&path),
            40..48 => {
                assert!(self.fs.read(&path)? == self.files[&path], "{path} holds something else");
                Ok(())
            }
            48..50 => self.fs.open(&path)?.sync_all(),
            50 if self.random.below(20) == 0 => self.fs.sync(),
            _ => self.change(&path, choice),
        }
    }

    fn open(&self, path: &str) -> Result<File> {
        self.fs.options().read(true).write(true).open(path)
    }

    fn create(&mut self) -> Result<()> {
        let path = self.new_path();
        let file = self.fs.options().read(true).write(true).create_new(true).open(&path)?;
        self.files.insert(path.clone(), Vec::new());
        if self.random.below(3) > 0 { self.write(&file, &path) } else { Ok(()) }
    }

    fn rename(&mut self, path: &str) -> Result<()> {
        let to = match self.some_path() {
            Some(over) if self.random.below(3) == 0 && over != path => over,
            _ => self.new_path(),
        };
        self.fs.rename(path, &to)?;
        let content = self.files.remove(path).expect("a file");
        self.files.insert(to, content);
        Ok(())
    }

    /// A file without a name lives until its last use.
    fn remove_in_use(&mut self, path: &str) -> Result<()> {
        let file = self.open(path)?;
        let content = self.files[path].clone();
        self.remove(path)?;
        assert!(file.read_to_end_at(0)? == content, "{path}, removed, holds something else");
        Ok(())
    }

    fn change(&mut self, path: &str, choice: u64) -> Result<()> {
        let file = self.open(path)?;
        match choice {
            50..75 => self.write(&file, path),
            75..84 => self.set_len(&file, path),
            84..92 => self.allocate(&file, path),
            _ => self.punch(&file, path),
        }
    }

    fn write(&mut self, file: &File, path: &str) -> Result<()> {
        let len = self.files[path].len() as u64;
        let offset = if self.random.below(2) == 0 { len } else { self.random.below(len + 20_000) };
        let most = if self.random.below(8) == 0 { 200_000 } else { 12_000 };
        let count = (1 + self.random.below(most)).min(BYTES_MAX.saturating_sub(offset)) as usize;
        let bytes = self.random.bytes(count);
        let mut done = 0;
        while done < bytes.len() {
            let written = file.write_at(&bytes[done..], offset + done as u64)?;
            let (start, end) = (offset as usize + done, offset as usize + done + written);
            let content = self.files.get_mut(path).expect("a file");
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(&bytes[done..done + written]);
            done += written;
        }
        Ok(())
    }

    fn set_len(&mut self, file: &File, path: &str) -> Result<()> {
        let bytes = self.random.below(self.files[path].len() as u64 + 5000).min(BYTES_MAX);
        file.set_len(bytes)?;
        self.files.get_mut(path).expect("a file").resize(bytes as usize, 0);
        Ok(())
    }

    /// Allocates blocks; a part may be allocated, and the file longer, if there are too few.
    fn allocate(&mut self, file: &File, path: &str) -> Result<()> {
        let content = self.files.get_mut(path).expect("a file");
        let keep_size = self.random.below(2) == 0;
        let offset = self.random.below(content.len() as u64 + 10_000);
        let bytes = 1 + self.random.below(60_000);
        let done = file.allocate(Fallocate::Allocate { keep_size }, offset, bytes);
        let (before, now) = (content.len() as u64, file.metadata().size);
        let end = if keep_size { before } else { before.max(offset + bytes) };
        assert!(
            (before..=end).contains(&now) && (done.is_err() || now == end),
            "{path}: {before} to {now}, not {end}"
        );
        content.resize(now as usize, 0);
        done
    }

    fn punch(&mut self, file: &File, path: &str) -> Result<()> {
        let content = self.files.get_mut(path).expect("a file");
        let offset = self.random.below(content.len() as u64 + 1);
        let bytes = 1 + self.random.below(60_000);
        file.allocate(Fallocate::PunchHole, offset, bytes)?;
        let end = content.len().min((offset + bytes) as usize);
        content[offset as usize..end].fill(0);
        Ok(())
    }
}

/// One disk under load. Gives what happened.
fn round(seed: u64, time: Duration) -> Counts {
    let mut random = Random::new(seed);
    let image = Image::new((16 + random.below(16)) << 20);
    let block_size = [1024, 4096][random.below(2) as usize];
    // Blocks run out in one round, inodes in the next.
    let inodes = if seed.is_multiple_of(2) { 400 } else { 4000 };
    Mkfs::new().block_size(block_size).inodes(inodes).format(&image.device()).expect("an empty disk");
    let fresh = Usage::of(&image.path);
    println!("seed {seed}: {} blocks of {block_size}, {} inodes free", fresh.free_blocks, fresh.free_inodes);
    // In every other pair of rounds, and the first, nothing stays in memory that can be read again; in every other four blocks are
    // delayed.
    let cache_bytes = if matches!(seed % 4, 1 | 2) { 0 } else { 1 << 26 };
    let page_cache_bytes = if matches!(seed % 8, 1..=4) { 0 } else { 1 << 23 };
    println!("{cache_bytes} bytes of caches, {page_cache_bytes} of pages");
    let mount = Mount::new().cache_bytes(cache_bytes).page_cache_bytes(page_cache_bytes);
    let fs = mount.open(&image.path).expect("a mount");
    fs.create_dir("/shared").expect("a directory");
    let counts = Counts::default();
    let until = Instant::now() + time;
    let contents: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let random = Random::new(random.next());
                let worker =
                    Worker { fs: &fs, counts: &counts, number, random, files: BTreeMap::new(), made: 0 };
                scope.spawn(move || worker.run(until))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a thread")).collect()
    });
    fs.sync().expect("a sync");
    let told = fs.statistics();
    fs.unmount().expect("an unmount");
    assert_clean(&image.path, &format!("seed {seed}"));
    let found = Usage::of(&image.path);
    assert_eq!((told.free_blocks, u64::from(told.free_inodes)), (found.free_blocks, found.free_inodes));

    let fs = Mount::new().open(&image.path).expect("a mount");
    for (path, content) in contents.iter().flatten() {
        assert!(fs.read(path).expect("a file") == *content, "seed {seed}: {path} holds something else");
    }
    for directory in fs.dir("/").and_then(|dir| dir.entries()).expect("the root") {
        if directory.name != b"lost+found" {
            fs.remove_dir_all(format!("/{}", String::from_utf8_lossy(&directory.name))).expect("room");
        }
    }
    fs.unmount().expect("an unmount");
    assert_clean(&image.path, &format!("seed {seed}, emptied"));
    assert_eq!(Usage::of(&image.path), fresh, "seed {seed}: something is lost");
    counts
}

#[test]
fn sixteen_threads_on_a_disk_that_fills_lose_and_share_nothing() {
    if !has("e2fsck") || !has("dumpe2fs") {
        return;
    }
    let _alone = alone();
    let mut seconds = number("EXTANT_THREADS_SECONDS", 6).max(2);
    let most = (seconds / 2).min(ROUND_SECONDS_MAX);
    let mut seed = number("EXTANT_SEED", 1);
    let (mut no_space, mut no_inodes) = (0, 0);
    while seconds > 0 {
        let time = seconds.min(most);
        let counts = round(seed, Duration::from_secs(time));
        let [steps, space, inodes] =
            [&counts.steps, &counts.no_space, &counts.no_inodes].map(|count| count.load(Ordering::Relaxed));
        println!("seed {seed}: {time} s, {steps} steps, refused {space} blocks, {inodes} inodes");
        (no_space, no_inodes) = (no_space + space, no_inodes + inodes);
        seconds -= time;
        seed += 1;
    }
    assert!(no_space > 0 && no_inodes > 0, "no disk was full");
}
