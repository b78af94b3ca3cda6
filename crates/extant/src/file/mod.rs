//! What is done with an open file: reading, writing, cutting, allocating, seeking, and making it durable.

pub(crate) mod exchange;
pub(crate) mod fallocate;
mod read;
pub(crate) mod seek;
mod sync;
mod verity;
mod write;

use std::ops::Deref;

use crate::directory::Directories;

/// The files of a mounted file system.
pub(crate) struct Files {
    lower: Directories,
}

impl Deref for Files {
    type Target = Directories;

    fn deref(&self) -> &Directories {
        &self.lower
    }
}

impl Files {
    pub(crate) fn new(lower: Directories) -> Self {
        Self { lower }
    }
}
