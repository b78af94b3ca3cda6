//! `extant cp`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use extant::{FileType, Filesystem, Timestamp};
use extant_archive::{
    Adjust, DiskWalk, Entry, Extent, Extract, Import, Keep, Kind, Manner, Sink, Source, TreePath, Walk,
    pour_concurrently,
};

use super::{Outcome, for_each};
use crate::address::{Address, DiskPath};
use crate::disks::{Location, Reading, clock, is_same_image, open_for_reading, open_for_writing, unmount};
use crate::failure::Failure;
use crate::mode::ModeChange;
use crate::owner::{Owner, names_on};
use crate::progress::Progress;

/// Copy files and directories into a disk, out of it, or between disks
///
/// What is copied into a disk belongs to 0:0, has the mode of its source and the time of the copy; with -a it keeps
/// its owner, times, links and extended attributes. Each file is written under a temporary name and renamed: a crash
/// leaves the old one or the new one.
#[derive(Args)]
#[command(
    override_usage = "extant cp [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n  extant cp agent disk.img:/usr/local/bin/\n  extant cp --chown app:app --chmod 600 key.pem disk.img:/srv/app/\n  extant cp -a rootfs/. disk.img:/\n  extant cp -r disk.img:/var/log ./logs"
)]
pub struct Cp {
    /// Keep everything: directories, links, owners, modes, times, extended attributes
    #[arg(short, long)]
    archive: bool,
    /// Copy directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// The owner on the disk: USER, USER:GROUP, by number or by the disk's own names
    #[arg(long, value_name = "USER:GROUP")]
    chown: Option<String>,
    /// The mode on the disk: octal, or as in u+x,go-w
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse, allow_hyphen_values = true)]
    chmod: Option<ModeChange>,
    #[command(flatten)]
    location: Location,
    /// What to copy, and last where to; some of them IMAGE:/PATH
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    places: Vec<OsString>,
}

/// Where a copy goes: a directory and the name in it, or the directory itself.
struct Goal {
    directory: PathBuf,
    at: TreePath,
}

impl Cp {
    /// Copies.
    pub fn run(self) -> Outcome {
        let Some((target, sources)) = self.places.split_last() else {
            return Err(Failure::usage("name a source and a target"));
        };
        let target_address = Address::parse(target);
        let sources: Vec<_> =
            sources.iter().map(|source| (source.as_os_str(), Address::parse(source))).collect();
        if let Address::Local(local) = &target_address
            && let Some((source, _)) =
                sources.iter().find(|(_, address)| matches!(address, Address::Local(_)))
        {
            let (source, target) = (source.display(), local.display());
            let message = format!("neither '{source}' nor '{target}' is on a disk; name one as IMAGE:/PATH");
            return Err(Failure::usage(message));
        }
        match target_address {
            Address::Disk(place) => self.to_disk(&place, &sources),
            Address::Local(local) => self.to_host(&local, target, &sources),
        }
    }

    /// Whether a symbolic link that is named stands for what it names, as it does with a slash behind it.
    fn follows(&self, argument: &OsStr) -> bool {
        !self.is_recursive() || argument.as_bytes().ends_with(b"/") || argument.as_bytes().ends_with(b"/.")
    }

    fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    fn to_disk(&self, target: &DiskPath, sources: &[(&OsStr, Address)]) -> Outcome {
        let fs = open_for_writing(&target.image, self.location)?;
        let result = self.copy_all(&fs, target, sources);
        // What was copied before a failure stays, and stays consistent.
        unmount(&target.image, fs)?;
        result
    }

