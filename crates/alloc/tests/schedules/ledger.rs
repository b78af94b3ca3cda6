//! Who owns which block, kept apart from the allocator, by what its callers did and were told.
//!
//! A caller notes that it lets a block go before it calls, and that it has one when the call has returned: so whoever is
//! given a block finds it free here, in every order of events.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use extant_alloc::ClusterRun;
use extant_ondisk::TransactionId;

use crate::disk::Disk;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// The file system's own.
    System,
    Free,
    /// Given out, not marked.
    Taken,
    /// Marked on the disk.
    Used,
    /// Freed on the disk by a transaction.
    Freed(TransactionId),
}

#[derive(Debug)]
pub struct Books {
    pub blocks: Vec<Block>,
    /// Transactions up to this one are committed.
    committed: TransactionId,
    /// Blocks that whoever reserves now cannot be refused: those free, but for what others may be about to get.
    certain: i64,
    /// For each task that reserves, the least of those since it began.
    least: Vec<Option<i64>>,
}

#[derive(Debug)]
pub struct Ledger(Mutex<Books>);

pub fn numbers(run: ClusterRun) -> Range<usize> {
    run.start.0 as usize..run.start.0 as usize + run.len as usize
}

impl Ledger {
    pub fn new(disk: &Disk, tasks: usize, tid: TransactionId) -> Self {
        let state = |block| if block == 0 || disk.is_used(block) { Block::System } else { Block::Free };
        let blocks: Vec<_> = (0..disk.geometry.blocks_count).map(state).collect();
        let certain = blocks.iter().filter(|block| **block == Block::Free).count() as i64;
        Self(Mutex::new(Books { blocks, committed: tid, certain, least: vec![None; tasks] }))
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("no task panicked with the ledger")
    }

    /// So many blocks become certain to be had, or no longer are.
    pub fn expect(&self, blocks: i64) {
        let mut books = self.books();
        books.certain += blocks;
        let certain = books.certain;
        for least in books.least.iter_mut().flatten() {
            *least = certain.min(*least);
        }
    }

    /// `task` begins to reserve.
    pub fn begin(&self, task: usize) {
        let mut books = self.books();
        books.least[task] = Some(books.certain);
    }

    /// The least number of certain blocks since `task` began to reserve.
    pub fn end(&self, task: usize) -> i64 {
        self.books().least[task].take().expect("it began")
    }

    /// A run was given out.
    pub fn take(&self, run: ClusterRun) {
        let mut books = self.books();
        let committed = books.committed;
        for number in numbers(run) {
            let block = books.blocks[number];
            let is_free = match block {
                Block::Free => true,
                Block::Freed(tid) => !tid.is_after(committed),
                _ => false,
            };
            assert!(is_free, "block {number} is given out while {block:?}, committed {committed}");
            books.blocks[number] = Block::Taken;
        }
    }

    pub fn change(&self, run: ClusterRun, from: Block, to: Block) {
        let mut books = self.books();
        for number in numbers(run) {
            let before = std::mem::replace(&mut books.blocks[number], to);
            assert_eq!(before, from, "block {number}");
        }
    }

    /// `tid` is durable: what it freed may be given out. Gives how much that is.
    pub fn commit(&self, tid: TransactionId) -> i64 {
        let mut books = self.books();
        books.committed = tid;
        books.blocks.iter().filter(|block| **block == Block::Freed(tid)).count() as i64
    }

    /// Blocks that are not the file system's own nor used on the disk, when all is committed.
    pub fn free_blocks(&self) -> u64 {
        let books = self.books();
        (0..books.blocks.len()).filter(|number| !books.is_busy(*number)).count() as u64
    }
}

impl Books {
    /// Whether the block must not be given out, by what callers know; others are free or taken ahead.
    pub fn is_busy(&self, number: usize) -> bool {
        match self.blocks[number] {
            Block::Free => false,
            Block::Freed(tid) => tid.is_after(self.committed),
            _ => true,
        }
    }
}
