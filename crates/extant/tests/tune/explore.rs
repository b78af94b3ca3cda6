//! Crash images of a recorded change, judged by threads beside each other, if the host has threads. An image that was judged already is not judged again.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{available_parallelism, scope};

use extant::Tune;
use extant_block::{BlockDevice, Log, MemoryDevice, Recorder, Tearing, Unflushed};
use extant_ondisk::{SUPERBLOCK_OFFSET, Superblock};
use extant_rt::HAS_THREADS;
use extant_testing::is_zero;

use super::disk::{Tree, assert_whole};

/// How many choices of what survives are tried at each place where crashes after every event are explored; else the first four.
const CHOICES: usize = 80;
/// The choices by whole requests. The others are by sectors.
const BY_REQUESTS: usize = 4;
/// Threads for changes at which programs sleep: `e2fsck` does so for 11 s before it replays the log of a disk with `mmp`.
const SLEEPING_THREADS: usize = 48;

/// A crash: after so many events, with a choice of [`survivors`].
pub type Place = (usize, usize);

/// What a crash leaves: its place, the disk, and when that was.
type Image = (Place, MemoryDevice, String);

/// What is asked of a disk on which a change crashed.
pub struct Judge<'a> {
    pub tree: &'a Tree,
    pub tune: &'a Tune,
    pub is_done: &'a (dyn Fn(&Superblock) -> bool + Sync),
    /// Whether the disk that crashed at a place is judged a second time, after the change was made again.
    pub judges_again: &'a (dyn Fn(Place) -> bool + Sync),
    /// Whether the judges sleep.
    pub sleeps: bool,
}

/// Of what was not flushed there survives nothing, all, or every other part; or parts that look random, where a superblock is one.
pub fn survivors(choice: usize) -> impl FnMut(&Unflushed) -> bool {
    let mut count = 0_usize;
    move |part| {
        count += 1;
        match choice {
            0 => false,
            1 => true,
            2 | 3 => (count + choice).is_multiple_of(2),
            _ => {
                let mut hasher = DefaultHasher::new();
                hasher.write_usize(choice);
                hasher.write_usize(part.event);
                // e2fsck takes no torn superblock.
                hasher.write_u64(if part.offset < 2 * SUPERBLOCK_OFFSET { 0 } else { part.offset });
                hasher.finish().is_multiple_of(2)
            }
        }
    }
}

/// How a crash tears requests.
fn tearing(choice: usize) -> Tearing {
    if choice < BY_REQUESTS { Tearing::Requests } else { Tearing::Sectors }
}

/// The crashes after each event, or after every `stride`th.
pub fn places(log: &Log, stride: usize) -> Vec<Place> {
    let (stride, choices) = if is_thorough() { (1, CHOICES) } else { (stride, BY_REQUESTS) };
    let events = (0..=log.events().len()).step_by(stride);
    events.flat_map(|events| (0..choices).map(move |choice| (events, choice))).collect()
}

/// Whether crashes after every event are explored.
pub fn is_thorough() -> bool {
    std::env::var_os("EXTANT_TUNE_CRASHES").is_some()
}

/// What a change asks of a device that begins as this one.
pub fn recorded(base: &MemoryDevice, tune: &Tune) -> Log {
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    tune.apply(recorder.clone()).expect("tune");
    recorder.log()
}

impl Judge<'_> {
    /// Judges the crashes at some places in order; how many different images they leave.
    pub fn explore(&self, log: &Log, places: &[Place]) -> usize {
        let seen = Mutex::new(HashSet::new());
        let is_new = |image: &MemoryDevice| seen.lock().expect("no panic").insert(fingerprint(image));
        let crash_at_each = |judge: &mut dyn FnMut(Image)| {
            let mut cursor = log.cursor();
            let mut images = 0;
            for &(events, choice) in places {
                cursor.advance_to(events).expect("a log");
                let image = cursor.crash_image(tearing(choice), survivors(choice)).expect("an image");
                if is_new(&image) {
                    let when = format!("after {events} of {} events, choice {choice}", log.events().len());
                    judge(((events, choice), image, when));
                    images += 1;
                }
            }
            images
        };
        if !HAS_THREADS {
            return crash_at_each(&mut |image| self.judge(image, &is_new));
        }
        let threads =
            if self.sleeps { SLEEPING_THREADS } else { available_parallelism().map_or(1, usize::from) };
        let (sender, receiver) = sync_channel(threads);
        let receiver = Mutex::new(receiver);
        scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.judge_all(&receiver, &is_new));
            }
            let images = crash_at_each(&mut |image| sender.send(image).expect("threads"));
            drop(sender);
            images
        })
    }

    fn judge_all(&self, images: &Mutex<Receiver<Image>>, is_new: &impl Fn(&MemoryDevice) -> bool) {
        loop {
            let next = images.lock().expect("no panic").recv();
            let Ok(image) = next else { return };
            self.judge(image, is_new);
        }
    }

    /// The tree is whole, the same change again completes, and the tree is still whole.
    fn judge(&self, (place, image, when): Image, is_new: &impl Fn(&MemoryDevice) -> bool) {
        let image = Arc::new(image);
        assert_whole(&image, self.tree, &when);
        self.tune.apply(image.clone()).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!((self.is_done)(&super::disk::superblock(&*image)), "{when}");
        if (self.judges_again)(place) && is_new(&image) {
            assert_whole(&image, self.tree, &format!("again {when}"));
        }
    }
}

/// A hash of the content of a disk.
fn fingerprint(device: &MemoryDevice) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut chunk = vec![0; 64 << 10];
    for at in (0..device.size()).step_by(chunk.len()) {
        device.read_at(at, &mut chunk).expect("read");
        if !is_zero(&chunk) {
            hasher.write_u64(at);
            hasher.write(&chunk);
        }
    }
    hasher.finish()
}
