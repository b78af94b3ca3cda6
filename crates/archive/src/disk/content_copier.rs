//! Content of the host's files that a thread copies to its blocks, while the next files are made.
//!
//! Invariant: what is written is what was placed ([`File::place_at`]) and keeps its blocks: before anything is removed, all is copied. A
//! failure ends it.
//!
//! Test: `tests/disk.rs`.

use extant::{File, InodeNumber, Location, Structure};
use extant_block::{BlockDevice, Segment};
use extant_rt::{Arc, JoinHandle, LockClass, Mutex, panicking, spawn};

use crate::entry::DataRange;
use crate::error::{Error, Result};
use crate::host::OpenFile;
use crate::host_file::HostFile;
use crate::path::TreePath;
use crate::queue::{Gone, Queue};

/// Pieces that may wait, each with an open file.
const QUEUE_ITEMS_MAX: usize = 128;

/// Bytes copied at once, a multiple of all block sizes: so many stay in a cache of the CPU.
const BUFFER_BYTES: usize = 256 << 10;

/// A piece of a file, and where it belongs.
struct Task {
    path: TreePath,
    inode: InodeNumber,
    source: TaskSource,
    piece: DataRange,
    /// Whole blocks on the device, as many as the piece needs.
    segments: Vec<Segment>,
}

/// A file of the host to copy from.
pub(super) enum TaskSource {
    /// It is opened for one task.
    Closed(HostFile),
    Open(Arc<OpenFile>),
}

struct Shared {
    queue: Queue<Task>,
    failure: Mutex<Option<Error>>,
}

/// A thread that copies content.
pub(super) struct ContentCopier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    block_size: u64,
}

impl std::fmt::Debug for ContentCopier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentCopier").finish_non_exhaustive()
    }
}

impl ContentCopier {
    /// A thread that copies to `device`, in blocks of so many bytes.
    ///
    /// # Errors
    /// [`Error::Stream`] if the host gives none.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u64) -> Result<Self> {
        let failure = Mutex::new(LockClass::PIPE, None);
        let shared = Arc::new(Shared { queue: Queue::new(QUEUE_ITEMS_MAX), failure });
        let consumer = Consumer(shared.clone());
        let thread = spawn("extant-content", move || consumer.run(&*device)).map_err(Error::Stream)?;
        Ok(Self { shared, thread: Some(thread), block_size })
    }

    /// Whether ranges of a file of `size` bytes share no block with what is not in them.
    pub fn are_whole_blocks(&self, ranges: &[DataRange], size: u64) -> bool {
        let is_whole = |at: u64| at.is_multiple_of(self.block_size);
        ranges.iter().all(|range| is_whole(range.offset) && (is_whole(range.end()) || range.end() == size))
    }

    /// Has the thread copy a piece of `source`, to these blocks of `file`.
    ///
    /// # Errors
    /// Those of what it was to copy before.
    pub fn copy(
        &self,
        (path, file): (&TreePath, &File),
        source: TaskSource,
        piece: DataRange,
        segments: Vec<Segment>,
    ) -> Result<()> {
        let task = Task { path: path.clone(), inode: file.number(), source, piece, segments };
        self.shared.queue.put(task, piece.bytes as usize).map_err(|gone| self.failure(gone))
    }

    /// Returns once everything is copied.
    ///
    /// # Errors
    /// Those of copying.
    pub fn wait(&self) -> Result<()> {
        self.shared.queue.wait_until_done().map_err(|gone| self.failure(gone))
    }

    fn failure(&self, _: Gone) -> Error {
        self.shared.failure.lock().take().unwrap_or(Error::Cancelled)
    }
}

impl Drop for ContentCopier {
    fn drop(&mut self) {
        self.shared.queue.end();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// The thread's end. Dropping it, be it by a panic, ends the producer's waiting.
struct Consumer(Arc<Shared>);

impl Consumer {
    fn run(self, device: &dyn BlockDevice) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(tasks) = self.0.queue.take(&mut Vec::new()) {
            for task in tasks {
                if let Err(error) = task.run(device, &mut buffer) {
                    *self.0.failure.lock() = Some(error);
                    return;
                }
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.0.queue.abandon();
    }
}

impl Task {
    fn run(&self, device: &dyn BlockDevice, buffer: &mut [u8]) -> Result<()> {
        let opened;
        let source = match &self.source {
            TaskSource::Closed(file) => {
                opened = OpenFile::open(file)?;
                &opened
            }
            TaskSource::Open(file) => file,
        };
        let (mut at, end) = (self.piece.offset, self.piece.end());
        for segment in &self.segments {
            let mut within = 0;
            while within < segment.bytes {
                let blocks = &mut buffer[..(segment.bytes - within).min(BUFFER_BYTES as u64) as usize];
                let bytes = (end - at).min(blocks.len() as u64);
                let (content, padding) = blocks.split_at_mut(bytes as usize);
                source.read_exact_at(content, at)?;
                padding.fill(0);
                device.write_at(segment.offset + within, blocks).map_err(|source| {
                    let location = Location::of(Structure::Inode).inode(self.inode);
                    Error::disk(&self.path, location.io(source))
                })?;
                within += blocks.len() as u64;
                at += bytes;
            }
        }
        Ok(())
    }
}
