//! Image files that begin as copies of others, and are used meanwhile.
//!
//! A thread copies chunk after chunk. One that nothing was written to is read from the source, whose pages the host has had for longer; it is
//! copied before anything is written to it.
//!
//! Invariants: a chunk is copied once, by who entered it among those that are being copied; before, nothing of it is written. Before something
//! is written, nothing of it is read from the copy. A copy that is dropped ends.
//!
//! Locks: `DEVICE`, held while data of the source is looked for. Test: `tests/file_copy.rs`; sharing: `tests/command/copies.rs` of the command.

use std::io;
use std::ops::Range;

use extant_rt::{Arc, AtomicBool, Condvar, HAS_THREADS, JoinHandle, LockClass, Mutex, Ordering, spawn};

use super::{FileDevice, IoPath};
use crate::{BlockDevice, Error, FileExt, check_range, host, total_bytes};

/// Bytes that are copied at a time where the host cannot do it itself, and of a chunk at least.
const PIECE_BYTES: u64 = 1 << 20;

/// A file has no more chunks, each of which takes two bytes of memory.
const CHUNKS_MAX: u64 = 1 << 16;

/// How a copy was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// Both files have the same blocks on the host, until one of them is written.
    Shared,
    /// The data was copied: how many bytes. Holes stayed holes.
    Bytes(u64),
}

/// An image file that begins as a copy of another one. It has the other's content at once, and is complete and durable when
/// [`FileCopy::finish`] has returned.
#[derive(Debug)]
pub struct FileCopy {
    chunks: Arc<Chunks>,
    is_shared: bool,
    copier: Mutex<Option<JoinHandle<()>>>,
}

/// The parts of a file that is copied.
#[derive(Debug)]
struct Chunks {
    source: Arc<FileDevice>,
    into: FileDevice,
    /// Of each but the last.
    chunk_bytes: u64,
    /// None where the files share their blocks.
    is_copied: Vec<AtomicBool>,
    /// Likewise.
    is_written: Vec<AtomicBool>,
    progress: Mutex<Progress>,
    /// A chunk that a thread waits for is not being copied any more.
    ended: Condvar,
    is_dropped: AtomicBool,
}

#[derive(Debug, Default)]
struct Progress {
    copied_bytes: u64,
    /// Chunks that are being copied, and threads that wait for one of them.
    copying: Vec<usize>,
    waiting: usize,
    /// Data of the source, and from where on nothing is before it. To find its end takes some hosts as long as it is.
    data: Range<u64>,
    looked_from: u64,
}

/// A chunk that this thread copies. Dropped, be it by a panic, it ends the waiting for it: one that is not copied then is by who waited.
struct Copying<'a> {
    chunks: &'a Chunks,
    chunk: usize,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let mut progress = self.chunks.progress.lock();
        progress.copying.retain(|copying| *copying != self.chunk);
        let is_awaited = progress.waiting > 0;
        drop(progress);
        if is_awaited {
            self.chunks.ended.notify_all();
        }
    }
}

impl FileCopy {
    /// Begins to give the image file `into` the content and the length of `source`, whose blocks it shares where the host can. It is to
    /// be empty, and opened for [`crate::Transfer::Buffered`].
    ///
    /// # Errors
    /// [`Error::Unsuitable`] for a block special or another transfer, else [`Error::Io`]. The content is then of no use.
    pub fn begin(source: Arc<FileDevice>, mut into: FileDevice) -> Result<Self, Error> {
        if into.is_block_special || !matches!(into.io_path, IoPath::Buffered) {
            return Err(into.unsuitable("copies of images are made in files"));
        }
        let is_shared = !source.is_block_special
            && host::share_blocks(&source.file, &into.file).map_err(|error| into.failed(error))?;
        let bytes = source.size();
        into.set_len(bytes)?;
        let chunk_bytes = bytes.div_ceil(CHUNKS_MAX).next_multiple_of(PIECE_BYTES).max(PIECE_BYTES);
        let count = if is_shared { 0 } else { bytes.div_ceil(chunk_bytes) };
        let none = || (0..count).map(|_| AtomicBool::new(false)).collect();
        let chunks = Arc::new(Chunks {
            source,
            into,
            chunk_bytes,
            is_copied: none(),
            is_written: none(),
            progress: Mutex::new(LockClass::DEVICE, Progress::default()),
            ended: Condvar::new(),
            is_dropped: AtomicBool::new(false),
        });
        let copier = (HAS_THREADS && !is_shared).then(|| {
            let chunks = chunks.clone();
            // What it leaves, for an error or for want of a thread, is copied at the end.
            spawn("extant-copy", move || drop(chunks.copy_all())).ok()
        });
        Ok(Self { chunks, is_shared, copier: Mutex::new(LockClass::DEVICE, copier.flatten()) })
    }

