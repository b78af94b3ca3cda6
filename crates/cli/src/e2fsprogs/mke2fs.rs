//! `mke2fs` and `mkfs.ext2`, `mkfs.ext3`, `mkfs.ext4`.
//!
//! Sizes and features are those that Debian 12's `mke2fs.conf` chooses; no configuration is read. As mke2fs does and unlike
//! `extant mkfs`, it overwrites a file system without being asked to if it has no terminal to ask at, leaves a file as long
//! as it is, and gives the root directory mode 755 and the owner of `-E root_owner`, 0:0 by default.

mod target;
mod told;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant::mkfs::Mkfs as Builder;
use extant::{Mount, SetAttributes};
use extant_block::BlockDevice;
use extant_rt::{Arc, WallClock};

use super::letters::Letters;
use super::usage_types::{by_size, chosen, features};
use super::{Call, RELEASE};
use crate::container_image::ImageOptions;
use crate::disks::{ImageLocation, clock, mount, unmount};
use crate::failure::Failure;
use crate::progress::ProgressForm;
use crate::size;
use crate::verbs::{Content, Outcome};

const SERVED: &str = "b:C:d:DE:FG:i:I:jJ:KL:m:M:nN:o:O:qr:St:T:U:vV";
const REFUSED: &str = "cegslRz";
/// A number without a unit counts so many bytes, unless blocks were chosen.
const UNIT_BYTES: u64 = 1024;
const LABEL_BYTES_MAX: usize = 16;
/// Blocks of a cluster if no size was chosen.
const CLUSTER_RATIO: u32 = 16;
/// The environment variable with which builders fix the clock of e2fsprogs.
const FAKE_TIME: &str = "E2FSPROGS_FAKE_TIME";

/// Makes a file system.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, SERVED, REFUSED)?;
    if letters.has('V') || !letters.has('q') {
        call.banner("mke2fs");
    }
    if letters.has('V') {
        eprintln!("\tUsing EXT2FS Library version {RELEASE}");
        return Ok(0);
    }
    if std::env::var_os("MKE2FS_CONFIG").is_some() {
        return Err(Failure::usage(
            "MKE2FS_CONFIG is set, but no configuration is read here; say it in letters",
        ));
    }
    Order::read(call, &letters)?.make()
}

/// What is to be made.
struct Order<'a> {
    call: &'a Call<'a>,
    letters: &'a Letters,
    image: PathBuf,
    location: ImageLocation,
    /// The size that was asked for.
    bytes: Option<u64>,
    root_owner: (u32, u32),
    /// Extended options for the engine.
    extended: Vec<String>,
    clock: WallClock,
}

impl<'a> Order<'a> {
    fn read(call: &'a Call, letters: &'a Letters) -> Result<Self, Failure> {
        let (image, size) = match letters.places.as_slice() {
            [image] => (PathBuf::from(image), None),
            [image, size] => (PathBuf::from(image), Some(size)),
            _ => return Err(Failure::usage(format!("usage: {} [letters] device [size]", call.name))),
        };
        for (letter, only) in [('o', "linux"), ('r', "1")] {
            if let Some(other) = letters.text(letter)?.filter(|text| !text.eq_ignore_ascii_case(only)) {
                return Err(Failure::usage(format!(
                    "-{letter} {other} is not served by Extant; -{letter} {only} is"
                )));
            }
        }
        if letters.has('S') {
            return Err(Failure::usage("-S is not served by Extant; mke2fs of e2fsprogs has it"));
        }
        let unit = bytes_of(letters, 'b')?.map_or(UNIT_BYTES, u64::from);
        let bytes = size
            .map(|text| size::parse(&text.to_string_lossy(), unit).map_err(Failure::usage))
            .transpose()?;
        let mut order = Self {
            call,
            letters,
            image,
            location: ImageLocation::default(),
            bytes,
            root_owner: (0, 0),
            extended: Vec::new(),
            clock: fake_clock()?.map_or_else(clock, Ok)?,
        };
        order.read_extended()?;
        Ok(order)
    }

