//! The content of a new disk, and the space that it takes.

use std::fs::File;
use std::path::{Path, PathBuf};

use extant::mkfs::{Error, Mkfs as Builder};
use extant::{Filesystem, Mount, Timestamp, Tuning};
use extant_archive::oci::Image;
use extant_archive::{
    Adjust, Census, DiskFormat, Entry, Extent, Import, Input, Listed, Manner, Mirror, Needs, Nothing, Sink,
    Source, TarReader, UserDatabase, Walk, pour_concurrently,
};
use extant_block::{BlockDevice, identity};
use extant_ondisk::Geometry;
use extant_rt::{Arc, HAS_THREADS, WallClock};

use crate::container_image::{ImageOptions, Opened, named, spool_directory};
use crate::disks::{fixed_time, fixed_times, mount, unmount};
use crate::failure::Failure;
use crate::host;
use crate::owner::names_on_host;
use crate::progress::{Progress, ProgressForm};
use crate::verbs::import::input;

use super::ownership::Ownership;

/// Bytes of a disk for each spare inode, as mke2fs counts.
const INODE_RATIO: u64 = 16384;

/// Inodes that every file system keeps for itself, lost+found among them.
const RESERVED_INODES: u64 = 11;

/// Metadata that is kept in memory. A tree is written in its order, so that more makes nothing faster.
const CACHE_BYTES: u64 = 32 << 20;

/// A directory, an archive or a container image, and what is changed in it.
pub struct Content {
    source: ContentSource,
    path: PathBuf,
    image: PathBuf,
    ownership: Ownership,
    newest: Option<Timestamp>,
}

enum ContentSource {
    /// Only what device tables have.
    None,
    /// With its entries, once it was walked.
    Directory(Option<Arc<Listed>>),
    /// An archive that can be read twice.
    Archive(File),
    Image(Arc<Image>),
}

impl Content {
    /// Opens it; without a path there is none. An archive that can be read once only, or is packed, is spooled to the directory
    /// of `image`, and so are a container image's layers. The image is to have `disk_bytes`, if that is known.
    pub fn open(
        path: Option<&Path>,
        image: &Path,
        disk_bytes: Option<u64>,
        options: &ImageOptions,
        (clock, form): (WallClock, ProgressForm),
    ) -> Result<Self, Failure> {
        let Some(path) = path else {
            options.refuse_without_image(Path::new("a disk without -d"))?;
            return Ok(Self::new(ContentSource::None, image, image, clock));
        };
        let source = if path.is_dir() {
            match options.in_directory(path, image, disk_bytes, form)? {
                Some(found) => ContentSource::Image(found),
                None => ContentSource::Directory(None),
            }
        } else {
            let archive = input(path)?;
            let file = if archive.is_plain_file() {
                File::open(path).map_err(|error| Failure::host(path, &error))?
            } else {
                let spooled = archive.spool(&spool_directory(image));
                spooled.map_err(|error| named(path, Failure::tree(image, error)))?
            };
            match options.in_archive(path, file, image, disk_bytes, form)? {
                Opened::Image(found) => ContentSource::Image(found),
                Opened::File(file) => ContentSource::Archive(file),
            }
        };
        match &source {
            ContentSource::Image(_) => {}
            _ => options.refuse_without_image(path)?,
        }
        Ok(Self::new(source, path, image, clock))
    }

    fn new(source: ContentSource, path: &Path, image: &Path, clock: WallClock) -> Self {
        let newest = fixed_time(clock);
        let (path, image) = (path.to_owned(), image.to_owned());
        Self { source, path, image, ownership: Ownership::default(), newest }
    }

    /// Changes owners.
    pub fn owned(self, ownership: Ownership) -> Self {
        Self { ownership, ..self }
    }

    /// What is poured, before owners are changed.
    fn unchanged(&self) -> Result<Box<dyn Source + Send>, Failure> {
        Ok(match &self.source {
            ContentSource::None => Box::new(Nothing),
            ContentSource::Directory(Some(listed)) => Box::new(listed.clone()),
            ContentSource::Directory(None) => Box::new(self.walk()),
            ContentSource::Archive(file) => {
                let file = host::second_handle(file, &self.path)
                    .map_err(|error| Failure::host(&self.path, &error))?;
                let input =
                    Input::file(file).map_err(|error| named(&self.path, Failure::tree(&self.path, error)))?;
                Box::new(TarReader::new(input).names(names_on_host()))
            }
            ContentSource::Image(image) => Box::new(image.clone()),
        })
    }

