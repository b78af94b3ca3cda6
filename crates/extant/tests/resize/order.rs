//! A recording whose requests are changed afterwards: what a program does that breaks a rule of order.
//!
//! The requests of one run are known, so a rule is broken by moving a write behind what it must come before, by leaving out a flush, or
//! by an older copy of a block in the log. Where the log is not lost to a crash all this leaves the same disk, so that it is a crash
//! that shows it.

use std::collections::BTreeSet;
use std::ops::Range;

use extant_block::{BlockDevice, Event, Log, MemoryDevice, Recorder, Tearing};
use extant_ondisk::jbd2::{BlockType, Header, Superblock as LogSuperblock};

use crate::disk::{Image, run, text};

/// The block size of the disks.
pub const BLOCK_BYTES: u64 = 1024;

/// The requests of a recording, to be changed.
pub struct Requests {
    base: MemoryDevice,
    events: Vec<Event>,
    /// The blocks of the journal, where it was and where it is.
    journal: BTreeSet<u64>,
    /// The first request that is another.
    changed: usize,
}

/// What a recording leaves without a crash.
pub fn end(log: &Log) -> MemoryDevice {
    log.crash_image(log.events().len(), Tearing::Requests, |_| true).expect("the end")
}

fn journal_blocks(image: &Image) -> BTreeSet<u64> {
    let said = run("debugfs", &["-R", "blocks <8>", text(&image.path)]).expect("debugfs");
    said.split_whitespace().filter_map(|block| block.parse().ok()).collect()
}

/// Asserts that `explore` finds what `break_rule` does to the requests of a run that began with `base`, which is in `image`. It is given
/// the recording and the first place that is another, and tells how many images it looked at, and the first bad one.
pub fn assert_found(
    (image, base, log): (&Image, &MemoryDevice, &Log),
    break_rule: impl FnOnce(&mut Requests) -> usize,
    explore: impl FnOnce(&Log, usize) -> (usize, Option<String>),
) {
    let mut requests = Requests::new(image, base, log);
    let broken = break_rule(&mut requests);
    assert!(broken > 0, "the run has nothing that the rule is about");
    let (images, bad) = explore(&requests.record(log), requests.changed);
    let first = bad.unwrap_or_else(|| panic!("not found in {images} images"));
    println!(
        "{broken} changed; found in the last of {images} images: {}",
        first.lines().next().unwrap_or("")
    );
}

impl Requests {
    /// Of a run that began with `base`, which is in `image`.
    pub fn new(image: &Image, base: &MemoryDevice, log: &Log) -> Self {
        let mut journal = journal_blocks(image);
        image.store(&end(log));
        journal.extend(journal_blocks(image));
        image.store(base);
        let events = log.events().to_vec();
        Self { base: base.snapshot(), changed: events.len(), events, journal }
    }

    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// The bytes that a request writes, and where.
    pub fn written(&self, at: usize) -> Option<(u64, &[u8])> {
        match self.events.get(at)? {
            Event::Write { offset, bytes, .. } => Some((*offset, bytes)),
            _ => None,
        }
    }

    /// The bytes that a request changes.
    fn range(&self, at: usize) -> Range<u64> {
        match self.events.get(at) {
            Some(Event::Write { offset, bytes, .. }) => *offset..offset + bytes.len() as u64,
            Some(Event::WriteZeroes { offset, bytes } | Event::Discard { offset, bytes }) => {
                *offset..offset + bytes
            }
            _ => 0..0,
        }
    }

    pub fn start(&self, at: usize) -> u64 {
        self.range(at).start
    }

    pub fn end(&self, at: usize) -> u64 {
        self.range(at).end
    }

    /// Whether a request durably writes such a block of the log.
    pub fn is_durable(&self, at: usize, kind: BlockType) -> bool {
        let Some(Event::Write { bytes, fua: true, .. }) = self.events.get(at) else { return false };
        Header::parse(bytes).is_some_and(|header| header.block_type == Some(kind))
    }

    pub fn is_commit(&self, at: usize) -> bool {
        self.is_durable(at, BlockType::Commit)
    }

    pub fn is_flush(&self, at: usize) -> bool {
        self.events.get(at) == Some(&Event::Flush)
    }

    pub fn is_zeroes(&self, at: usize) -> bool {
        matches!(self.events.get(at), Some(Event::WriteZeroes { .. }))
    }

    pub fn is_discard(&self, at: usize) -> bool {
        matches!(self.events.get(at), Some(Event::Discard { .. }))
    }

    pub fn is_in_journal(&self, at: usize) -> bool {
        self.journal.contains(&(self.range(at).start / BLOCK_BYTES))
    }

    /// Whether a request writes past the log what the next commit makes durable.
    pub fn is_before_commit(&self, at: usize) -> bool {
        let is_durable = |at: &usize| matches!(self.events[*at], Event::Write { fua: true, .. });
        let next = (at..self.count()).find(is_durable);
        !self.range(at).is_empty() && !self.is_in_journal(at) && next.is_some_and(|next| self.is_commit(next))
    }

