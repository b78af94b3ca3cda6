//! Devices: an image file, a block device, or an object of Python; and the part of one that a file system takes.

use extant_rt::Arc;
use std::io;
use std::path::PathBuf;

use extant::device::BlockDevice;
use extant_block::{Container, Create, DeviceAccess, FileDevice, Partition, check_range};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::error::Failure;

/// What the caller names as the device.
#[derive(FromPyObject)]
pub(crate) enum Named {
    /// An image file or a block device.
    Path(PathBuf),
    /// An object with `size`, `read_at` and, if it can be written, `write_at` and `flush`.
    Object(Py<PyAny>),
}

/// The part of a device that is used.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) partition: Option<u32>,
}

impl Named {
    /// The path for messages; of an object none.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(path.clone()),
            Self::Object(_) => None,
        }
    }

    /// Opens the part.
    ///
    /// # Errors
    /// Those of `open(2)`; `EBUSY` if it is in use; `EINVAL` if the part does not exist; `EROFS` for writing what can only be read.
    pub(crate) fn open(self, read_only: bool, part: Part) -> Result<Arc<dyn BlockDevice>, Failure> {
        let device: Arc<dyn BlockDevice> = match self {
            Self::Path(path) => {
                let access = DeviceAccess { read_only, ..DeviceAccess::default() };
                Arc::new(FileDevice::open(&path, access)?)
            }
            Self::Object(object) => Arc::new(ObjectDevice::new(object)?),
        };
        if device.is_read_only() && !read_only {
            return Err(Failure::new(libc::EROFS, "the device can only be read"));
        }
        part.of(device)
    }

    /// Makes an image file of `bytes`, unless it exists.
    pub(crate) fn create(&self, bytes: u64) -> Result<(), Failure> {
        if let Self::Path(path) = self
            && !path.exists()
        {
            let access = DeviceAccess { create: Create::New, ..DeviceAccess::default() };
            FileDevice::open(path, access)?.set_len(bytes)?;
        }
        Ok(())
    }
}

impl Part {
    fn of(self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Failure> {
        let (offset, bytes) = match self.partition {
            Some(number) => {
                let entry = match Container::recognise(&device)? {
                    Some(Container::PartitionTable(entries)) => {
                        entries.into_iter().find(|entry| entry.number == number)
                    }
                    _ => None,
                };
                let entry = entry
                    .ok_or_else(|| Failure::new(libc::EINVAL, format!("there is no partition {number}")))?;
                (entry.offset, Some(entry.bytes))
            }
            None => (self.offset, self.bytes),
        };
        Ok(match (offset, bytes) {
            (0, None) => device,
            (_, None) => Arc::new(Partition::from_offset(device, offset)?),
            (_, Some(bytes)) => Arc::new(Partition::new(device, offset, bytes)?),
        })
    }
}

/// A device whose bytes an object of Python gives.
///
/// The engine calls it from threads of its own too, detached from the interpreter.
struct ObjectDevice {
    object: Py<PyAny>,
    bytes: u64,
    is_read_only: bool,
}

impl ObjectDevice {
    fn new(object: Py<PyAny>) -> Result<Self, Failure> {
        Python::attach(|py| {
            let bound = object.bind(py);
            let bytes = bound.getattr("size")?.extract()?;
            let is_read_only = !(bound.hasattr("write_at")? && bound.hasattr("flush")?);
            Ok((bytes, is_read_only))
        })
        .map(|(bytes, is_read_only)| Self { object, bytes, is_read_only })
        .map_err(|error| Failure::from(io_error(error)))
    }

    fn call<T>(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        Python::attach(|py| act(self.object.bind(py))).map_err(io_error)
    }
}

/// The exception of a device: its `errno`, if it is an `OSError` with one.
fn io_error(error: PyErr) -> io::Error {
    let errno = Python::attach(|py| {
        let value = error.value(py);
        if value.is_instance_of::<PyOSError>() { value.getattr("errno").ok()?.extract().ok() } else { None }
    });
    match errno {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error.to_string()),
    }
}

impl BlockDevice for ObjectDevice {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.bytes, offset, buf.len() as u64)?;
        let bytes = self.call(|object| {
            let bytes = PyByteArray::new_with(object.py(), buf.len(), |_| Ok(()))?;
            object.call_method1("read_at", (offset, &bytes))?;
            Ok(bytes.to_vec())
        })?;
        if bytes.len() != buf.len() {
            return Err(io::Error::other("read_at changed the size of its buffer"));
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_vectored_at(&self, mut offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.write_at(offset, buf)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(self.bytes, offset, buf.len() as u64)?;
        self.call(|object| {
            object.call_method1("write_at", (offset, PyBytes::new(object.py(), buf))).map(drop)
        })
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_read_only { Ok(()) } else { self.call(|object| object.call_method0("flush").map(drop)) }
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}
