//! `extant mkfs`.

mod content;
mod from;
mod gpt;
mod ownership;
mod target;
mod verity;

use std::path::PathBuf;

use clap::Args;
use extant::mkfs::{Error, Layout, Mkfs as Builder};
use extant_rt::WallClock;
use serde_json::json;

use super::Outcome;
use super::info::uuid_text;
use crate::container_image::ImageOptions;
use crate::disks::{ImageLocation, clock};
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::ProgressForm;
use crate::size;
pub use content::Content;
use content::Room;
use gpt::{GptOptions, Partitions};
use ownership::{OwnershipOptions, owner};
pub use target::{DiskFormat, Place, Target};
use verity::VerityOptions;

/// Sizes without a suffix count units of this many bytes, unless blocks were chosen.
const DEFAULT_UNIT_BYTES: u64 = 1024;

/// Make a file system, filled from a directory, an archive or a container image if wanted
///
/// The letters are those of mke2fs, the defaults those of Debian 12, but for blocks of 4 KiB on small disks too. With
/// -d and without SIZE the disk is as large as the content needs and --free adds; nothing is then reserved for root
/// unless -m says so. With SOURCE_DATE_EPOCH in the environment the same content gives the same bytes, and no file is
/// newer than that.
///
/// A container image is an OCI layout, as a directory or an archive, or what `docker save` writes. Its layers are merged
/// as they would be unpacked, and every digest is checked before the disk is touched. DIR/. means the directory itself.
///
/// With --gpt the image is a disk with a partition table, and SIZE is the size of that.
///
/// SIZE takes a unit: K, M, G, T, P, or KiB and so on, for powers of 1024, KB and so on for powers of 1000, with a
/// fraction if wanted; without one it counts KiB, or blocks with -b.
#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant mkfs disk.img 64M\n  extant mkfs -L root -d rootfs/ --free 64M disk.img\n  docker save web | extant mkfs -d - --free 64M disk.img\n  extant mkfs -d layout/ --image web:1.2 --platform linux/arm64 disk.img\n  extant mkfs --gpt=x86-64 --esp 64M -d rootfs/ --free 64M disk.img\n  extant mkfs -F -O ^has_journal -m 0 /dev/sdb1"
)]
pub struct Mkfs {
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Bytes of a block
    #[arg(short, value_name = "BYTES", value_parser = size::parse_bytes)]
    block_size: Option<u64>,
    /// Bytes of a cluster, with -O bigalloc
    #[arg(short = 'C', value_name = "BYTES", value_parser = size::parse_bytes)]
    cluster_size: Option<u64>,
    /// Bytes of the disk for each inode
    #[arg(short, value_name = "BYTES", value_parser = size::parse_bytes)]
    inode_ratio: Option<u64>,
    /// Bytes of an inode
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u16>,
    /// How many inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u32>,
    /// The share of blocks that only root may use, in percent
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved_percent: Option<f64>,
    /// The volume's name
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<std::ffi::OsString>,
    /// The UUID, or `clear` or `random`
    #[arg(short = 'U', value_name = "UUID")]
    uuid: Option<String>,
    /// Features to add, or with ^ to leave out
    #[arg(short = 'O', value_name = "FEATURES")]
    features: Vec<String>,
    /// Extended options
    #[arg(short = 'E', value_name = "OPTIONS")]
    extended: Vec<String>,
    /// The journal: size=MEGABYTES
    #[arg(short = 'J', value_name = "OPTIONS")]
    journal: Option<String>,
    /// What it is used for: default, small, news, largefile, ...
    #[arg(short = 'T', value_name = "USAGE")]
    usage: Option<String>,
    /// Groups whose bitmaps and inode tables lie together
    #[arg(short = 'G', value_name = "COUNT")]
    groups_per_flex: Option<u32>,
    /// The directory where it was last mounted
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<std::ffi::OsString>,
    /// The type of file system, which can only be ext4
    #[arg(short = 't', value_name = "TYPE", value_parser = ["ext4"])]
    fs_type: Option<String>,
    /// Overwrite a file system, a partition table or a disk image
    #[arg(short = 'F', action = clap::ArgAction::Count)]
    force: u8,
    /// Only say what would be made
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say nothing
    #[arg(short)]
    quiet: bool,
    /// Print what was made as JSON, and events of progress to standard error
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Fill it from this directory, tar archive or container image; `-` is an archive on standard input
    #[arg(short = 'd', value_name = "DIR|TAR|-")]
    content: Option<PathBuf>,
    /// Begin with a copy of this image, which shares its blocks where the host can, and change only what -d has otherwise
    #[arg(long, value_name = "IMAGE", conflicts_with_all = [
        "block_size", "cluster_size", "inode_ratio", "inode_size", "inodes", "reserved_percent", "label", "uuid", "features", "extended", "journal",
        "usage", "groups_per_flex", "last_mounted", "dry_run", "free", "verity", "size", "format",
    ])]
    from: Option<PathBuf>,
    /// Make a new image of this format; without it a file that is a qcow2 image already stays one
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["offset", "partition"])]
    format: Option<DiskFormat>,
    /// Room beyond the content, where the size follows from that
    #[arg(long, value_name = "BYTES", value_parser = size::parse_bytes)]
    free: Option<u64>,
    #[command(flatten)]
    ownership: OwnershipOptions,
    #[command(flatten)]
    image_options: ImageOptions,
    #[command(flatten)]
    verity: VerityOptions,
    #[command(flatten)]
    gpt: GptOptions,
    #[command(flatten)]
    location: ImageLocation,
    /// The image file, made if it does not exist, or a block device
    image: PathBuf,
    /// How large it is to be: 64M, 1.5G; without a unit in KiB, or in blocks with -b
    size: Option<String>,
}

