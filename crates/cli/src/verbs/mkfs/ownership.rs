//! Owners of what a new disk is filled with, which the host need not know.

use clap::Args;
use extant_archive::{Adjust, Entry, IdMaps, Source};

use crate::failure::Failure;
use crate::id_maps::IdMapOptions;

/// Whose everything is.
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

    /// What the options say; the root directory goes to `root_owner`, if there is one.
    pub fn read(&self, root_owner: Option<(u32, u32)>) -> Result<Ownership, Failure> {
        Ok(Ownership { owner: self.chown, root_owner, id_maps: self.id_maps.read()? })
    }
}

/// Changes the owners of entries.
#[derive(Default)]
pub struct Ownership {
    owner: Option<(u32, u32)>,
    root_owner: Option<(u32, u32)>,
    id_maps: IdMaps,
}

impl Ownership {
    /// What `source` pours, with other owners.
    pub fn apply<S: Source + Send>(&self, source: S) -> impl Source + Send + use<S> {
        let (owner, root_owner, id_maps) = (self.owner, self.root_owner, self.id_maps.clone());
        Adjust::new(source, move |entry: &mut Entry| {
            id_maps.apply(entry)?;
            let owner = if entry.path.is_root() { root_owner.or(owner) } else { owner };
            if let Some((uid, gid)) = owner {
                (entry.attributes.uid, entry.attributes.gid) = (uid, gid);
            }
            Ok(())
        })
    }
}