    /// The users and groups that the content itself knows.
    pub fn names(&self) -> Result<UserDatabase, Failure> {
        let names = UserDatabase::in_tree(&mut *self.unchanged()?);
        names.map_err(|error| named(&self.path, Failure::tree(&self.path, error)))
    }

    fn source(&self) -> Result<impl Source + Send + use<>, Failure> {
        let newest = self.newest;
        Ok(Adjust::new(self.ownership.apply(self.unchanged()?), move |entry: &mut Entry| {
            if let Some(newest) = newest {
                let attributes = &mut entry.attributes;
                attributes.mtime = attributes.mtime.min(newest);
                attributes.atime = attributes.atime.map(|atime| atime.min(newest));
            }
            Ok(())
        }))
    }

    /// The container image, if it is one.
    pub fn image(&self) -> Option<&Image> {
        if let ContentSource::Image(image) = &self.source { Some(image) } else { None }
    }

    /// The architecture of the container image, if it is one.
    pub fn architecture(&self) -> Option<String> {
        let config: serde_json::Value = serde_json::from_slice(self.image()?.config()).ok()?;
        config.get("architecture")?.as_str().map(str::to_owned)
    }

    fn walk(&self) -> Walk {
        let walk = Walk::new(&self.path);
        // The image may lie in the directory, and may not have been there when that was counted.
        match identity(&self.image) {
            Ok(image) => walk.exclude(image),
            Err(_) => walk,
        }
    }

    /// Walks a directory, so that its entries are known when it is counted and when it is read.
    fn list(&mut self) -> extant_archive::Result<()> {
        if let ContentSource::Directory(None) = self.source {
            self.source = ContentSource::Directory(self.walk().list()?.map(Arc::new));
        }
        Ok(())
    }

    /// Counts what it takes on a disk of this geometry.
    pub fn count(&mut self, geometry: &Geometry) -> Result<Room, Failure> {
        self.list().map_err(|error| named(&self.path, Failure::tree(&self.path, error)))?;
        let format = DiskFormat {
            block_size: geometry.block_size,
            cluster_size: geometry.block_size * geometry.cluster_ratio,
            inode_size: geometry.inode_size.into(),
        };
        let ratio = u64::from(geometry.cluster_ratio);
        let mut census = Census::new(format);
        let (mut verity_blocks, verity_files) = (0, self.ownership.verity_files.clone());
        let mut source = Adjust::new(self.source()?, |entry: &mut Entry| {
            // One of them may be of the extent tree, and has a cluster of its own.
            verity_blocks += match verity_files.blocks_of(entry)? {
                0 => 0,
                blocks => (blocks + ratio - 1).next_multiple_of(ratio),
            };
            Ok(())
        });
        let counted = source.pour(&mut census, Extent::Entries);
        drop(source);
        counted.map_err(|error| named(&self.path, Failure::tree(&self.path, error)))?;
        let needs = census.needs();
        Ok(Room {
            needs: Needs { blocks: needs.blocks + verity_blocks, ..needs },
            block_size: geometry.block_size.into(),
            content_bytes: census.content_bytes(),
            digest: census.digest(),
        })
    }

    /// Fills the new file system on `device`.
    pub fn fill(
        &self,
        image: &Path,
        device: Arc<dyn BlockDevice>,
        clock: WallClock,
        content_bytes: u64,
        form: ProgressForm,
    ) -> Result<(), Failure> {
        let manner = match self.source {
            ContentSource::Archive(_) => Manner::Layer,
            ContentSource::None | ContentSource::Directory(_) | ContentSource::Image(_) => Manner::Unpack,
        };
        // Where requests take time, the page cache writes with more of them in flight.
        let copies =
            HAS_THREADS && matches!(self.source, ContentSource::Directory(Some(_))) && !device.has_latency();
        let reader = if copies { Reader::Sink } else { Reader::Thread };
        self.pour((image, device.clone()), clock, reader, (Some(content_bytes), form), |fs| {
            let import = Import::new(fs, "/", manner, fixed_times(clock))?;
            if copies { import.copy_to(device) } else { Ok(import) }
        })
    }