    /// Whether both files have the same blocks on the host, so that nothing is copied.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Waits until all is copied, and makes it and what was written durable.
    ///
    /// # Errors
    /// [`Error::Io`]: the copy is of no use.
    pub fn finish(&self) -> Result<Copied, Error> {
        let copier = self.copier.lock().take();
        if let Some(Err(panic)) = copier.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        let chunks = &self.chunks;
        chunks.copy_all()?;
        chunks.into.flush().map_err(|error| chunks.into.failed(error))?;
        let copied_bytes = chunks.progress.lock().copied_bytes;
        Ok(if self.is_shared { Copied::Shared } else { Copied::Bytes(copied_bytes) })
    }
}

impl Drop for FileCopy {
    fn drop(&mut self) {
        self.chunks.is_dropped.store(true, Ordering::Relaxed);
        if let Some(copier) = self.copier.get_mut().take() {
            // It only copies, and a panic of its was printed.
            let _ = copier.join();
        }
    }
}

impl Chunks {
    fn copy_all(&self) -> Result<(), Error> {
        (0..self.is_copied.len())
            .take_while(|_| !self.is_dropped.load(Ordering::Relaxed))
            .try_for_each(|chunk| self.copy(chunk))
    }

    fn is_copied(&self, chunk: usize) -> bool {
        self.is_copied[chunk].load(Ordering::Acquire)
    }

    fn is_written(&self, chunk: usize) -> bool {
        self.is_written[chunk].load(Ordering::Acquire)
    }

    /// Copies a chunk, unless that was done, or waits until another thread has.
    fn copy(&self, chunk: usize) -> Result<(), Error> {
        let Some(_copying) = self.enter(chunk) else { return Ok(()) };
        let bytes = self.copy_chunk(chunk)?;
        self.progress.lock().copied_bytes += bytes;
        self.is_copied[chunk].store(true, Ordering::Release);
        Ok(())
    }

