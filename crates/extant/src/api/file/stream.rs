//! Reading, writing and seeking at the position of an open file, as the traits of `std::io` have it.

use std::io;

use extant_block::FileExt;
use extant_rt::{AtomicU64, Ordering};

use super::File;
use crate::error::Error;

/// Where [`io::Read`] and [`io::Write`] go on.
#[derive(Debug, Default)]
pub(super) struct Position(AtomicU64);

impl Position {
    fn get(&self) -> u64 {
        // Orders nothing: threads that share a position share no bytes by it.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, offset: u64) {
        self.0.store(offset, Ordering::Relaxed);
    }
}

impl Clone for Position {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

impl io::Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let position = self.position.get();
        let read = File::read_at(self, buf, position)?;
        self.position.set(position + read as u64);
        Ok(read)
    }
}

impl io::Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let position = self.position.get();
        let written = File::write_at(self, buf, position)?;
        self.position.set(if self.append { self.metadata().size } else { position + written as u64 });
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(offset) => Some(offset),
            io::SeekFrom::End(by) => self.metadata().size.checked_add_signed(by),
            io::SeekFrom::Current(by) => self.position.get().checked_add_signed(by),
        };
        let position = position.ok_or(Error::InvalidArgument("before the start"))?;
        self.position.set(position);
        Ok(position)
    }
}

impl io::Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl io::Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, buf, offset)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(File::write_at(self, buf, offset)?)
    }
}
