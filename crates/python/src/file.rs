//! Open files: content at offsets, size, durability.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::error::Failure;
use crate::release;

/// Bytes that one read gives at most: what the caller wants does not size an allocation beyond it.
const READ_BYTES_MAX: u64 = 64 << 20;

/// An open file.
#[pyclass(frozen, module = "extant._native")]
pub(crate) struct File {
    file: Option<extant::File>,
}

impl File {
    pub(crate) fn new(file: extant::File) -> Self {
        Self { file: Some(file) }
    }

    /// Calls the engine, detached from the interpreter.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&extant::File) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.as_ref().ok_or_else(|| Failure::new(libc::EBADF, "the file is closed"))?;
        Ok(py.detach(|| act(file)).map_err(Failure::from)?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        release(self.file.take());
    }
}

#[pymethods]
impl File {
    /// As many bytes from `offset` on as there are, `size` at most.
    fn read_at<'py>(&self, py: Python<'py>, offset: u64, size: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |file| {
            let left = file.metadata().size.saturating_sub(offset);
            let mut bytes = vec![0; size.min(left).min(READ_BYTES_MAX) as usize];
            let read = file.read_at(&mut bytes, offset)?;
            bytes.truncate(read);
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes at `offset`, or at the end of a file that is open for appending; gives the bytes written.
    fn write_at(&self, py: Python<'_>, offset: u64, bytes: PyBackedBytes) -> PyResult<usize> {
        self.run(py, |file| file.write_at(&bytes, offset))
    }

    /// The size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |file| Ok(file.metadata().size))
    }

    /// Makes the file `size` bytes long.
    fn set_size(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.run(py, |file| file.set_len(size))
    }

    /// Makes content and attributes durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |file| file.sync_all())
    }
}