    fn read_extended(&mut self) -> Result<(), Failure> {
        for word in self.letters.texts('E')?.into_iter().flat_map(|words| words.split(',')) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "offset" => self.location.offset = Some(size::parse_bytes(value).map_err(Failure::usage)?),
                "root_owner" => {
                    self.root_owner = match value.split_once(':') {
                        None if value.is_empty() => {
                            (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
                        }
                        owner => owner
                            .and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)))
                            .ok_or_else(|| Failure::usage(format!("invalid root_owner: '{value}'")))?,
                    };
                }
                _ => self.extended.push(word.to_owned()),
            }
        }
        Ok(())
    }

    fn make(&self) -> Outcome {
        let device_bytes = target::existing_bytes(&self.image, self.location);
        let Some(bytes) = self.bytes.or(device_bytes) else {
            let image = self.image.display();
            return Err(Failure::usage(format!(
                "The file {image} does not exist and no size was specified."
            )));
        };
        let builder = self.builder(bytes)?;
        let failed = |error: &extant::mkfs::Error| {
            Failure::new("failed", self.image.display().to_string(), error.to_string())
        };
        // What cannot be made is not to cost what is there.
        let layout = builder.plan(Some(bytes)).map_err(|error| failed(&error))?;
        let told = told::Told::new(self.letters.has('q'));
        if self.letters.has('n') {
            told.layout(&layout);
            return Ok(0);
        }
        let mut content = self.letters.path('d').map(|path| self.open_content(path, bytes)).transpose()?;
        let room = content.as_mut().map(|content| content.count(layout.geometry())).transpose()?;
        if !self.image.exists() {
            told.line(&format!("Creating regular file {}", self.image.display()));
        }
        let target = target::open(&self.image, self.location, self.bytes, self.letters.has('F'))?;
        told.layout(&layout);
        builder.format(target.device()).map_err(|error| failed(&error))?;
        told.tables(&layout);
        if let Some((content, room)) = content.zip(room) {
            let form = ProgressForm::new(false, true);
            content.fill(&self.image, target.shared(), self.clock, room.content_bytes, form)?;
            self.set_root(target.shared())?;
            told.line("Copying files into the device: done");
        }
        target.keep();
        told.end();
        Ok(0)
    }

    fn open_content(&self, path: &Path, bytes: u64) -> Result<Content, Failure> {
        if !path.is_dir() {
            return Err(Failure::new("not_a_directory", path.display().to_string(), "is not a directory"));
        }
        // Whatever is in it: the directory itself, not a container image that it may be.
        let directory = path.join(".");
        let form = (self.clock, ProgressForm::new(false, true));
        Content::open(Some(&directory), &self.image, Some(bytes), &ImageOptions::default(), form)
    }

    /// Gives the root directory the attributes that mke2fs gives it, whatever those of the source are.
    fn set_root(&self, device: Arc<dyn BlockDevice>) -> Result<(), Failure> {
        let fs = mount(&self.image, device, Mount::new().clock(self.clock).background(false))?;
        let (uid, gid) = self.root_owner;
        let (seconds, nanoseconds) = self.clock.now();
        let attributes = SetAttributes {
            mode: Some(0o755),
            uid: Some(uid),
            gid: Some(gid),
            mtime: Some(extant::Timestamp { seconds, nanoseconds }),
            ..SetAttributes::default()
        };
        let set = fs.lookup("/").and_then(|root| root.set_attributes(&attributes));
        set.map_err(|error| Failure::disk(self.image.display(), &error))?;
        unmount(&self.image, fs)
    }

    /// What the letters say of a disk of so many bytes.
    fn builder(&self, bytes: u64) -> Result<Builder, Failure> {
        let letters = self.letters;
        let usage = letters.text('T')?.unwrap_or(by_size(bytes));
        let (chosen, unknown) = chosen(usage);
        for name in unknown {
            eprintln!("\nWarning: the fs_type {name} is not defined in mke2fs.conf\n");
        }
        let block_size = bytes_of(letters, 'b')?.unwrap_or(chosen.block_size);
        let cluster_size = bytes_of(letters, 'C')?;
        let mut builder = Builder::new().clock(self.clock).block_size(block_size);
        // A file has a block at least, and with bigalloc a cluster.
        let has_clusters =
            letters.texts('O')?.into_iter().flat_map(|words| words.split(',')).any(|word| word == "bigalloc");
        let default = if has_clusters { block_size.saturating_mul(CLUSTER_RATIO) } else { block_size };
        let least = cluster_size.unwrap_or(default);
        builder = builder.inode_ratio(bytes_of(letters, 'i')?.unwrap_or(chosen.inode_ratio.max(least)));
        if let Some(bytes) = cluster_size {
            builder = builder.cluster_size(bytes);
        }
        if let Some(bytes) = letters.number('I')? {
            builder = builder.inode_size(bytes);
        }
        if let Some(count) = letters.number('N')? {
            builder = builder.inodes(count);
        }
        if let Some(percent) = letters.number('m')? {
            builder = builder.reserved_percent(percent);
        }
        if let Some(groups) = letters.number('G')? {
            builder = builder.groups_per_flex(groups);
        }
        for word in letters.texts('J')?.into_iter().flat_map(|words| words.split(',')) {
            let megabytes = word.strip_prefix("size=").and_then(|text| text.parse().ok());
            builder = builder.journal_megabytes(megabytes.ok_or_else(|| {
                Failure::usage(format!("journal option '{word}' is not served by Extant; size=MEGABYTES is"))
            })?);
        }
        if let Some(bytes) = self.bytes {
            builder = builder.bytes(bytes);
        }
        self.with_words(builder)
            .map_err(|failure| failure.unwrap_or_else(|error| Failure::usage(error.to_string())))
    }

    fn with_words(&self, mut builder: Builder) -> Result<Builder, Result<Failure, extant::mkfs::Error>> {
        let letters = self.letters;
        let fs_type = self.fs_type().map_err(Ok)?;
        builder = builder.features(&features(fs_type).map_err(Ok)?).map_err(Err)?;
        if letters.has('j') || letters.has('J') {
            builder = builder.features("has_journal").map_err(Err)?;
        }
        for words in letters.texts('O').map_err(Ok)? {
            builder = builder.features(words).map_err(Err)?;
        }
        if !letters.has('K') {
            builder = builder.extended("discard").map_err(Err)?;
        }
        let (uid, gid) = self.root_owner;
        builder = builder.extended(&format!("root_owner={uid}:{gid}")).map_err(Err)?;
        for word in &self.extended {
            builder = builder.extended(word).map_err(Err)?;
        }
        if let Some(label) = letters.value('L') {
            builder = builder.label(truncated_label(self.call, label).as_bytes()).map_err(Err)?;
        }
        if let Some(directory) = letters.value('M') {
            builder = builder.last_mounted(directory.as_bytes()).map_err(Err)?;
        }
        match letters.text('U').map_err(Ok)? {
            None | Some("random") => {}
            Some("clear") => builder = builder.uuid([0; 16]),
            Some(uuid) => builder = builder.uuid_text(uuid).map_err(Err)?,
        }
        Ok(builder)
    }

    /// The type that was asked for, that of the program's name, or ext2, with a journal ext3.
    fn fs_type(&self) -> Result<&'a str, Failure> {
        let named = self.call.name.strip_prefix("mkfs.");
        let default = if self.letters.has('j') || self.letters.has('J') { "ext3" } else { "ext2" };
        Ok(self.letters.text('t')?.or(named).unwrap_or(default))
    }
}

