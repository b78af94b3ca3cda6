//! `extant cp`.

mod sources;
mod verbose;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use extant::{FileType, Filesystem};
use extant_archive::{
    Adjust, CopyOptions, DiskWalk, Entry, EntryKind, Existing, Extent, Extract, Import, Manner, Preserve,
    Sink, Source, StreamWriter, TreePath, pour_concurrently,
};
use extant_block::{identity, os_string};

use super::{Outcome, for_each};
use crate::address::{Address, DiskPath, is_same_image};
use crate::disks::{ImageLocation, Reading, open_for_reading, open_for_writing, unmount};
use crate::failure::Failure;
use crate::mode::ModeChange;
use crate::owner::{Owner, names_on};
use crate::progress::{Progress, ProgressForm};
use sources::standard_input;
use verbose::Verbose;

/// Standard input as a source, standard output as a target.
const STREAM: &str = "-";

/// Copy files and directories into a disk, out of it, or between disks
///
/// A file that exists keeps its owner, its mode, its extended attributes and its hard links, and a symbolic link is
/// followed; options change that. On a disk its content is the old or the new one after a crash. A new file on a disk
/// belongs to 0:0 and has the mode of its source. On the host, devices and pipes are written into. Without -r or -a,
/// devices and pipes of the host are read. `-` is standard input or output; a pipe is read to its end, into memory
/// or a temporary file, before the disk is locked.
#[derive(Args)]
#[command(
    override_usage = "extant cp [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n  extant cp agent disk.img:/usr/local/bin/\n  extant cp --chown app:app --chmod 600 key.pem disk.img:/srv/app/\n  extant cp -a rootfs/. disk.img:/\n  extant cp -r disk.img:/var/log ./logs\n  extant cp disk.img:/etc/hosts - | sed s/old/new/ | extant cp - disk.img:/etc/hosts.new"
)]
pub struct Cp {
    /// Keep everything: directories, links, owners, modes, times, extended attributes
    #[arg(short, long)]
    archive: bool,
    /// Copy directories with all that is in them
    #[arg(short, visible_short_alias = 'R', long)]
    recursive: bool,
    /// Keep owners, modes, access control lists and times
    #[arg(short, long)]
    preserve: bool,
    /// Pass over files that exist
    #[arg(short, long)]
    no_clobber: bool,
    /// Pass over files that exist and are not older than their sources
    #[arg(short, long)]
    update: bool,
    /// Remove an existing file of the host that cannot be written
    #[arg(short, long)]
    force: bool,
    /// Remove each existing file first: its owner, mode and attributes go, its hard links keep the old content, and a
    /// symbolic link is replaced
    #[arg(long)]
    remove_destination: bool,
    /// Take DST as the name of the copy, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Tell what is copied
    #[arg(short, long)]
    verbose: bool,
    /// The owner on the disk: USER, USER:GROUP, by number or by the disk's own names
    #[arg(long, value_name = "USER:GROUP")]
    chown: Option<String>,
    /// The mode on the disk: octal, or as in u+x,go-w
    #[arg(long, value_name = "MODE", value_parser = ModeChange::parse, allow_hyphen_values = true)]
    chmod: Option<ModeChange>,
    #[command(flatten)]
    location: ImageLocation,
    /// What to copy, and last where to; some of them IMAGE:/PATH, and `-` for a stream
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    places: Vec<OsString>,
}

/// Where a copy goes: a directory and the name in it, or the directory itself.
struct Goal {
    directory: PathBuf,
    at: TreePath,
}

/// A target and how sources go to it.
struct Target<'a> {
    path: &'a Path,
    /// Sources go into it.
    is_directory: bool,
    /// Copies that were made, but for directories: one does not take the place of another.
    made: BTreeSet<PathBuf>,
}

