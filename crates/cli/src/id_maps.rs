//! Options that give users and groups of a source other numbers on a disk.

use clap::Args;
use extant_archive::{IdMap, IdMaps, IdRange};

use crate::failure::Failure;

/// Ranges of users and of groups.
#[derive(Args)]
pub struct IdMapOptions {
    /// Users HOST and up of the source become CONTAINER and up on the disk, COUNT of them (1 if not given); may be
    /// repeated. A user in no range is refused. Access control lists and capabilities follow
    #[arg(long = "uid-map", value_name = "CONTAINER:HOST[:COUNT]")]
    uid_map: Vec<IdRange>,
    /// As --uid-map for groups; without it they stay
    #[arg(long = "gid-map", value_name = "CONTAINER:HOST[:COUNT]")]
    gid_map: Vec<IdRange>,
}

impl IdMapOptions {
    /// Whether there are any.
    pub fn are_given(&self) -> bool {
        !self.uid_map.is_empty() || !self.gid_map.is_empty()
    }

    /// The maps.
    pub fn read(&self) -> Result<IdMaps, Failure> {
        let map = |option: &str, ranges: &[IdRange]| {
            IdMap::new(ranges.to_vec()).map_err(|[first, second]| {
                Failure::usage(format!("{option} {first} and {second} share an id"))
            })
        };
        Ok(IdMaps { users: map("--uid-map", &self.uid_map)?, groups: map("--gid-map", &self.gid_map)? })
    }
}
