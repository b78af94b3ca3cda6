//! A device that fails on demand, for tests.
//!
//! Locks: `DEVICE_LAYER` with key 1, so that it may be below a recorder; never across a request to the device below.

use std::fmt;
use std::io;

use extant_rt::{LockClass, Mutex};

use crate::{BlockDevice, total_bytes};

/// The kind of a request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `read_at`.
    Read,
    /// `write_at`, `write_vectored_at`.
    Write,
    /// `write_fua`.
    WriteFua,
    /// `flush`.
    Flush,
    /// `discard`.
    Discard,
    /// `write_zeroes`.
    WriteZeroes,
}

/// A request about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of request.
    pub operation: Operation,
    /// Its start, in bytes; 0 for a flush.
    pub offset: u64,
    /// Its length in bytes; 0 for a flush.
    pub bytes: u64,
    /// How many requests of the same operation came before.
    pub index: u64,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on.
    None,
    /// It fails and does nothing.
    Error(io::ErrorKind),
    /// This many bytes of a write reach the device, and then it fails. Any other request does nothing and fails.
    Short(u64, io::ErrorKind),
    /// It does nothing and succeeds: a device that lies. What is read stays as it was.
    Dropped,
}

type Plan = Box<dyn FnMut(&Request) -> Fault + Send>;

struct State {
    plan: Plan,
    /// Requests so far, by operation.
    counts: [u64; 6],
}

/// A device before another that fails as a plan says.
pub struct FaultDevice<D> {
    inner: D,
    state: Mutex<State>,
}

impl<D: fmt::Debug> fmt::Debug for FaultDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultDevice").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<D: BlockDevice> FaultDevice<D> {
    /// A device that asks `plan` about every request. The plan must not use the device.
    pub fn new(inner: D, plan: impl FnMut(&Request) -> Fault + Send + 'static) -> Self {
        let state = State { plan: Box::new(plan), counts: [0; 6] };
        Self { inner, state: Mutex::with_key(LockClass::DEVICE_LAYER, 1, state) }
    }

    /// A device whose requests of `operation` fail from the one with this index, counted from 0.
    pub fn failing_from(inner: D, operation: Operation, index: u64) -> Self {
        Self::new(inner, move |request| {
            if request.operation == operation && request.index >= index {
                Fault::Error(io::ErrorKind::Other)
            } else {
                Fault::None
            }
        })
    }

    /// A device of which one request of `operation`, counted from 0, fails.
    pub fn failing_once(inner: D, operation: Operation, index: u64) -> Self {
        Self::new(inner, move |request| {
            if request.operation == operation && request.index == index {
                Fault::Error(io::ErrorKind::Other)
            } else {
                Fault::None
            }
        })
    }

    /// Replaces the plan. Counts go on.
    pub fn set_plan(&self, plan: impl FnMut(&Request) -> Fault + Send + 'static) {
        self.state.lock().plan = Box::new(plan);
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// How many requests of `operation` were made.
    pub fn count(&self, operation: Operation) -> u64 {
        self.state.lock().counts[operation as usize]
    }

    /// Asks the plan.
    fn ask(&self, operation: Operation, offset: u64, bytes: u64) -> Fault {
        let mut state = self.state.lock();
        let index = state.counts[operation as usize];
        state.counts[operation as usize] += 1;
        (state.plan)(&Request { operation, offset, bytes, index })
    }

    /// Passes a request on that cannot be done in part, or not.
    fn pass(
        &self,
        (operation, offset, bytes): (Operation, u64, u64),
        request: impl FnOnce(&D) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.ask(operation, offset, bytes) {
            Fault::None => request(&self.inner),
            Fault::Error(kind) | Fault::Short(_, kind) => Err(kind.into()),
            Fault::Dropped => Ok(()),
        }
    }

    /// Writes the first `left` bytes of the buffers, which may be more than there are.
    fn write_part(&self, offset: u64, bufs: &[io::IoSlice<'_>], mut left: u64) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            let len = left.min(buf.len() as u64);
            self.inner.write_at(at, &buf[..len as usize])?;
            at += len;
            left -= len;
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pass((Operation::Read, offset, buf.len() as u64), |inner| inner.read_at(offset, buf))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        match self.ask(Operation::Write, offset, total_bytes(bufs)) {
            Fault::Short(done, kind) => self.write_part(offset, bufs, done).and(Err(kind.into())),
            Fault::None => self.inner.write_vectored_at(offset, bufs),
            Fault::Error(kind) => Err(kind.into()),
            Fault::Dropped => Ok(()),
        }
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.ask(Operation::WriteFua, offset, buf.len() as u64) {
            Fault::Short(done, kind) => {
                self.write_part(offset, &[io::IoSlice::new(buf)], done).and(Err(kind.into()))
            }
            Fault::None => self.inner.write_fua(offset, buf),
            Fault::Error(kind) => Err(kind.into()),
            Fault::Dropped => Ok(()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.pass((Operation::Flush, 0, 0), D::flush)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.pass((Operation::Discard, offset, bytes), |inner| inner.discard(offset, bytes))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.pass((Operation::WriteZeroes, offset, bytes), |inner| inner.write_zeroes(offset, bytes))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn has_latency(&self) -> bool {
        self.inner.has_latency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn the_named_request_fails_and_others_pass() {
        let device = FaultDevice::failing_once(MemoryDevice::new(4096), Operation::Flush, 1);
        assert!(device.flush().is_ok());
        assert!(device.flush().is_err());
        assert!(device.flush().is_ok());
        assert!(device.write_at(0, &[1]).is_ok());
        assert_eq!(device.count(Operation::Flush), 3);
    }

    #[test]
    fn short_write_leaves_its_first_bytes_across_buffers() {
        let device = FaultDevice::new(MemoryDevice::new(64), |_| Fault::Short(6, io::ErrorKind::StorageFull));
        let bufs = [io::IoSlice::new(&[7; 4]), io::IoSlice::new(&[8; 4])];
        let error = device.write_vectored_at(10, &bufs).expect_err("short");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let mut read = [0; 10];
        device.inner().read_at(9, &mut read).expect("read");
        assert_eq!(read, [0, 7, 7, 7, 7, 8, 8, 0, 0, 0]);
    }
}
