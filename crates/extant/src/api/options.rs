//! Builders: how to mount, how to open.

use std::path::Path;
use std::time::Duration;

use extant_alloc::Tuning;
use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_ondisk::QuotaType;
use extant_rt::{Arc, WallClock};

use super::filesystem::Filesystem;
use crate::error::{Error, Result};
use crate::mount::{Options, Volume};
use crate::resize::shrink::{ShrinkPlan, ShrinkProgress, ShrinkTo, Shrunk, plan, shrink};
use crate::resize::{Grown, grow};

/// How to mount a file system.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use extant::{Mount, device::MemoryDevice, mkfs::Mkfs};
///
/// let device = MemoryDevice::new(16 << 20);
/// Mkfs::new().format(&device)?;
/// let fs = Mount::new().open_device(device)?;
/// fs.write("/hello", b"world")?;
/// assert_eq!(fs.read("/hello")?, b"world");
/// fs.unmount()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Mount {
    options: Options,
}

impl Mount {
    /// For reading and writing, with the host's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only for reading: no byte is written, and a dirty journal is replayed in memory.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }

    /// Leaves a dirty journal alone and shows the disk as it is. Only with `read_only`.
    #[must_use]
    pub fn no_recovery(mut self, no_recovery: bool) -> Self {
        self.options.no_recovery = no_recovery;
        self
    }

    /// Where the times written to inodes come from.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.options.clock = clock;
        self
    }

    /// Bytes of memory for what is on the disk as well: a quarter of them for clean blocks of metadata, a quarter for groups' bitmaps,
    /// the rest for a name and an inode for each 4 KiB. Committed blocks that wait for their checkpoint may take half as many besides, at least
    /// 1,024 blocks: of a longer journal only so much is used. The default is 256 MiB, or 16 MiB for each CPU if that is more.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.options.cache_bytes = bytes;
        self
    }

    /// Bytes of files to keep in memory, at most half of them not yet written: a write into a file with extents is in memory first and
    /// gets blocks when it is written back, after 30 s, at a `sync` or when memory is short. 0: all writes go to the disk at once. The
    /// default is 256 MiB for a device [with latency](BlockDevice::has_latency) (block devices, image files opened past the host's
    /// cache), else 0: where the device is the host's memory, a cache is a second copy.
    #[must_use]
    pub fn page_cache_bytes(mut self, bytes: u64) -> Self {
        self.options.page_cache_bytes = Some(bytes);
        self
    }

    /// Whether the page cache keeps what is on the disk too; not if the caller or the host caches it. The default is on.
    #[must_use]
    pub fn keep_clean_pages(mut self, keep: bool) -> Self {
        self.options.keep_clean_pages = keep;
        self
    }

    /// How the allocators work.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.options.tuning = tuning;
        self
    }

    /// The directory that the superblock is to name as the last mount point.
    #[must_use]
    pub fn last_mounted(mut self, path: &[u8]) -> Self {
        self.options.last_mounted = Some(path.to_vec());
        self
    }

    /// Whether threads commit at intervals, checkpoint, write files back and zero inode tables; otherwise only `sync` and a full log
    /// commit. On by default, where the host has threads.
    #[must_use]
    pub fn background(mut self, background: bool) -> Self {
        self.options.background = background;
        self
    }

    /// The time between commits of the background thread (kernel `commit=`). 5 s by default.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.options.commit_interval = interval;
        self
    }

    /// The time from mounting to the background initialisation of the first inode table, so that short mounts do none. 5 s by default,
    /// the kernel's maximum.
    #[must_use]
    pub fn table_initialisation_delay(mut self, delay: Duration) -> Self {
        self.options.table_delay = delay;
        self
    }

    /// Whether blocks that a transaction freed are discarded on the device, once it is durable and before they can be allocated again;
    /// a thread that waits for the commit waits for the discards. Discards that fail are left, as the kernel's `discard` does. The
    /// default is off.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.options.discard = discard;
        self
    }

    /// Blocks at most that are kept for tree blocks, so that writes into allocated space find some on a full disk (kernel
    /// `/sys/fs/ext4/*/reserved_clusters`). The default is 2 % of the disk and at most 4096; 0 suits a disk that was made as large as
    /// its content.
    #[must_use]
    pub fn reserved_pool_max(mut self, blocks: u64) -> Self {
        self.options.reserved_pool_max = blocks;
        self
    }

    /// Whether damage that an operation meets stops all writing, as `errors=remount-ro` has it. Otherwise the superblock says.
    #[must_use]
    pub fn stop_on_damage(mut self, stop_on_damage: bool) -> Self {
        self.options.stop_on_damage = stop_on_damage;
        self
    }

    /// Has the limits of these types be in force, as `usrquota`, `grpquota` and `prjquota` have it. Usage is counted without them too. They
    /// apply to users' [views](Filesystem::as_user) but root's, and in a [`QuotaScope`](crate::QuotaScope); other callers may exceed them.
    #[must_use]
    pub fn enforce_quotas(mut self, quota_types: &[QuotaType]) -> Self {
        self.options.enforced_quotas = QuotaType::ALL.map(|quota_type| quota_types.contains(&quota_type));
        self
    }

    /// How long mounting what is on a device would wait, by its multiple-mount protection, to see whether another host uses it: not
    /// at all, or from 11 s to 6 minutes. The block may change before it is mounted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the place; [`Error::Io`].
    pub fn mmp_wait(&self, device: &dyn BlockDevice) -> Result<Duration> {
        if self.options.read_only { Ok(Duration::ZERO) } else { Volume::mmp_wait(device) }
    }

    /// Mounts an image file or a block special, locked for as long as it is mounted.
    ///
    /// # Errors
    /// [`Error::Device`] if it cannot be opened or is in use; else as [`Mount::open_device`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let access =
            if self.options.read_only { DeviceAccess::read_only() } else { DeviceAccess::read_write() };
        let device = FileDevice::open(path.as_ref(), access)?;
        self.open_device(device)
    }

    /// Mounts what is on a device.
    ///
    /// # Errors
    /// [`Error::Incompatible`] and [`Error::ReadOnlyFeatures`] name features; [`Error::Corrupt`] names the place; [`Error::Unsupported`] if
    /// limits are to be in force of a type that the disk does not count.
    pub fn open_device(self, device: impl BlockDevice + 'static) -> Result<Filesystem> {
        if self.options.no_recovery && !self.options.read_only {
            return Err(Error::InvalidArgument("without recovery a disk can only be read"));
        }
        let (volume, mounted) = Volume::mount(Arc::new(device), &self.options)?;
        Ok(Filesystem::new(volume, mounted))
    }
}