/// A label as e2fsprogs cut it off, with a warning.
pub(super) fn truncated_label<'a>(call: &Call, label: &'a OsStr) -> &'a OsStr {
    if label.len() <= LABEL_BYTES_MAX {
        return label;
    }
    let kept = OsStr::from_bytes(&label.as_bytes()[..LABEL_BYTES_MAX]);
    call.say(&format!("label too long; will be truncated to '{}'", kept.display()));
    kept
}

/// The value of a letter in bytes, with a unit if wanted.
fn bytes_of(letters: &Letters, letter: char) -> Result<Option<u32>, Failure> {
    let Some(text) = letters.text(letter)? else { return Ok(None) };
    let bytes = size::parse_bytes(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.map(Some).ok_or_else(|| Failure::usage(format!("invalid value of -{letter}: '{text}'")))
}

/// The clock that the environment fixes for e2fsprogs, in seconds since 1970.
fn fake_clock() -> Result<Option<WallClock>, Failure> {
    let Some(text) = std::env::var_os(FAKE_TIME) else { return Ok(None) };
    let text = text.to_string_lossy();
    let seconds = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let seconds = seconds.ok_or_else(|| Failure::usage(format!("{FAKE_TIME} is not a number: '{text}'")))?;
    // e2fsprogs takes 0 for the host's clock.
    Ok((seconds != 0).then_some(WallClock::Fixed(seconds, 0)))
}
