//! The native module of the Python package `extant`: disks, file systems and open files.
//!
//! It holds what needs the engine. Paths in the manner of `pathlib`, streams and `fsspec` are Python, in `python/extant`. Every call that
//! may do I/O detaches from the interpreter, so that other threads of Python run meanwhile. Takes no lock.

#![forbid(unsafe_code)]

mod device;
mod error;
mod file;
mod filesystem;
mod trees;

use pyo3::prelude::*;

/// Drops what a handle owns, detached from the interpreter: the end of a file system waits for threads that may want a device in Python.
fn release<T: Send>(owned: T) {
    Python::attach(|py| py.detach(move || drop(owned)));
}

/// The module.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<filesystem::Filesystem>()?;
    module.add_class::<file::File>()?;
    module.add_function(wrap_pyfunction!(filesystem::mkfs, module)?)
}