impl Mkfs {
    /// Makes it.
    pub fn run(self) -> Outcome {
        let clock = clock()?;
        if let Some(base) = &self.from {
            return self.copy(base, clock);
        }
        let mut builder = self.builder(clock)?;
        let mut bytes = self.size_bytes()?;
        let may_resize = self.place().may_resize();
        self.verity.check_target(may_resize)?;
        self.gpt.check_target(may_resize)?;
        self.ownership.check_content(self.content.is_some())?;
        let has_content = self.content.is_some() || self.ownership.has_files();
        let follows_content = has_content && bytes.is_none() && may_resize;
        if self.free.is_some() && !follows_content {
            return Err(Failure::usage(
                "--free is for image files whose size follows from their content (-d)",
            ));
        }
        let mut content = None;
        if has_content {
            let disk_bytes = match bytes {
                None if !may_resize => self.existing_bytes()?,
                bytes => bytes,
            };
            let mut source = self.open_content(disk_bytes, clock)?;
            let geometry = self.plan(&builder, Some(1 << 32))?.geometry().clone();
            self.ownership.check_geometry(&geometry)?;
            let room = source.count(&geometry)?;
            builder = self.identified(builder, &room, clock);
            builder = self.with_inodes_for(builder, &room);
            if follows_content {
                let blocks =
                    room.smallest(&builder, self.free.unwrap_or(0)).map_err(|error| self.failed(&error))?;
                builder = builder.blocks(blocks);
                bytes = Some(blocks * u64::from(geometry.block_size));
            }
            content = Some((source, room));
        }
        let device_bytes = bytes.map_or_else(|| self.existing_bytes(), |bytes| Ok(Some(bytes)))?;
        if let Some(bytes) = bytes.or(device_bytes.filter(|_| self.verity.is_wanted())) {
            builder = builder.bytes(bytes);
        }
        if self.dry_run {
            let layout = self.plan(&builder, device_bytes)?;
            let partitions = self.gpt.partitions(&layout, content.as_ref().map(|(source, _)| source));
            return self.describe(&layout, None, partitions.as_ref());
        }
        if device_bytes.is_some() {
            // What cannot be made is not to cost what is there.
            self.plan(&builder, device_bytes)?;
        }
        let bytes = if self.verity.is_wanted() {
            Some(verity::bytes_with_tree(&self.plan(&builder, device_bytes)?))
        } else {
            bytes
        };
        let target = self.open_target(bytes, device_bytes)?;
        let layout = builder.format(target.device()).map_err(|error| self.failed(&error))?;
        let partitions = self.gpt.partitions(&layout, content.as_ref().map(|(source, _)| source));
        partitions.as_ref().map_or(Ok(()), |partitions| partitions.write(&self.image, target.whole()))?;
        if let Some((source, room)) = content {
            source.fill(&self.image, target.shared(), clock, room.content_bytes, self.form())?;
            source.image().map_or(Ok(()), |image| self.image_options.write_config(image))?;
        }
        let tree = self.verity.write(&self.image, target.device(), &layout)?;
        target.keep();
        self.describe(&layout, tree.as_ref(), partitions.as_ref())
    }

