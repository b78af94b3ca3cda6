//! Making file systems: the builder [`Mkfs`], laid out as Debian 12's `mke2fs` (e2fsprogs 1.47.0) does.
//!
//! Leaves out: external journals, encryption and case folding, refused by name; files other than
//! the root directory and lost+found.
//!
//! A plan is made first, without a device: sizes, then the places of all metadata, then the few files. Writing it
//! touches only what must hold bytes, so that a sparse image stays sparse. The primary superblock comes last: a
//! device on which the writing was interrupted holds no file system.
//!
//! Tests: `tests/mkfs.rs`, against `mke2fs`, `dumpe2fs`, `e2fsck` and the kernel.

mod error;
mod extended;
mod features;
mod files;
mod identity;
mod inodes;
mod layout;
mod quotas;
mod sizes;
mod space;
mod tables;
mod write;

use extant_block::BlockDevice;
use extant_rt::WallClock;

pub use error::{Error, Result};
pub use layout::Layout;
pub(crate) use space::Space;
pub(crate) use tables::place_from;
#[cfg(feature = "tune")]
pub(crate) use {
    extended::parse_uuid,
    files::ORPHAN_FILE_BLOCKS,
    identity::{random_uuid, time_uuid},
    inodes::empty_log,
    sizes::{default_fast_commit_blocks, default_journal_blocks},
};

use extended::Extended;
use features::Features;

/// Makes a file system; a builder in the manner of [`std::fs::OpenOptions`].
///
/// ```
/// use extant::{device::MemoryDevice, mkfs::Mkfs};
/// # fn main() -> Result<(), extant::mkfs::Error> {
/// let device = MemoryDevice::new(64 << 20);
/// let layout = Mkfs::new().label(b"scratch")?.features("^has_journal")?.format(&device)?;
/// assert_eq!(layout.geometry().blocks_count, 16384);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mkfs {
    block_size: u32,
    cluster_size: Option<u32>,
    blocks: Option<u64>,
    bytes: Option<u64>,
    inode_size: u16,
    inode_ratio: Option<u32>,
    inodes: Option<u32>,
    reserved_percent: f64,
    label: [u8; 16],
    last_mounted: [u8; 64],
    uuid: Option<[u8; 16]>,
    hash_seed: Option<[u8; 16]>,
    features: Features,
    extended: Extended,
    journal_megabytes: Option<u32>,
    journal_blocks: Option<u32>,
    groups_per_flex: Option<u32>,
    clock: WallClock,
}

impl Default for Mkfs {
    fn default() -> Self {
        Self::new()
    }
}

impl Mkfs {
    /// The defaults: 4 KiB blocks, the whole device, an inode of 256 bytes for each 16 KiB, 5 % reserved, a journal.
    #[must_use]
    pub fn new() -> Self {
        Self {
            block_size: 4096,
            cluster_size: None,
            blocks: None,
            bytes: None,
            inode_size: 256,
            inode_ratio: None,
            inodes: None,
            reserved_percent: 5.0,
            label: [0; 16],
            last_mounted: [0; 64],
            uuid: None,
            hash_seed: None,
            features: Features::default(),
            extended: Extended::default(),
            journal_megabytes: None,
            journal_blocks: None,
            groups_per_flex: None,
            clock: WallClock::System,
        }
    }

