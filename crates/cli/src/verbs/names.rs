//! `extant mkdir`, `extant mv`, `extant ln`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use extant::{Error, FileType, Filesystem, SetAttributes};

use super::{Outcome, for_each};
use crate::address::{Address, DiskPath, is_same_image};
use crate::disks::{Disks, ImageLocation, open_for_writing, unmount};
use crate::failure::Failure;
use crate::metadata::failed_at;
use crate::mode::ModeChange;
use crate::owner::{Owner, names_on};

/// Make directories on a disk
///
/// They belong to 0:0 and have mode 755 unless told.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant mkdir -p disk.img:/srv/www/html\n  extant mkdir -m 1777 disk.img:/scratch\n  extant mkdir --chown web:web disk.img:/srv/www"
)]
pub struct Mkdir {
    /// Make those above them as well, and say nothing if they exist
    #[arg(short, long)]
    parents: bool,
    /// The mode, as chmod takes it
    #[arg(short, long, value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
    /// The owner: USER, USER:GROUP, by number or by the disk's own names
    #[arg(long, value_name = "USER:GROUP")]
    chown: Option<String>,
    #[command(flatten)]
    location: ImageLocation,
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Mkdir {
    /// Makes them.
    pub fn run(self) -> Outcome {
        let places = DiskPath::parse_all_below_root(&self.places)?;
        let mut disks = Disks::new(|image: &Path| open_for_writing(image, self.location));
        let exit = for_each(places, false, |place| {
            let fs = disks.of(&place)?;
            let owner = self.chown.as_ref().map(|text| Owner::parse(text, &names_on(&fs))).transpose()?;
            let make = || {
                if self.parents {
                    if fs.metadata(&place.path).is_ok_and(|found| found.file_type == FileType::Directory) {
                        return Ok(());
                    }
                    if let Some(parent) = place.path.parent() {
                        fs.create_dir_all(parent)?;
                    }
                }
                fs.create_dir(&place.path)?;
                let made = fs.lookup(&place.path)?;
                let mode = self.mode.as_ref().map(|change| change.apply(made.metadata().mode, true));
                let (uid, gid) = owner.map_or((None, None), |owner| (owner.uid, owner.gid));
                if mode.is_none() && owner.is_none() {
                    return Ok(());
                }
                made.set_attributes(&SetAttributes { mode, uid, gid, ..SetAttributes::default() })
            };
            make().map_err(failed_at(&place))
        });
        disks.finish()?;
        Ok(exit)
    }
}

/// Rename files and directories on a disk
///
/// What had the new name is replaced, as a whole and at once.
#[derive(Args)]
#[command(
    override_usage = "extant mv [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:\n  extant mv disk.img:/etc/hosts disk.img:/etc/hosts.old\n  extant mv disk.img:/a disk.img:/b disk.img:/dir/"
)]
pub struct Mv {
    #[command(flatten)]
    location: ImageLocation,
    /// What to rename, and last its new name or the directory it goes to; all on one disk
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Mv {
    /// Renames.
    pub fn run(self) -> Outcome {
        let (sources, target) = on_one_disk(&self.places)?;
        let fs = open_for_writing(&target.image, self.location)?;
        let result = (|| {
            let into = into_directory(&fs, &target, sources.len())?;
            Ok(for_each(&sources, false, |source| {
                let to = destination(&target, into, source);
                if fs.symlink_lookup(&source.path).map_err(failed_at(source))?.number()
                    == fs.symlink_lookup(&to).map_or(extant::InodeNumber(0), |found| found.number())
                {
                    let message = format!("is the same file as {}", to.display());
                    return Err(Failure::new("same_file", source.to_string(), message));
                }
                fs.rename(&source.path, &to).map_err(failed_at(source))
            }))
        })();
        unmount(&target.image, fs)?;
        result
    }
}

/// Make links on a disk
///
/// A hard link names a file on the same disk. What a symbolic link says is taken as it stands.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant ln -s /usr/bin/python3 disk.img:/usr/bin/python\n  extant ln disk.img:/bin/busybox disk.img:/bin/sh"
)]
pub struct Ln {
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace what has the name, unless it is a directory
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    location: ImageLocation,
    /// What a symbolic link says, or IMAGE:/PATH of the file that gets a further name
    target: OsString,
    /// The link, or the directory it goes to
    #[arg(value_name = "IMAGE:/PATH")]
    link: OsString,
}