impl Cp {
    /// Copies.
    pub fn run(self) -> Outcome {
        let Some((target, sources)) = self.places.split_last() else {
            return Err(Failure::usage("name a source and a target"));
        };
        let address = |argument: &OsStr| {
            if argument == STREAM { Address::Local(STREAM.into()) } else { Address::parse(argument) }
        };
        let target_address = address(target);
        let sources: Vec<_> = sources.iter().map(|source| (source.as_os_str(), address(source))).collect();
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
            Address::Local(_) if target == STREAM => self.to_stream(&sources),
            Address::Local(local) => self.to_host(&local, target, &sources),
        }
    }

    /// Whether a symbolic link that is named is followed, as it does with a slash behind it.
    fn follows(&self, argument: &OsStr) -> bool {
        !self.is_recursive()
            || argument.as_encoded_bytes().ends_with(b"/")
            || argument.as_encoded_bytes().ends_with(b"/.")
    }

    fn is_recursive(&self) -> bool {
        self.recursive || self.archive
    }

    /// What the letters say of files that exist, and of what is kept.
    fn options(&self) -> CopyOptions {
        let existing = match (self.no_clobber, self.update, self.remove_destination) {
            (true, ..) => Existing::Skip,
            (_, true, _) => Existing::SkipUnlessOlder,
            (_, _, true) => Existing::Remove,
            _ => Existing::Write,
        };
        let preserve = match (self.archive, self.preserve) {
            (true, _) => Preserve::ALL,
            (_, true) => Preserve::ATTRIBUTES,
            _ => Preserve::default(),
        };
        CopyOptions { existing, force: self.force, preserve }
    }

    fn to_disk(&self, target: &DiskPath, sources: &[(&OsStr, Address)]) -> Outcome {
        // Before the disk is locked: the process that writes into the pipe may read this disk.
        let input = match sources.iter().any(|(argument, _)| *argument == STREAM) {
            true => standard_input()?,
            false => Box::new(std::io::empty()),
        };
        let fs = open_for_writing(&target.image, self.location)?;
        let result = self.copy_all(&fs, target, sources, input);
        // What was copied before a failure stays, and stays consistent.
        unmount(&target.image, fs)?;
        result
    }

    fn copy_all(
        &self,
        fs: &Filesystem,
        target: &DiskPath,
        sources: &[(&OsStr, Address)],
        mut input: Box<dyn Read + Send>,
    ) -> Outcome {
        let is_directory =
            fs.metadata(&target.path).is_ok_and(|found| found.file_type == FileType::Directory);
        let mut goals = self.target(&target.to_string(), &target.path, is_directory, sources.len())?;
        let owner = self.chown.as_ref().map(|text| Owner::parse(text, &names_on(fs))).transpose()?;
        let mut others = BTreeMap::new();
        Ok(for_each(sources, false, |(argument, source)| match source {
            Address::Local(path) => {
                let source = self.host_source(argument, path, target, &mut input)?;
                let goal = goals.goal(argument, path, source.is_directory)?;
                self.import(fs, target, (argument, &goal), owner, source.at(goal.at.clone()))
            }
            Address::Disk(place) => {
                let from = self.source_disk(fs, target, place, &mut others)?;
                let is_directory = self.check_disk_source(&from, place)?;
                let goal = goals.goal(argument, &place.path, is_directory)?;
                if is_same_image(&place.image, &target.image) {
                    refuse_into_itself(fs, place, &goal.directory)?;
                    self.refuse_same_file(fs, place, argument, &goal)?;
                }
                let walk = self.disk_walk(&from, place, argument).at(goal.at.clone());
                self.import(fs, target, (argument, &goal), owner, walk)
            }
        }))
    }

    fn disk_walk(&self, from: &Filesystem, place: &DiskPath, argument: &OsStr) -> DiskWalk {
        DiskWalk::new(from, &place.path)
            .follow_root(self.follows(argument))
            .hard_links(self.options().preserve.links)
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

    /// Whether the source is a directory, once it is known that it can be copied.
    fn check_disk_source(&self, fs: &Filesystem, place: &DiskPath) -> Result<bool, Failure> {
        let found =
            if self.is_recursive() { fs.symlink_metadata(&place.path) } else { fs.metadata(&place.path) };
        let found = found.map_err(|error| Failure::disk(place, &error))?;
        match found.file_type {
            FileType::Directory if !self.is_recursive() => Err(is_a_directory(place.to_string())),
            FileType::Directory | FileType::Regular | FileType::Symlink => {
                Ok(found.file_type == FileType::Directory)
            }
            _ if self.is_recursive() => Ok(false),
            _ => {
                let message =
                    "a device, pipe or socket, which nothing serves here; -r or -a copies the inode itself";
                Err(Failure::new("refused", place.to_string(), message))
            }
        }
    }

    /// Refuses to copy a file onto itself.
    fn refuse_same_file(
        &self,
        fs: &Filesystem,
        place: &DiskPath,
        argument: &OsStr,
        goal: &Goal,
    ) -> Result<(), Failure> {
        let to = goal.directory.join(os_string(goal.at.to_bytes()));
        let find = |path: &Path, follows| if follows { fs.lookup(path) } else { fs.symlink_lookup(path) };
        let source = find(&place.path, self.follows(argument));
        let there = find(&to, !self.remove_destination && self.follows(argument));
        let is_same =
            matches!((&source, &there), (Ok(source), Ok(there)) if source.number() == there.number());
        if is_same && source.is_ok_and(|source| !source.is_dir()) {
            let message = format!("is the same file as {}", to.display());
            return Err(Failure::new("same_file", place.to_string(), message));
        }
        Ok(())
    }

    fn import(
        &self,
        fs: &Filesystem,
        target: &DiskPath,
        (argument, goal): (&OsStr, &Goal),
        owner: Option<Owner>,
        source: impl Source + Send + 'static,
    ) -> Result<(), Failure> {
        let mut options = self.options();
        let (kept, chmod) = (options.preserve, self.chmod.clone());
        let source = Adjust::new(source, move |entry: &mut Entry| {
            let attributes = &mut entry.attributes;
            if !kept.uid {
                (attributes.uid, attributes.gid) = (0, 0);
            }
            if !kept.xattrs {
                attributes.xattrs.retain(|(name, _)| kept.acls && name.starts_with(b"system.posix_acl_"));
            }
            if let Some(Owner { uid, gid }) = owner {
                attributes.uid = uid.unwrap_or(attributes.uid);
                attributes.gid = gid.unwrap_or(attributes.gid);
            }
            if let Some(change) = &chmod
                && !matches!(entry.kind, EntryKind::Symlink(_) | EntryKind::HardLink(_))
            {
                attributes.mode = change.apply(attributes.mode, entry.kind == EntryKind::Directory);
            }
            Ok(())
        });
        options.preserve.uid |= owner.is_some_and(|owner| owner.uid.is_some());
        options.preserve.gid |= owner.is_some_and(|owner| owner.gid.is_some());
        options.preserve.mode |= self.chmod.is_some();
        let failed = |error| Failure::tree_below(&target.image, &goal.directory, "", error);
        let mut import = Import::new(fs, &goal.directory, Manner::Copy(options), None).map_err(failed)?;
        let to = format!("{}:{}", target.image.display(), goal.directory.display());
        self.pour(source, &mut import, (argument, goal, &to)).map_err(failed)
    }

    fn to_host(&self, target: &Path, argument: &OsStr, sources: &[(&OsStr, Address)]) -> Outcome {
        self.refuse_disk_attributes()?;
        let is_directory = target.is_dir();
        let mut goals =
            self.target(&target.display().to_string(), Path::new(argument), is_directory, sources.len())?;
        goals.path = target;
        let mut disks = BTreeMap::new();
        Ok(for_each(sources, false, |(argument, source)| {
            let Address::Disk(place) = source else { return Ok(()) };
            let fs = self.reading_disk(&mut disks, place)?;
            let is_directory = self.check_disk_source(&fs, place)?;
            if is_same_image(target, &place.image) {
                let message = "the copy would take the place of the disk";
                return Err(Failure::new("invalid_argument", place.to_string(), message));
            }
            let goal = goals.goal(argument, &place.path, is_directory)?;
            let at = goal.at.to_string();
            let failed = |error| Failure::tree_below(&place.image, &place.path, &at, error);
            let mut extract = Extract::new(&goal.directory, self.options()).map_err(failed)?;
            extract = extract.spelled(goal.at.clone());
            if let Ok(image) = identity(&place.image) {
                extract = extract.keep(image);
            }
            let walk = self.disk_walk(&fs, place, argument).at(goal.at.clone());
            let to = goal.directory.display().to_string();
            self.pour(walk, &mut extract, (argument, &goal, &to)).map_err(failed)
        }))
    }

    fn to_stream(&self, sources: &[(&OsStr, Address)]) -> Outcome {
        self.refuse_disk_attributes()?;
        let [(argument, Address::Disk(place))] = sources else {
            return Err(Failure::usage("one file goes to standard output; `extant cat` writes several"));
        };
        let fs = self.reading_disk(&mut BTreeMap::new(), place)?;
        if self.check_disk_source(&fs, place)? {
            return Err(is_a_directory(place.to_string()));
        }
        let failed = |error| Failure::tree_below(&place.image, &place.path, "/", error);
        let mut out = StreamWriter::new(std::io::stdout().lock(), "standard output");
        let walk = self.disk_walk(&fs, place, argument).follow_root(true);
        pour_concurrently(walk, &mut out, Extent::Everything).map_err(failed)?;
        Ok(0)
    }

    fn reading_disk(
        &self,
        disks: &mut BTreeMap<PathBuf, Filesystem>,
        place: &DiskPath,
    ) -> Result<Filesystem, Failure> {
        if let Some(fs) = disks.get(&place.image) {
            return Ok(fs.clone());
        }
        let reading = Reading { location: self.location, ..Reading::default() };
        let fs = open_for_reading(&place.image, reading)?;
        disks.insert(place.image.clone(), fs.clone());
        Ok(fs)
    }

    fn refuse_disk_attributes(&self) -> Result<(), Failure> {
        if self.chown.is_some() || self.chmod.is_some() {
            return Err(Failure::usage("--chown and --chmod are for copies into a disk"));
        }
        Ok(())
    }

    /// Copies a source into the sink, and reports each entry if `--verbose` is given: from `argument` to the goal,
    /// whose directory people call `to`.
    fn pour(
        &self,
        source: impl Source + Send + 'static,
        sink: &mut dyn Sink,
        (argument, goal, to): (&OsStr, &Goal, &str),
    ) -> extant_archive::Result<()> {
        if self.verbose {
            let mut verbose = Verbose::new(sink, argument, &goal.at, to);
            return pour_concurrently(source, &mut verbose, Extent::Everything);
        }
        pour_concurrently(
            source,
            &mut Progress::new(sink, None, ProgressForm::new(false, false)),
            Extent::Everything,
        )
    }

    /// The target, once it is known that this many sources can go there.
    fn target<'a>(
        &self,
        name: &str,
        path: &'a Path,
        is_directory: bool,
        count: usize,
    ) -> Result<Target<'a>, Failure> {
        let is_directory = is_directory && !self.no_target_directory;
        if self.no_target_directory && count > 1 {
            return Err(Failure::usage("-T takes one source"));
        }
        if !is_directory
            && !self.no_target_directory
            && (count > 1 || path.as_os_str().as_encoded_bytes().ends_with(b"/"))
        {
            return Err(Failure::new("not_a_directory", name, "no such directory"));
        }
        Ok(Target { path, is_directory, made: BTreeSet::new() })
    }
}