impl Mount {
    /// Makes the unmounted file system on a device as large as `bytes`, as a rule the device's size. Replays the journal first.
    /// A crash leaves the file system as it was or grown; on a disk without a journal it may damage it.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use extant::device::{BlockDevice, MemoryDevice};
    /// use extant::{Mount, mkfs::Mkfs};
    ///
    /// let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 30));
    /// Mkfs::new().bytes(64 << 20).format(&*device)?;
    /// let grown = Mount::new().grow_device(&device, device.size())?;
    /// assert_eq!((grown.from_bytes, grown.to_bytes), (64 << 20, 1 << 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mount::open_device`]; [`Error::OutOfRange`] for a size below that of the file system or above the device's;
    /// [`Error::Unsupported`] for one that the format cannot express. The file system is as it was then.
    pub fn grow_device(&self, device: &Arc<dyn BlockDevice>, bytes: u64) -> Result<Grown> {
        grow(device, &self.options, bytes)
    }

    /// Makes the unmounted file system on a device smaller: moves what lies behind the new end, then takes the end off. Replays the
    /// journal first. A crash leaves the file system whole, and as it was or smaller; call it again to complete. On a disk without a
    /// journal a crash may damage it. `report` is called after each move and says whether to go on.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use extant::device::{BlockDevice, MemoryDevice};
    /// use extant::{Mount, ShrinkTo, mkfs::Mkfs};
    ///
    /// let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    /// Mkfs::new().bytes(256 << 20).format(&*device)?;
    /// let shrunk = Mount::new().shrink_device(&device, ShrinkTo::Bytes(64 << 20), &mut |_| true)?;
    /// assert_eq!((shrunk.from_bytes, shrunk.to_bytes), (256 << 20, 64 << 20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Mount::open_device`]; [`Error::OutOfRange`] for a size above that of the file system or below what it needs;
    /// [`Error::Unsupported`] for what cannot be moved; [`Error::Interrupted`] if `report` says so. The file system is whole then.
    pub fn shrink_device(
        &self,
        device: &Arc<dyn BlockDevice>,
        to: ShrinkTo,
        report: &mut dyn FnMut(ShrinkProgress) -> bool,
    ) -> Result<Shrunk> {
        shrink(device, &self.options, to, report)
    }

    /// What [`Mount::shrink_device`] would do. Writes nothing.
    ///
    /// # Errors
    /// As [`Mount::shrink_device`].
    pub fn plan_shrink(&self, device: &Arc<dyn BlockDevice>, to: ShrinkTo) -> Result<ShrinkPlan> {
        plan(device, &self.options, to)
    }
}

/// How to open a file; made by [`Filesystem::options`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(super) fs: Filesystem,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
    pub(super) truncate: bool,
    pub(super) create: bool,
    pub(super) create_new: bool,
    pub(super) mode: u16,
}

impl OpenOptions {
    pub(super) fn new(fs: Filesystem) -> Self {
        Self {
            fs,
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o644,
        }
    }

    /// For reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// For writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Each write goes to the end.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Cut to nothing.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Made if missing.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Made, and an error if it exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// The permission bits of a file that is made; 0o644 by default.
    #[must_use]
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = mode;
        self
    }
}