    fn copy_all(&self, fs: &Filesystem, target: &DiskPath, sources: &[(&OsStr, Address)]) -> Outcome {
        let is_directory =
            fs.metadata(&target.path).is_ok_and(|found| found.file_type == FileType::Directory);
        check_target(&target.to_string(), &target.path, is_directory, sources.len())?;
        let owner = self.chown.as_ref().map(|text| Owner::parse(text, &names_on(fs))).transpose()?;
        let mut others = BTreeMap::new();
        Ok(for_each(sources, false, |(argument, source)| {
            let goal = goal(&target.path, is_directory, argument, source)?;
            match source {
                Address::Local(path) => {
                    let found = if self.is_recursive() { path.symlink_metadata() } else { path.metadata() };
                    let found = found.map_err(|error| Failure::host(path, &error))?;
                    self.check_directory(&path.display().to_string(), found.is_dir())?;
                    if is_same_image(path, &target.image) {
                        return Err(into_itself(path.display()));
                    }
                    let mut walk = Walk::new(path).follow_root(self.follows(argument)).at(goal.at.clone());
                    if let Ok(image) = target.image.metadata() {
                        walk = walk.exclude(&image);
                    }
                    self.import(fs, target, &goal, owner, walk)
                }
                Address::Disk(place) => {
                    let from = self.source_disk(fs, target, place, &mut others)?;
                    self.check_disk_source(&from, place)?;
                    if is_same_image(&place.image, &target.image) {
                        refuse_into_itself(fs, place, &goal.directory)?;
                    }
                    let walk = DiskWalk::new(&from, &place.path)
                        .follow_root(self.follows(argument))
                        .at(goal.at.clone());
                    self.import(fs, target, &goal, owner, walk)
                }
            }
        }))
    }

    /// The disk that a source is on; the target's own if they are the same.
    fn source_disk(
        &self,
        fs: &Filesystem,
        target: &DiskPath,
        place: &DiskPath,
        others: &mut BTreeMap<PathBuf, Filesystem>,
    ) -> Result<Filesystem, Failure> {
        if is_same_image(&place.image, &target.image) {
            return Ok(fs.clone());
        }
        if let Some(other) = others.get(&place.image) {
            return Ok(other.clone());
        }
        let reading = Reading { location: self.location, ..Reading::default() };
        let other = open_for_reading(&place.image, reading)?;
        others.insert(place.image.clone(), other.clone());
        Ok(other)
    }

    fn check_disk_source(&self, fs: &Filesystem, place: &DiskPath) -> Result<(), Failure> {
        let found =
            if self.is_recursive() { fs.symlink_metadata(&place.path) } else { fs.metadata(&place.path) };
        let found = found.map_err(|error| Failure::disk(place, &error))?;
        self.check_directory(&place.to_string(), found.file_type == FileType::Directory)
    }

    fn check_directory(&self, name: &str, is_directory: bool) -> Result<(), Failure> {
        if is_directory && !self.is_recursive() {
            return Err(Failure::new("is_a_directory", name, "is a directory; copy it with -r or -a"));
        }
        Ok(())
    }

    fn import(
        &self,
        fs: &Filesystem,
        target: &DiskPath,
        goal: &Goal,
        owner: Option<Owner>,
        source: impl Source + Send + 'static,
    ) -> Result<(), Failure> {
        let (seconds, nanoseconds) = clock()?.now();
        let now = Timestamp { seconds, nanoseconds };
        let (keeps_all, chmod) = (self.archive, self.chmod.clone());
        let source = Adjust::new(source, move |entry: &mut Entry| {
            let attributes = &mut entry.attributes;
            if !keeps_all {
                (attributes.uid, attributes.gid) = (0, 0);
                attributes.mtime = now;
                attributes.xattrs.clear();
            }
            if let Some(Owner { uid, gid }) = owner {
                attributes.uid = uid.unwrap_or(attributes.uid);
                attributes.gid = gid.unwrap_or(attributes.gid);
            }
            if let Some(change) = &chmod
                && !matches!(entry.kind, Kind::Symlink(_) | Kind::HardLink(_))
            {
                attributes.mode = change.apply(attributes.mode, entry.kind == Kind::Directory);
            }
        });
        let manner = if keeps_all { Manner::CopyAll } else { Manner::Copy };
        let failed = |error| Failure::tree_below(&target.image, &goal.directory, "", error);
        let mut import = Import::new(fs, &goal.directory, manner, None).map_err(failed)?;
        pour(source, &mut import).map_err(failed)
    }