impl Target<'_> {
    /// Where a source goes: into a target that is a directory, or in its place. `DIR/.` and a whole disk mean their
    /// entries.
    fn goal(&mut self, argument: &OsStr, source: &Path, is_directory: bool) -> Result<Goal, Failure> {
        let is_content = argument.as_encoded_bytes().ends_with(b"/.") || source.file_name().is_none();
        let (directory, name) = match (self.is_directory, is_content) {
            (true, true) => return Ok(Goal { directory: self.path.to_owned(), at: TreePath::root() }),
            (true, false) => (self.path.to_owned(), source.file_name()),
            // -T DIR, of the disk's root.
            (false, _) if is_directory && self.path.file_name().is_none() => {
                return Ok(Goal { directory: self.path.to_owned(), at: TreePath::root() });
            }
            (false, _) => {
                let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
                (parent.unwrap_or(Path::new(".")).to_owned(), self.path.file_name())
            }
        };
        if argument == STREAM && self.is_directory {
            let message = "standard input has no name that its copy could have here; name the file";
            return Err(Failure::new("is_a_directory", self.path.display().to_string(), message));
        }
        let name =
            name.ok_or_else(|| Failure::usage(format!("'{}' has no last name", self.path.display())))?;
        if !is_directory && !self.made.insert(directory.join(name)) {
            let message = "another source was just copied there; copy one of them under another name";
            return Err(Failure::new("exists", directory.join(name).display().to_string(), message));
        }
        let at = TreePath::root()
            .join(name.as_encoded_bytes())
            .map_err(|error| Failure::tree(self.path, error))?;
        Ok(Goal { directory, at })
    }
}

fn is_a_directory(name: String) -> Failure {
    Failure::new("is_a_directory", name, "is a directory; copy it with -r or -a")
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
