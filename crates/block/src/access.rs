//! The ways to open a file or block special.

/// How bytes are transferred between the program and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Through the host's page cache.
    #[default]
    Buffered,
    /// Past it (`O_DIRECT`); requests that are not aligned are copied through aligned buffers.
    Direct,
    /// Written through a shared memory map, which takes no lock of the file. For images on tmpfs.
    Mapped,
}

/// Whether opening may make the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The file exists.
    #[default]
    Never,
    /// The file is made if it does not exist.
    IfMissing,
    /// The file is made; one that exists is refused.
    New,
}

/// How a file or block special is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceAccess {
    /// Refuses writes, and shares the lock with other readers.
    pub read_only: bool,
    /// How bytes are transferred.
    pub transfer: Transfer,
    /// Whether the file may be made.
    pub create: Create,
    /// Empties a file once it is locked. Means nothing for a block special.
    pub truncate: bool,
}

impl DeviceAccess {
    /// Reading an existing device.
    #[must_use]
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }

    /// Reading and writing an existing device.
    #[must_use]
    pub fn read_write() -> Self {
        Self::default()
    }
}