    fn to_host(&self, target: &Path, argument: &OsStr, sources: &[(&OsStr, Address)]) -> Outcome {
        if self.chown.is_some() || self.chmod.is_some() {
            return Err(Failure::usage("--chown and --chmod are for copies into a disk"));
        }
        let is_directory = target.is_dir();
        check_target(&target.display().to_string(), Path::new(argument), is_directory, sources.len())?;
        let reading = Reading { location: self.location, ..Reading::default() };
        let mut disks = BTreeMap::new();
        Ok(for_each(sources, false, |(argument, source)| {
            let Address::Disk(place) = source else { return Ok(()) };
            let fs = match disks.get(&place.image) {
                Some(fs) => Filesystem::clone(fs),
                None => disks
                    .entry(place.image.clone())
                    .or_insert(open_for_reading(&place.image, reading)?)
                    .clone(),
            };
            self.check_disk_source(&fs, place)?;
            if is_same_image(target, &place.image) {
                let message = "the copy would take the place of the disk";
                return Err(Failure::new("invalid_argument", place.to_string(), message));
            }
            let goal = goal(target, is_directory, argument, source)?;
            let keep = if self.archive { Keep::Everything } else { Keep::Permissions };
            let at = goal.at.to_string();
            let failed = |error| Failure::tree_below(&place.image, &place.path, &at, error);
            let mut extract = Extract::new(&goal.directory, keep).map_err(failed)?;
            let walk = DiskWalk::new(&fs, &place.path).follow_root(self.follows(argument)).at(goal.at);
            pour(walk, &mut extract).map_err(failed)
        }))
    }
}

fn pour(source: impl Source + Send + 'static, sink: &mut dyn Sink) -> extant_archive::Result<()> {
    pour_concurrently(source, &mut Progress::new(sink, None, false), Extent::Everything)
}

fn check_target(name: &str, path: &Path, is_directory: bool, count: usize) -> Result<(), Failure> {
    if !is_directory && (count > 1 || path.as_os_str().as_bytes().ends_with(b"/")) {
        return Err(Failure::new("not_a_directory", name, "no such directory"));
    }
    Ok(())
}

/// Where a source goes: into a target that is a directory, or in its place. `DIR/.` and a whole disk stand for what
/// is in them.
fn goal(target: &Path, is_directory: bool, argument: &OsStr, source: &Address) -> Result<Goal, Failure> {
    let source_path = match source {
        Address::Local(path) => path,
        Address::Disk(place) => &place.path,
    };
    let is_content = argument.as_bytes().ends_with(b"/.") || source_path.file_name().is_none();
    let (directory, name) = match (is_directory, is_content) {
        (true, true) => return Ok(Goal { directory: target.to_owned(), at: TreePath::root() }),
        (true, false) => (target.to_owned(), source_path.file_name()),
        (false, _) => {
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")).to_owned(), target.file_name())
        }
    };
    let name = name.ok_or_else(|| Failure::usage(format!("'{}' has no last name", target.display())))?;
    let at = TreePath::root().join(name.as_bytes()).map_err(|error| Failure::tree(target, error))?;
    Ok(Goal { directory, at })
}

/// A directory cannot be copied to a place below itself, for it would never end.
fn refuse_into_itself(fs: &Filesystem, source: &DiskPath, goal: &Path) -> Result<(), Failure> {
    let number = fs.symlink_lookup(&source.path).map_err(|error| Failure::disk(source, &error))?.number();
    let inside = goal.ancestors().any(|above| fs.lookup(above).is_ok_and(|found| found.number() == number));
    if inside {
        return Err(into_itself(source));
    }
    Ok(())
}

fn into_itself(source: impl std::fmt::Display) -> Failure {
    Failure::new("invalid_argument", source.to_string(), "cannot be copied into itself")
}