    /// Makes the file system on `device` equal to it, to which a thread may copy the base meanwhile.
    pub fn mirror(
        &self,
        image: &Path,
        (device, is_copied_meanwhile): (Arc<dyn BlockDevice>, bool),
        clock: WallClock,
        form: ProgressForm,
    ) -> Result<(), Failure> {
        // A file that is compared where it was read is still in a cache of the CPU, and the copier takes another CPU meanwhile.
        let is_read_here = is_copied_meanwhile && matches!(self.source, ContentSource::Directory(_));
        let reader = if is_read_here { Reader::Sink } else { Reader::Thread };
        self.pour((image, device), clock, reader, (None, form), |fs| Mirror::new(fs, "/", fixed_times(clock)))
    }

    fn pour<S: Sink>(
        &self,
        (image, device): (&Path, Arc<dyn BlockDevice>),
        clock: WallClock,
        reader: Reader,
        (total_bytes, form): (Option<u64>, ProgressForm),
        sink: impl FnOnce(&Filesystem) -> extant_archive::Result<S>,
    ) -> Result<(), Failure> {
        // Without a thread in the background the same work gives the same journal.
        let options = Mount::new().clock(clock).background(false).tuning(Tuning::packed());
        // The disk may be just as large as its content.
        let fs = mount(image, device, options.cache_bytes(CACHE_BYTES).reserved_pool_max(0))?;
        let failed = |error| named(&self.path, Failure::tree(image, error));
        let mut sink = sink(&fs).map_err(failed)?;
        let mut progress = Progress::new(&mut sink, total_bytes, form);
        let mut source = self.source()?;
        let filled = match reader {
            Reader::Thread => pour_concurrently(source, &mut progress, Extent::Everything),
            Reader::Sink => source.pour(&mut progress, Extent::Everything),
        };
        drop(progress);
        drop(sink);
        filled.map_err(failed)?;
        self.ownership.verity_files.enable(&fs).map_err(failed)?;
        unmount(image, fs)
    }
}

/// What reads the content.
#[derive(Clone, Copy)]
enum Reader {
    /// A thread beside the one that writes the tree.
    Thread,
    /// The sink.
    Sink,
}

/// A UUID (version 8, RFC 9562) that follows from a digest; another one for each `number`.
pub fn uuid_of(digest: u128, number: u8) -> [u8; 16] {
    let mixed = (digest ^ u128::from(number)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    (mixed & !(0xf << 76 | 0x3 << 62) | 0x8 << 76 | 0x2 << 62).to_be_bytes()
}

/// Room that content takes, counted.
pub struct Room {
    needs: Needs,
    block_size: u64,
    /// Bytes of content, without holes.
    pub content_bytes: u64,
    digest: u128,
}

impl Room {
    /// Inodes for the content, and for `free_bytes` of files of the usual size.
    pub fn inodes_wanted(&self, free_bytes: u64) -> u32 {
        let count = self.needs.inodes + RESERVED_INODES + free_bytes / INODE_RATIO;
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// A UUID (version 8, RFC 9562) that follows from the content; another one for each `number`.
    pub fn uuid(&self, number: u8) -> [u8; 16] {
        uuid_of(self.digest, number)
    }

    /// Blocks of the smallest disk that `builder` makes which holds the content and `free_bytes` more.
    pub fn smallest(&self, builder: &Builder, free_bytes: u64) -> Result<u64, Error> {
        let wanted = self.needs.blocks + free_bytes.div_ceil(self.block_size);
        let fits = |blocks: u64| {
            let layout = builder.clone().blocks(blocks).plan(None)?;
            // Content may take what mounts keep for tree blocks; room for more is beside that.
            let pool = if free_bytes > 0 { layout.reserved_pool() } else { 0 };
            let usable = layout.free_blocks().saturating_sub(layout.superblock().r_blocks_count() + pool);
            Ok(usable >= wanted && u64::from(layout.free_inodes()) >= self.needs.inodes)
        };
        // Less than the content alone is too small; from there on in steps that grow, then closer in.
        let (mut low, mut high) = (wanted.max(1), wanted.saturating_mul(17) / 16 + 64);
        let mut too_small = None;
        loop {
            match fits(high) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error @ (Error::TooSmall(_) | Error::TooLarge(_))) if high < 1 << 20 => {
                    too_small = Some(error)
                }
                Err(error) => return Err(too_small.unwrap_or(error)),
            }
            low = high;
            high = high.saturating_mul(5) / 4;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                Ok(true) => high = middle,
                // What is too small for a layout at all is too small for the content.
                Ok(false) | Err(_) => low = middle,
            }
        }
        Ok(high)
    }
}