    /// Moves requests behind the next one that `until` names.
    pub fn delay(
        &mut self,
        which: impl Fn(&Self, usize) -> bool,
        until: impl Fn(&Self, usize) -> bool,
    ) -> usize {
        let late: BTreeSet<usize> = (0..self.count()).filter(|at| which(self, *at)).collect();
        self.changed = late.first().map_or(self.changed, |first| self.changed.min(*first));
        let (mut events, mut held) = (Vec::with_capacity(self.count()), Vec::new());
        for at in 0..self.count() {
            if late.contains(&at) {
                held.push(self.events[at].clone());
                continue;
            }
            events.push(self.events[at].clone());
            if until(self, at) {
                events.append(&mut held);
            }
        }
        events.append(&mut held);
        self.events = events;
        late.len()
    }

    /// Leaves requests out.
    pub fn drop(&mut self, which: impl Fn(&Self, usize) -> bool) -> usize {
        let (dropped, kept): (Vec<usize>, Vec<usize>) = (0..self.count()).partition(|at| which(self, *at));
        self.changed = dropped.first().map_or(self.changed, |first| self.changed.min(*first));
        self.events = kept.into_iter().map(|at| self.events[at].clone()).collect();
        dropped.len()
    }

    /// Puts the bytes that blocks had so far into copies in the log: as if what changes were no part of the transaction.
    /// `is_such` is given the block, its bytes so far, and the copy. Only of a log without checksums.
    pub fn make_stale(&mut self, is_such: impl Fn(u64, &[u8], &[u8]) -> bool) -> usize {
        let size = BLOCK_BYTES as usize;
        let state = self.base.snapshot();
        let mut stale = 0;
        // Where the copies that follow belong.
        let mut places: Vec<u64> = Vec::new();
        let mut format = None;
        for at in 0..self.count() {
            let is_copy = self.is_in_journal(at);
            let Event::Write { offset, bytes, fua } = self.events[at].clone() else {
                if let Event::WriteZeroes { offset, bytes } = self.events[at] {
                    state.write_zeroes(offset, bytes).expect("zeroes");
                }
                continue;
            };
            state.write_at(offset, &bytes).expect("write");
            if !is_copy {
                continue;
            }
            let mut changed = bytes.to_vec();
            for block in changed.chunks_exact_mut(size) {
                match Header::parse(block).and_then(|header| header.block_type) {
                    Some(BlockType::SuperblockV2) => {
                        format = Some(LogSuperblock::parse(block).expect("a superblock of a log").format());
                    }
                    Some(BlockType::Descriptor) => {
                        let format = format.as_ref().expect("a log begins with its superblock");
                        assert!(!format.has_checksums(), "a changed copy would be found by its checksum");
                        places = format.tags(block).map(|tag| tag.block.0).collect();
                        places.reverse();
                    }
                    Some(_) => {}
                    None => {
                        let Some(place) = places.pop() else { continue };
                        let mut old = vec![0; size];
                        state.read_at(place * BLOCK_BYTES, &mut old).expect("read");
                        if old != block && is_such(place, &old, block) {
                            block.copy_from_slice(&old);
                            stale += 1;
                        }
                    }
                }
            }
            if changed != bytes[..] {
                self.changed = self.changed.min(at);
            }
            self.events[at] = Event::Write { offset, bytes: changed.into(), fua };
        }
        stale
    }

    /// The recording of the changed requests.
    ///
    /// # Panics
    /// If they leave another disk, the log apart.
    pub fn record(&self, faithful: &Log) -> Log {
        let recorder = Recorder::over(self.base.snapshot());
        for event in &self.events {
            match event {
                Event::Write { offset, bytes, fua: false } => recorder.write_at(*offset, bytes),
                Event::Write { offset, bytes, fua: true } => recorder.write_fua(*offset, bytes),
                Event::WriteZeroes { offset, bytes } => recorder.write_zeroes(*offset, *bytes),
                Event::Discard { offset, bytes } => recorder.discard(*offset, *bytes),
                Event::Flush => recorder.flush(),
                Event::FailedFlush | Event::Mark(_) => Ok(()),
            }
            .expect("a request");
        }
        let log = recorder.log();
        let (one, other) = (end(faithful), end(&log));
        let size = BLOCK_BYTES as usize;
        let (mut left, mut right) = (vec![0; size], vec![0; size]);
        for block in (0..one.size() / BLOCK_BYTES).filter(|block| !self.journal.contains(block)) {
            one.read_at(block * BLOCK_BYTES, &mut left).expect("read");
            other.read_at(block * BLOCK_BYTES, &mut right).expect("read");
            assert!(left == right, "block {block} is another without a crash");
        }
        log
    }
}
