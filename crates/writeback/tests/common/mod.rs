//! Files of pages in memory and a disk that is another memory, for tests of writeback.

#![allow(dead_code, reason = "each test uses its part")]

use extant_rt::{Arc, AtomicBool, AtomicU64, LockClass, Mutex, OnceLock, Ordering, Weak, yield_now};
use extant_writeback::{
    ContextMap, Inode, InodeWriteback, Progress, Reason, RemainingWork, Store, Tuning, Writeback,
};

pub const PAGE: u64 = 4096;

/// As the engine's lock of a node's pages: outside of writeback's own.
const PAGES: &LockClass = &LockClass { name: "PAGES", rank: 60 };

/// A file whose pages are numbers.
pub struct File {
    number: u64,
    writeback: InodeWriteback,
    pages: Mutex<Pages>,
    is_written: AtomicBool,
    /// Another thread works on it; writing without force finds it busy.
    pub is_busy: AtomicBool,
    /// When the last write of it ended, in the order of all.
    pub writes: AtomicU64,
}

#[derive(Default)]
struct Pages {
    memory: Vec<u64>,
    disk: Vec<u64>,
    is_dirty: Vec<bool>,
    times: bool,
    /// How often pages were dropped: a write in flight then has no effect.
    drops: u64,
}

impl Inode for File {
    fn number(&self) -> u64 {
        self.number
    }

    fn inode_writeback(&self) -> &InodeWriteback {
        &self.writeback
    }
}

/// Inodes by their remainder: as bands that follow one another.
pub struct Bands {
    pub bands: usize,
    pub wanted: usize,
}

impl ContextMap for Bands {
    fn contexts_max(&self) -> usize {
        self.bands
    }

    fn contexts_wanted(&self) -> usize {
        self.wanted
    }

    fn context_of(&self, inode: u64, contexts: usize) -> usize {
        inode as usize % self.bands * contexts / self.bands
    }
}

/// Called with pages that are written to the disk: which file, which page first, and how many.
pub type Device = Box<dyn Fn(&File, usize, usize) -> bool + Send + Sync>;

/// Files and their writeback.
pub struct World {
    pub files: Vec<Arc<File>>,
    writeback: OnceLock<Writeback<File>>,
    device: Device,
}

struct Disk(Weak<World>);

impl Store<File> for Disk {
    fn write(&self, files: &[Arc<File>], bytes: u64, reason: Reason) -> Vec<Progress> {
        let busy = Progress { written: 0, left: RemainingWork::Busy };
        let Some(world) = self.0.upgrade() else { return vec![busy; files.len()] };
        let write = |file: &Arc<File>| {
            if reason != Reason::Sync && file.is_busy.load(Ordering::SeqCst) {
                yield_now();
                return busy;
            }
            world.write(file, bytes)
        };
        files.iter().map(write).collect()
    }

    fn panicked(&self) {}
}

impl World {
    /// `count` clean files. Pages go to the device, which says whether it took them.
    pub fn new(count: u64, bands: Bands, tuning: Tuning, device: Device) -> Arc<Self> {
        let file = |number| File {
            number,
            writeback: InodeWriteback::new(),
            pages: Mutex::with_key(PAGES, number, Pages::default()),
            is_written: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            writes: AtomicU64::new(0),
        };
        let files = (0..count).map(|number| Arc::new(file(number))).collect();
        let world = Arc::new(Self { files, writeback: OnceLock::new(), device });
        let writeback = Writeback::new(Disk(Arc::downgrade(&world)), bands, tuning).expect("threads");
        assert!(world.writeback.set(writeback).is_ok());
        world
    }

    pub fn writeback(&self) -> &Writeback<File> {
        self.writeback.get().expect("made with the world")
    }

    /// Writes numbers into memory.
    pub fn dirty(&self, file: usize, pages: std::ops::Range<usize>, value: u64) {
        let file = &self.files[file];
        let mut held = file.pages.lock();
        let len = held.memory.len().max(pages.end);
        held.memory.resize(len, 0);
        held.disk.resize(len, 0);
        held.is_dirty.resize(len, false);
        held.memory[pages.clone()].fill(value);
        let before = held.is_dirty[pages.clone()].iter().filter(|dirty| **dirty).count();
        let count = pages.len() - before;
        held.is_dirty[pages].fill(true);
        self.writeback().dirtied(file, count as u64 * PAGE);
    }

    pub fn touch(&self, file: usize) {
        let file = &self.files[file];
        let mut held = file.pages.lock();
        held.times = true;
        self.writeback().dirtied_times(file);
    }

    /// Drops the dirty pages of a file: they are on the disk as they are in memory from then on.
    pub fn drop_pages(&self, file: usize) {
        let file = &self.files[file];
        let mut held = file.pages.lock();
        let count = held.is_dirty.iter().filter(|dirty| **dirty).count();
        held.is_dirty.fill(false);
        held.disk = held.memory.clone();
        held.drops += 1;
        self.writeback().cleaned(file, count as u64 * PAGE);
    }

    /// Whether all pages are on the disk as they are in memory, and all times.
    pub fn is_clean(&self, file: usize) -> bool {
        let held = self.files[file].pages.lock();
        held.memory == held.disk && !held.times && !held.is_dirty.contains(&true)
    }

    /// The content of a page on the disk.
    pub fn on_disk(&self, file: usize, page: usize) -> u64 {
        self.files[file].pages.lock().disk.get(page).copied().unwrap_or(0)
    }

    /// Writes what is dirty of a file now, run by run in ascending order, and no more than asked for.
    fn write(&self, file: &Arc<File>, bytes: u64) -> Progress {
        assert!(!file.is_written.swap(true, Ordering::SeqCst), "two write one inode at once");
        let (mut written, mut at, mut left) = (0, 0, RemainingWork::Clean);
        let end = {
            let mut held = file.pages.lock();
            if std::mem::take(&mut held.times) {
                self.writeback().cleaned_times(file);
            }
            held.memory.len()
        };
        while let Some((page, values, drops)) = file.next_run(at, end) {
            if written >= bytes {
                left = RemainingWork::More;
                break;
            }
            yield_now();
            let is_taken = (self.device)(file, page, values.len());
            let mut held = file.pages.lock();
            if !is_taken {
                left = RemainingWork::Failed;
            }
            let mut cleaned = 0;
            let is_dropped = held.drops != drops;
            for (page, value) in (page..).zip(&values).filter(|_| !is_dropped) {
                held.disk[page] = *value;
                // Written again meanwhile, or dropped.
                if held.memory[page] == *value && std::mem::take(&mut held.is_dirty[page]) {
                    cleaned += PAGE;
                }
            }
            self.writeback().cleaned(file, cleaned);
            written += values.len() as u64 * PAGE;
            at = page + values.len();
        }
        file.writes.fetch_add(1, Ordering::SeqCst);
        file.is_written.store(false, Ordering::SeqCst);
        Progress { written, left }
    }
}

/// Pages that go to the device at once: 8 MiB.
const RUN_PAGES: usize = 2048;

impl File {
    fn next_run(&self, at: usize, end: usize) -> Option<(usize, Vec<u64>, u64)> {
        let held = self.pages.lock();
        let first = (at..end).find(|page| held.is_dirty[*page])?;
        let last = (first..end.min(first + RUN_PAGES)).find(|page| !held.is_dirty[*page]);
        Some((first, held.memory[first..last.unwrap_or(end.min(first + RUN_PAGES))].to_vec(), held.drops))
    }
}