    /// Bytes of a block: a power of two from 1024 to 65536. (`-b`)
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = bytes;
        self
    }

    /// Bytes of a cluster, with the feature `bigalloc`: a power of two, larger than a block; else 16 blocks. (`-C`)
    #[must_use]
    pub fn cluster_size(mut self, bytes: u32) -> Self {
        self.cluster_size = Some(bytes);
        self
    }

    /// The size in blocks, instead of the whole device.
    #[must_use]
    pub fn blocks(mut self, blocks: u64) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// The size in bytes, rounded down to blocks, instead of the whole device.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Bytes of an inode: a power of two from 128 to the block size. (`-I`)
    #[must_use]
    pub fn inode_size(mut self, bytes: u16) -> Self {
        self.inode_size = bytes;
        self
    }

    /// Bytes of the disk for each inode. (`-i`)
    #[must_use]
    pub fn inode_ratio(mut self, bytes: u32) -> Self {
        self.inode_ratio = Some(bytes);
        self
    }

    /// How many inodes at least, instead of a ratio. (`-N`)
    #[must_use]
    pub fn inodes(mut self, count: u32) -> Self {
        self.inodes = Some(count);
        self
    }

    /// The share of blocks, in percent up to 50, that only privileged users may take. (`-m`)
    #[must_use]
    pub fn reserved_percent(mut self, percent: f64) -> Self {
        self.reserved_percent = percent;
        self
    }

    /// The volume's name. (`-L`)
    ///
    /// # Errors
    /// `Invalid` if it has more than 16 bytes.
    pub fn label(mut self, label: &[u8]) -> Result<Self> {
        self.label = padded("label", label)?;
        Ok(self)
    }

    /// The directory where it was last mounted. (`-M`)
    ///
    /// # Errors
    /// `Invalid` if it has more than 64 bytes.
    pub fn last_mounted(mut self, directory: &[u8]) -> Result<Self> {
        self.last_mounted = padded("last mounted directory", directory)?;
        Ok(self)
    }

    /// The UUID, instead of a random one. (`-U`)
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// The UUID in its usual text form. (`-U`)
    ///
    /// # Errors
    /// `Invalid` if it is none.
    pub fn uuid_text(mut self, uuid: &str) -> Result<Self> {
        self.uuid = Some(extended::parse_uuid(uuid)?);
        Ok(self)
    }

    /// The seed of directory hashes, instead of a random one. (`-E hash_seed`)
    #[must_use]
    pub fn hash_seed(mut self, seed: [u8; 16]) -> Self {
        self.hash_seed = Some(seed);
        self
    }

    /// Adds features and removes those after `^`, by name, separated by commas; `none` removes all. (`-O`)
    ///
    /// # Errors
    /// `UnknownFeature` and `UnsupportedFeature`.
    pub fn features(mut self, words: &str) -> Result<Self> {
        self.features.edit(words)?;
        Ok(self)
    }

    /// Extended options, separated by commas; set the block size before. (`-E`)
    ///
    /// # Errors
    /// `UnknownOption` and `Invalid`.
    pub fn extended(mut self, words: &str) -> Result<Self> {
        if let Some(seed) = self.extended.edit(words, self.block_size)? {
            self.hash_seed = Some(seed);
        }
        Ok(self)
    }

    /// The inode ratio, and for small disks the block size, of a usage type of `mke2fs.conf`; a block size or ratio
    /// that is set afterwards prevails. (`-T`)
    ///
    /// # Errors
    /// `Invalid` if there is no such type.
    pub fn usage(mut self, name: &str) -> Result<Self> {
        let (block_size, ratio) = match name {
            "default" => (None, 16384),
            "floppy" => (Some(1024), 8192),
            "small" => (Some(1024), 4096),
            "big" => (None, 32768),
            "huge" => (None, 65536),
            "news" => (None, 4096),
            "largefile" => (None, 1 << 20),
            "largefile4" => (None, 4 << 20),
            _ => return Err(Error::invalid("usage type", name)),
        };
        self.block_size = block_size.unwrap_or(self.block_size);
        self.inode_ratio = Some(ratio);
        Ok(self)
    }

    /// The size of the journal in MiB. (`-J size`)
    #[must_use]
    pub fn journal_megabytes(mut self, megabytes: u32) -> Self {
        self.journal_megabytes = Some(megabytes);
        self
    }

    /// The size of the journal in blocks.
    #[must_use]
    pub fn journal_blocks(mut self, blocks: u32) -> Self {
        self.journal_blocks = Some(blocks);
        self
    }

    /// Groups whose bitmaps and inode tables lie together: a power of two. (`-G`)
    #[must_use]
    pub fn groups_per_flex(mut self, groups: u32) -> Self {
        self.groups_per_flex = Some(groups);
        self
    }

    /// Where times come from. With a fixed clock the same options give the same bytes: what would be random follows
    /// from them.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// The layout on a device of `device_bytes`, or of the size that was set. Writes nothing.
    ///
    /// # Errors
    /// Whatever forbids the layout.
    pub fn plan(&self, device_bytes: Option<u64>) -> Result<Layout> {
        Layout::new(self, device_bytes)
    }

    /// Makes the file system. The device's content is lost, but overwritten only where the file system needs it.
    ///
    /// # Errors
    /// As [`Mkfs::plan`], before anything is written; then `Io`, after which the device holds no file system.
    pub fn format(&self, device: &dyn BlockDevice) -> Result<Layout> {
        let mut layout = self.plan(Some(device.size()))?;
        write::write(&mut layout, self, device)?;
        Ok(layout)
    }
}

fn padded<const N: usize>(what: &'static str, text: &[u8]) -> Result<[u8; N]> {
    let mut field = [0; N];
    field
        .get_mut(..text.len())
        .ok_or_else(|| Error::invalid(what, String::from_utf8_lossy(text)))?
        .copy_from_slice(text);
    Ok(field)
}
