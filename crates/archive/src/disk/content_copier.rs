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

/// Bytes that are read before they are written, a multiple of all block sizes: so many stay in a cache of the CPU.
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
    device: Arc<dyn BlockDevice>,
}

/// A thread that copies content, and its caller, which copies too while the queue is full.
pub(super) struct ContentCopier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The caller's.
    batch: Batch,
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
        let shared = Arc::new(Shared { queue: Queue::new(QUEUE_ITEMS_MAX), failure, device });
        let consumer = Consumer(shared.clone());
        let thread = spawn("extant-content", move || consumer.run()).map_err(Error::Stream)?;
        Ok(Self { shared, thread: Some(thread), batch: Batch::new(), block_size })
    }

    /// Whether ranges of a file of `size` bytes share no block with what is not in them.
    pub fn are_whole_blocks(&self, ranges: &[DataRange], size: u64) -> bool {
        let is_whole = |at: u64| at.is_multiple_of(self.block_size);
        ranges.iter().all(|range| is_whole(range.offset) && (is_whole(range.end()) || range.end() == size))
    }

    /// Has a piece of `source` copied to these blocks of `file`: by the thread, or here if the queue is full.
    ///
    /// # Errors
    /// Those of copying, be it what the thread was to copy before.
    pub fn copy(
        &mut self,
        (path, file): (&TreePath, &File),
        source: TaskSource,
        piece: DataRange,
        segments: Vec<Segment>,
    ) -> Result<()> {
        let task = Task { path: path.clone(), inode: file.number(), source, piece, segments };
        match self.shared.queue.offer(task, piece.bytes as usize).map_err(|gone| self.failure(gone))? {
            Some(task) => self.batch.copy(&task, &*self.shared.device),
            None => Ok(()),
        }
    }

    /// Returns once everything is copied.
    ///
    /// # Errors
    /// Those of copying.
    pub fn wait(&mut self) -> Result<()> {
        self.batch.write(&*self.shared.device)?;
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
    fn run(self) {
        let mut batch = Batch::new();
        while let Some(tasks) = self.0.queue.take(&mut Vec::new()) {
            let device = &*self.0.device;
            let copied = tasks.iter().try_for_each(|task| batch.copy(task, device));
            if let Err(error) = copied.and_then(|()| batch.write(device)) {
                *self.0.failure.lock() = Some(error);
                return;
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.0.queue.abandon();
    }
}

/// Content that was read, and is to be written.
struct Batch {
    buffer: Vec<u8>,
    bytes: usize,
    parts: Vec<Part>,
}

/// Whole blocks of one file that lie side by side on the device.
struct Part {
    path: TreePath,
    inode: InodeNumber,
    offset: u64,
    bytes: usize,
}

impl Batch {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], bytes: 0, parts: Vec::new() }
    }

    /// Reads content, and writes what was read before if there is no more room.
    fn copy(&mut self, task: &Task, device: &dyn BlockDevice) -> Result<()> {
        let opened;
        let source = match &task.source {
            TaskSource::Closed(file) => {
                opened = OpenFile::open(file)?;
                &opened
            }
            TaskSource::Open(file) => file,
        };
        let (mut at, end) = (task.piece.offset, task.piece.end());
        for segment in &task.segments {
            let mut within = 0;
            while within < segment.bytes {
                if self.bytes == BUFFER_BYTES {
                    self.write(device)?;
                }
                let room = &mut self.buffer[self.bytes..];
                let room_bytes = room.len() as u64;
                let blocks = &mut room[..(segment.bytes - within).min(room_bytes) as usize];
                let bytes = (end - at).min(blocks.len() as u64);
                let (content, padding) = blocks.split_at_mut(bytes as usize);
                source.read_exact_at(content, at)?;
                padding.fill(0);
                let offset = segment.offset + within;
                let (path, inode, whole) = (task.path.clone(), task.inode, blocks.len());
                self.parts.push(Part { path, inode, offset, bytes: whole });
                self.bytes += whole;
                within += whole as u64;
                at += bytes;
            }
        }
        Ok(())
    }

    /// Writes everything, what lies side by side together.
    fn write(&mut self, device: &dyn BlockDevice) -> Result<()> {
        let mut content = &self.buffer[..self.bytes];
        for run in self.parts.chunk_by(|one, next| one.offset + one.bytes as u64 == next.offset) {
            let (of_run, rest) = content.split_at(run.iter().map(|part| part.bytes).sum());
            // Which of the files it was, writing each of them tells.
            if device.write_at(run[0].offset, of_run).is_err() {
                Self::write_each(run, of_run, device)?;
            }
            content = rest;
        }
        self.parts.clear();
        self.bytes = 0;
        Ok(())
    }

    fn write_each(parts: &[Part], mut content: &[u8], device: &dyn BlockDevice) -> Result<()> {
        for part in parts {
            let (of_part, rest) = content.split_at(part.bytes);
            device.write_at(part.offset, of_part).map_err(|source| {
                let location = Location::of(Structure::Inode).inode(part.inode);
                Error::disk(&part.path, location.io(source))
            })?;
            content = rest;
        }
        Ok(())
    }
}