    /// Opens what the file system is made on: `bytes`, or as many as there are.
    fn open_target(&self, bytes: Option<u64>, device_bytes: Option<u64>) -> Result<Target, Failure> {
        let (frame, force) = (self.gpt.frame(), self.force > 0);
        let Some((frame, part_bytes)) = frame.zip(device_bytes) else {
            return Target::open(self.place(), bytes, force);
        };
        let disk_bytes = self.disk_bytes()?.or(bytes.map(|bytes| frame.disk_bytes(bytes)));
        let target = Target::open(self.place(), disk_bytes, force)?;
        target.narrow(&self.image, frame.offset(), part_bytes)
    }

    /// Where it is made.
    fn place(&self) -> Place<'_> {
        Place { image: &self.image, location: self.location, format: self.format }
    }

    fn form(&self) -> ProgressForm {
        ProgressForm::new(self.json, self.quiet)
    }

    /// What a disk of `disk_bytes` is filled with.
    fn open_content(&self, disk_bytes: Option<u64>, clock: WallClock) -> Result<Content, Failure> {
        let form = (clock, self.form());
        let path = self.content.as_deref();
        let content = Content::open(path, &self.image, disk_bytes, &self.image_options, form)?;
        let ownership = self.ownership.read(self.root_owner(), || content.names(), clock)?;
        Ok(content.owned(ownership))
    }

    /// What the letters say.
    fn builder(&self, clock: WallClock) -> Result<Builder, Failure> {
        let builder = self.with_numbers(Builder::new().clock(clock))?;
        self.with_words(builder).map_err(|error| self.failed(&error))
    }

    fn with_words(&self, mut builder: Builder) -> Result<Builder, Error> {
        if let Some(label) = &self.label {
            builder = builder.label(label.as_encoded_bytes())?;
        }
        if let Some(directory) = &self.last_mounted {
            builder = builder.last_mounted(directory.as_encoded_bytes())?;
        }
        match self.uuid.as_deref() {
            None | Some("random") => {}
            Some("clear") => {
                builder = builder.uuid([0; 16]);
            }
            Some(uuid) => {
                builder = builder.uuid_text(uuid)?;
            }
        }
        if self.ownership.has_verity_files() {
            builder = builder.features("verity")?;
        }
        for words in &self.features {
            builder = builder.features(words)?;
        }
        for words in &self.extended {
            builder = builder.extended(words)?;
        }
        Ok(builder)
    }

    fn with_numbers(&self, mut builder: Builder) -> Result<Builder, Failure> {
        let narrow = |what: &str, value: u64| {
            u32::try_from(value).map_err(|_| Failure::usage(format!("invalid {what}: '{value}'")))
        };
        if let Some(usage) = &self.usage {
            builder = builder.usage(usage).map_err(|error| self.failed(&error))?;
        }
        if let Some(bytes) = self.block_size {
            builder = builder.block_size(narrow("block size", bytes)?);
        }
        if let Some(bytes) = self.cluster_size {
            builder = builder.cluster_size(narrow("cluster size", bytes)?);
        }
        if let Some(bytes) = self.inode_ratio {
            builder = builder.inode_ratio(narrow("inode ratio", bytes)?);
        }
        if let Some(bytes) = self.inode_size {
            builder = builder.inode_size(bytes);
        }
        if let Some(count) = self.inodes {
            builder = builder.inodes(count);
        }
        if let Some(percent) = self.reserved_percent {
            builder = builder.reserved_percent(percent);
        }
        if let Some(groups) = self.groups_per_flex {
            builder = builder.groups_per_flex(groups);
        }
        for word in self.journal.iter().flat_map(|words| words.split(',')) {
            let Some(text) = word.strip_prefix("size=") else {
                return Err(Failure::usage(format!("unknown or unsupported journal option '{word}'")));
            };
            let bytes = size::parse(text, 1 << 20).map_err(|error| Failure::usage(format!("-J {error}")))?;
            builder = builder.journal_megabytes(narrow("journal size", bytes >> 20)?);
        }
        Ok(builder)
    }

    /// How large the file system is to be, where that was said.
    fn size_bytes(&self) -> Result<Option<u64>, Failure> {
        self.disk_bytes()?.map(|bytes| self.gpt.file_system_bytes(&self.image, bytes)).transpose()
    }

    /// The size of what is there, for the file system.
    fn existing_bytes(&self) -> Result<Option<u64>, Failure> {
        let bytes = self.place().existing_bytes();
        bytes.map(|bytes| self.gpt.file_system_bytes(&self.image, bytes)).transpose()
    }

    fn disk_bytes(&self) -> Result<Option<u64>, Failure> {
        let unit = self.block_size.unwrap_or(DEFAULT_UNIT_BYTES);
        let bytes = self.size.as_ref().map(|text| size::parse(text, unit)).transpose();
        match bytes.map_err(Failure::usage)? {
            Some(0) => Err(Failure::usage("SIZE is 0; say how large the disk is to be, as in 64M")),
            bytes => Ok(bytes),
        }
    }

    /// The owner of the root directory, if the extended options name one.
    fn root_owner(&self) -> Option<(u32, u32)> {
        let words = self.extended.iter().flat_map(|words| words.split(','));
        words.filter_map(|word| owner(word.strip_prefix("root_owner=")?).ok()).next_back()
    }

    /// With a fixed clock, the same content gives the same UUID and directory hashes, other content others.
    fn identified(&self, mut builder: Builder, room: &Room, clock: WallClock) -> Builder {
        if clock == WallClock::System {
            return builder;
        }
        if self.uuid.is_none() {
            builder = builder.uuid(room.uuid(0));
        }
        if !self.extended.iter().any(|words| words.contains("hash_seed=")) {
            builder = builder.hash_seed(room.uuid(1));
        }
        builder
    }

    /// Sees to it that there are inodes enough, and that no more is reserved than was asked for.
    fn with_inodes_for(&self, mut builder: Builder, room: &Room) -> Builder {
        let is_sized = self.size.is_some() || !self.place().may_resize();
        if !is_sized && self.reserved_percent.is_none() {
            builder = builder.reserved_percent(0.0);
        }
        if self.inodes.is_some() || self.inode_ratio.is_some() || self.usage.is_some() {
            return builder;
        }
        let wanted = room.inodes_wanted(self.free.unwrap_or(0));
        let default = if is_sized {
            let bytes = self.size_bytes().ok().flatten();
            let bytes = bytes.or_else(|| self.existing_bytes().ok().flatten());
            builder.plan(bytes).map_or(0, |layout| layout.geometry().inodes_count)
        } else {
            0
        };
        if wanted > default {
            builder = builder.inodes(wanted);
        }
        builder
    }

    fn plan(&self, builder: &Builder, bytes: Option<u64>) -> Result<Layout, Failure> {
        builder.plan(bytes).map_err(|error| match (bytes, error) {
            (None, Error::Conflict(_)) => {
                Failure::usage(format!("{} does not exist; say how large it is to be", self.image.display()))
            }
            (_, error) => self.failed(&error),
        })
    }

    fn failed(&self, error: &Error) -> Failure {
        let kind = match error {
            Error::Io { .. } => "io",
            Error::TooSmall(_) => "too_small",
            Error::TooLarge(_) => "too_large",
            Error::UnknownFeature(_)
            | Error::UnsupportedFeature(_)
            | Error::UnknownOption(_)
            | Error::Invalid { .. }
            | Error::Conflict(_) => return Failure::usage(error.to_string()),
            _ => "failed",
        };
        Failure::new(kind, self.image.display().to_string(), error.to_string())
    }

    /// Says what was or would be made.
    fn describe(
        &self,
        layout: &Layout,
        tree: Option<&verity::Written>,
        partitions: Option<&Partitions>,
    ) -> Outcome {
        let (geometry, superblock) = (layout.geometry(), layout.superblock());
        let block = u64::from(geometry.block_size);
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": self.image.display().to_string(),
                "is_made": !self.dry_run,
                "size_bytes": geometry.blocks_count * block,
                "block_size_bytes": block,
                "inodes": geometry.inodes_count,
                "journal_bytes": layout.journal_blocks() * block,
                "uuid": uuid_text(superblock.s_uuid()),
                "verity": tree.map(verity::Written::document),
                "gpt": partitions.map(Partitions::document),
            }))?;
            output.finish()?;
            return Ok(0);
        }
        if self.quiet && !self.dry_run {
            return Ok(0);
        }
        let prefix = if self.dry_run { "would make " } else { "" };
        let journal = match layout.journal_blocks() {
            0 => "no journal".to_owned(),
            blocks => format!("journal of {}", size::show(blocks * block)),
        };
        output.line(format!(
            "{prefix}{}: {} ({} blocks of {block}), {} inodes, {}, UUID {}",
            self.image.display(),
            size::show(geometry.blocks_count * block),
            geometry.blocks_count,
            geometry.inodes_count,
            journal,
            uuid_text(superblock.s_uuid()),
        ))?;
        tree.map_or(Ok(()), |tree| tree.describe(&mut output))?;
        partitions.map_or(Ok(()), |partitions| partitions.describe(&mut output))?;
        output.finish()?;
        Ok(0)
    }
}
