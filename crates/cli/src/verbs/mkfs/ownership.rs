//! Owners, devices and labels of what a new disk is filled with, which the host need not have.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use extant::Timestamp;
use extant_archive::{
    Adjust, DeviceTable, Entry, FileContexts, IdMaps, Labelled, Source, Tabled, UserDatabase, VerityList,
};
use extant_ondisk::Geometry;
use extant_rt::{Arc, WallClock};

use crate::failure::Failure;
use crate::id_maps::IdMapOptions;

/// Whose everything is, and what is there beside the content.
#[derive(Args)]
pub struct OwnershipOptions {
    /// Owner of everything that is filled in, by number
    #[arg(
        long,
        value_name = "UID:GID",
        requires = "content",
        conflicts_with_all = ["uid_map", "gid_map"],
        value_parser = owner
    )]
    chown: Option<(u32, u32)>,
    #[command(flatten)]
    id_maps: IdMapOptions,
    /// Owners, modes, devices, pipes and directories by lines of `name type mode uid gid major minor start inc count`, as
    /// genext2fs -D and makedevs take them; may be repeated. Without -d the disk has only these
    #[arg(long, value_name = "FILE")]
    device_table: Vec<PathBuf>,
    /// Labels by the rules of this file, and those of FILE.homedirs, .local, .subs and .subs_dist beside it, as
    /// `setfiles -F -r` sets them
    #[arg(long, value_name = "FILE_CONTEXTS")]
    selinux: Option<PathBuf>,
    /// Make verity files (fs-verity) of those whose paths on the disk are the lines of this file; implies -O verity
    #[arg(long, value_name = "LIST", requires = "content")]
    fs_verity: Option<PathBuf>,
}

/// Reads `UID:GID`.
pub fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    numbers.ok_or_else(|| format!("'{text}' is not UID:GID"))
}

impl OwnershipOptions {
    /// Refuses options that mean nothing without content.
    pub fn check_content(&self, has_content: bool) -> Result<(), Failure> {
        if self.id_maps.are_given() && !has_content {
            return Err(Failure::usage("--uid-map and --gid-map are for content; add -d"));
        }
        Ok(())
    }

    /// Whether there may be files without content.
    pub fn has_files(&self) -> bool {
        !self.device_table.is_empty() || self.selinux.is_some()
    }

    /// Whether there are verity files.
    pub fn has_verity_files(&self) -> bool {
        self.fs_verity.is_some()
    }

    /// Refuses verity files on blocks of another size.
    pub fn check_geometry(&self, geometry: &Geometry) -> Result<(), Failure> {
        if self.has_verity_files() && geometry.block_size != VerityList::BLOCK_BYTES {
            return Err(Failure::usage("--fs-verity needs blocks of 4096 bytes; leave out -b"));
        }
        Ok(())
    }

    /// What the options say. The root directory goes to `root_owner`, if there is one; `names` are the users and groups
    /// that the content knows.
    pub fn read(
        &self,
        root_owner: Option<(u32, u32)>,
        names: impl FnOnce() -> Result<UserDatabase, Failure>,
        clock: WallClock,
    ) -> Result<Ownership, Failure> {
        let open = |path: &PathBuf| FileContexts::open(path).map_err(|error| Failure::tree(path, error));
        let labels = self.selinux.as_ref().map(open).transpose()?.map(Arc::new);
        let (id_maps, device_table) = (self.id_maps.read()?, Arc::new(self.device_table(names)?));
        let (seconds, nanoseconds) = clock.now();
        let moment = Timestamp { seconds, nanoseconds };
        let list = |path: &PathBuf| {
            let text = fs::read(path).map_err(|error| Failure::host(path, &error))?;
            VerityList::parse(path, &text).map_err(|error| Failure::tree(path, error))
        };
        let verity_files = Arc::new(self.fs_verity.as_ref().map(list).transpose()?.unwrap_or_default());
        Ok(Ownership { owner: self.chown, root_owner, id_maps, device_table, labels, moment, verity_files })
    }

    fn device_table(
        &self,
        names: impl FnOnce() -> Result<UserDatabase, Failure>,
    ) -> Result<DeviceTable, Failure> {
        let read = |path: &PathBuf| read_table(path).map_err(|error| Failure::host(path, &error));
        let texts = self.device_table.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let has_names = texts.iter().any(|(text, _)| DeviceTable::has_names(text));
        let names = if has_names { names()? } else { UserDatabase::default() };
        let mut table = DeviceTable::default();
        for (path, (text, mtime)) in self.device_table.iter().zip(texts) {
            table.read(path, &text, mtime, &names).map_err(|error| Failure::tree(path, error))?;
        }
        Ok(table)
    }
}

/// The lines of a table, and when it was changed.
fn read_table(path: &Path) -> io::Result<(Vec<u8>, Timestamp)> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok((text, file.metadata()?.modified()?.into()))
}

/// Changes the owners and labels of entries.
#[derive(Default)]
pub struct Ownership {
    owner: Option<(u32, u32)>,
    root_owner: Option<(u32, u32)>,
    id_maps: IdMaps,
    device_table: Arc<DeviceTable>,
    labels: Option<Arc<FileContexts>>,
    /// The time of directories that only labels need.
    moment: Timestamp,
    /// Files that are verity files once they are written.
    pub verity_files: Arc<VerityList>,
}

impl Ownership {
    /// What `source` pours, with other owners.
    pub fn apply(&self, source: impl Source + Send + 'static) -> Box<dyn Source + Send> {
        let (owner, root_owner, id_maps) = (self.owner, self.root_owner, self.id_maps.clone());
        let source = Adjust::new(source, move |entry: &mut Entry| {
            id_maps.apply(entry)?;
            if let Some((uid, gid)) = owner {
                (entry.attributes.uid, entry.attributes.gid) = (uid, gid);
            }
            Ok(())
        });
        let source = Tabled::new(source, self.device_table.clone());
        let source: Box<dyn Source + Send> = match &self.labels {
            Some(labels) => Box::new(Labelled::new(source, labels.clone(), self.moment)),
            None => Box::new(source),
        };
        Box::new(Adjust::new(source, move |entry: &mut Entry| {
            if let Some((uid, gid)) = root_owner.filter(|_| entry.path.is_root()) {
                (entry.attributes.uid, entry.attributes.gid) = (uid, gid);
            }
            Ok(())
        }))
    }
}