    /// Enters a chunk among those that are being copied, once no other thread copies it. None if it is copied.
    fn enter(&self, chunk: usize) -> Option<Copying<'_>> {
        if self.is_copied(chunk) {
            return None;
        }
        let mut progress = self.progress.lock();
        while progress.copying.contains(&chunk) {
            progress.waiting += 1;
            progress = self.ended.wait(progress);
            progress.waiting -= 1;
        }
        if self.is_copied(chunk) {
            return None;
        }
        progress.copying.push(chunk);
        Some(Copying { chunks: self, chunk })
    }

    /// Copies the data of a chunk: how many bytes.
    fn copy_chunk(&self, chunk: usize) -> Result<u64, Error> {
        let start = chunk as u64 * self.chunk_bytes;
        let end = (start + self.chunk_bytes).min(self.source.size());
        let (mut at, mut bytes) = (start, 0);
        while at < end {
            let data = self.next_data(&mut self.progress.lock(), at)?;
            let (start, data_end) = (data.start.max(at), data.end.min(end));
            if start >= data_end {
                break;
            }
            self.copy_data(start, data_end)?;
            bytes += data_end - start;
            at = data_end;
        }
        Ok(bytes)
    }

    /// The data of the source at a place, or the next behind it; empty if there is none.
    fn next_data(&self, progress: &mut Progress, at: u64) -> Result<Range<u64>, Error> {
        if !(progress.looked_from..progress.data.end).contains(&at) {
            let size = self.source.size();
            let found = host::next_data(&self.source.file, at, size);
            let (start, end) = found.map_err(|error| self.source.failed(error))?.unwrap_or((size, size));
            (progress.looked_from, progress.data) = (at, start..end);
        }
        Ok(progress.data.clone())
    }

    /// Copies a range, by the host itself where it can.
    fn copy_data(&self, start: u64, end: u64) -> Result<(), Error> {
        let (source, into) = (&self.source, &self.into);
        let copied = host::copy_range(&source.file, &into.file, start, end - start);
        let mut at = start + copied.map_err(|error| into.failed(error))?;
        let mut piece = Vec::new();
        while at < end {
            piece.resize((end - at).min(PIECE_BYTES) as usize, 0);
            source.file.read_exact_at(&mut piece, at).map_err(|error| source.failed(error))?;
            into.file.write_all_at(&piece, at).map_err(|error| into.failed(error))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The chunks that a range touches.
    fn touched(&self, offset: u64, bytes: u64) -> Range<usize> {
        let end = offset.saturating_add(bytes).div_ceil(self.chunk_bytes);
        (offset / self.chunk_bytes) as usize..(end as usize).min(self.is_copied.len())
    }

    /// Has a range copied that is to be changed.
    fn prepare(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.touched(offset, bytes).try_for_each(|chunk| {
            self.copy(chunk).map_err(|error| match error {
                Error::Io { source, .. } => source,
                other => io::Error::other(other),
            })?;
            self.is_written[chunk].store(true, Ordering::Release);
            Ok(())
        })
    }
}

impl BlockDevice for FileCopy {
    fn size(&self) -> u64 {
        self.chunks.into.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Chunks { source, into, .. } = &*self.chunks;
        check_range(self.size(), offset, buf.len() as u64)?;
        let touched = self.chunks.touched(offset, buf.len() as u64);
        if touched.clone().all(|chunk| self.chunks.is_written(chunk)) {
            return into.read_at(offset, buf);
        }
        let (mut at, mut rest) = (offset, buf);
        for chunk in touched {
            let end = (chunk as u64 + 1) * self.chunks.chunk_bytes;
            let (piece, after) = rest.split_at_mut(((end - at) as usize).min(rest.len()));
            let from = if self.chunks.is_written(chunk) { into } else { &**source };
            from.read_at(at, piece)?;
            (at, rest) = (end, after);
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.chunks.prepare(offset, total_bytes(bufs))?;
        self.chunks.into.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.chunks.prepare(offset, buf.len() as u64)?;
        self.chunks.into.write_fua(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.chunks.into.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.chunks.prepare(offset, bytes)?;
        self.chunks.into.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.chunks.prepare(offset, bytes)?;
        self.chunks.into.write_zeroes(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::path::Path;

    use super::*;
    use crate::DeviceAccess;

    const CHUNKS: usize = 3;

    /// A file of this content in a directory.
    fn file(dir: &Path, name: &str, content: &[u8]) -> FileDevice {
        let path = dir.join(name);
        std::fs::write(&path, content).expect("write");
        FileDevice::open(path, DeviceAccess::read_write()).expect("open")
    }

    #[test]
    #[cfg_attr(not(panic = "unwind"), ignore = "a panic ends the process")]
    fn chunk_is_copied_by_who_waits_when_its_copier_panics() {
        let dir = extant_testing::scratch();
        let content = vec![7; CHUNKS * PIECE_BYTES as usize];
        let flags = || (0..CHUNKS).map(|_| AtomicBool::new(false)).collect();
        let mut into = file(dir.path(), "copy", b"");
        into.set_len(content.len() as u64).expect("a length");
        let chunks = Arc::new(Chunks {
            source: Arc::new(file(dir.path(), "base", &content)),
            into,
            chunk_bytes: PIECE_BYTES,
            is_copied: flags(),
            is_written: flags(),
            progress: Mutex::new(LockClass::DEVICE, Progress::default()),
            ended: Condvar::new(),
            is_dropped: AtomicBool::new(false),
        });
        let mut waiting = None;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _copying = chunks.enter(1).expect("it is not copied");
            let waits = chunks.clone();
            waiting = spawn("waits", move || waits.copy(1).expect("copied")).ok();
            while chunks.progress.lock().waiting == 0 {
                std::thread::yield_now();
            }
            resume_unwind(Box::new("while it is copied"));
        }));
        assert!(panicked.is_err());
        waiting.expect("a thread").join().expect("no panic");
        assert!(chunks.is_copied(1) && !chunks.is_copied(0));
        let copy = std::fs::read(dir.path().join("copy")).expect("read");
        let chunk = PIECE_BYTES as usize;
        assert!(copy[chunk..2 * chunk] == content[chunk..2 * chunk] && copy[0] == 0);
    }
}