impl Ln {
    /// Links.
    pub fn run(self) -> Outcome {
        let link = DiskPath::parse_below_root(&self.link)?;
        let original = match Address::parse(&self.target) {
            _ if self.symbolic => None,
            Address::Disk(original) if is_same_image(&original.image, &link.image) => Some(original.path),
            _ => {
                return Err(Failure::usage(
                    "a hard link needs two places on one disk, IMAGE:/FILE IMAGE:/LINK",
                ));
            }
        };
        let fs = open_for_writing(&link.image, self.location)?;
        let result = self.link(&fs, &link, original.as_deref());
        unmount(&link.image, fs)?;
        result.map(|()| 0)
    }

    fn link(&self, fs: &Filesystem, link: &DiskPath, original: Option<&Path>) -> Result<(), Failure> {
        let says = original.unwrap_or(Path::new(&self.target));
        let mut path = link.path.clone();
        if fs.metadata(&path).is_ok_and(|found| found.file_type == FileType::Directory) {
            path.push(says.file_name().unwrap_or_default());
        }
        let place = DiskPath { image: link.image.clone(), path };
        if let Some(original) = original {
            // Checked before anything is removed, and reported by its own name.
            let original = DiskPath { image: link.image.clone(), path: original.to_owned() };
            let found = fs.symlink_lookup(&original.path).map_err(failed_at(&original))?;
            if found.metadata().file_type == FileType::Directory {
                return Err(Failure::new("is_a_directory", original.to_string(), "is a directory"));
            }
            if fs.symlink_lookup(&place.path).is_ok_and(|there| there.number() == found.number()) {
                let message = format!("is the same file as {}", place.path.display());
                return Err(Failure::new("same_file", original.to_string(), message));
            }
        }
        let make = || match original {
            Some(original) => fs.hard_link(original, &place.path),
            None => fs.symlink(says, &place.path),
        };
        let made = match make() {
            Err(error) if self.force && matches!(error.cause(), Error::Exists) => {
                fs.remove_file(&place.path).and_then(|()| make())
            }
            other => other,
        };
        made.map_err(failed_at(&place))
    }
}

/// All places but the last, and the last, which are all on one disk.
fn on_one_disk(places: &[OsString]) -> Result<(Vec<DiskPath>, DiskPath), Failure> {
    let Some((target, sources)) = places.split_last() else {
        return Err(Failure::usage("name a source and a target"));
    };
    let target = DiskPath::parse(target);
    let sources =
        sources.iter().map(|source| DiskPath::parse_below_root(source)).collect::<Result<Vec<_>, _>>()?;
    match sources.iter().find(|source| !is_same_image(&source.image, &target.image)) {
        Some(other) => {
            Err(Failure::usage(format!("{other} and {target} are on different disks; use cp -a and rm")))
        }
        None => Ok((sources, target)),
    }
}

/// Whether the sources go into the target directory rather than replacing the target.
fn into_directory(fs: &Filesystem, target: &DiskPath, count: usize) -> Result<bool, Failure> {
    let is_directory = fs.metadata(&target.path).is_ok_and(|found| found.file_type == FileType::Directory);
    if count > 1 && !is_directory {
        return Err(Failure::new("not_a_directory", target.to_string(), "not a directory"));
    }
    Ok(is_directory)
}

fn destination(target: &DiskPath, into: bool, source: &DiskPath) -> PathBuf {
    match source.path.file_name() {
        Some(name) if into => target.path.join(name),
        _ => target.path.clone(),
    }
}
