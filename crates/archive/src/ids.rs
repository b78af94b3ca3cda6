//! Other numbers for users and groups, as a user namespace shows them.
//!
//! A tree that a container's build left on the host has the ids that the host knows it by, 100000 for the container's
//! root. The disk is to have those that the container knows.
//!
//! Source: `kernel/user_namespace.c`, `mappings_overlap`, `map_id_up`; `cap_inode_getsecurity` of
//! `security/commoncap.c`. Test: `tests/command/ownership.rs` of the command.

use std::fmt;
use std::str::FromStr;

use extant_ondisk::acl::{Acl, AclEntry, AclTag};

use crate::capability::{CAPABILITY, FileCapabilities};
use crate::entry::{ACL_ACCESS, ACL_DEFAULT, Entry, EntryKind};
use crate::error::{Error, Result};

/// One range of ids: those of the source from HOST on are those of the disk from CONTAINER on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    container: u32,
    host: u32,
    count: u32,
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.container, self.host, self.count)
    }
}

impl FromStr for IdRange {
    type Err = &'static str;

    /// Parses `CONTAINER:HOST:COUNT`, or `CONTAINER:HOST` for one id.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Option<Vec<u32>> =
            text.split(':').map(|digits| digits.parse().ok().filter(|_| !digits.starts_with('+'))).collect();
        let (container, host, count) = match numbers.as_deref() {
            Some(&[container, host]) => (container, host, 1),
            Some(&[container, host, count]) => (container, host, count),
            _ => return Err("not CONTAINER:HOST:COUNT, three numbers"),
        };
        let range = Self { container, host, count };
        // The last number of all is no id.
        let ends = [container, host].map(|first| first.checked_add(count));
        match (count, ends) {
            (0, _) => Err("a range of no ids"),
            (_, [Some(_), Some(_)]) => Ok(range),
            _ => Err("a range that goes past the last id, 4294967294"),
        }
    }
}

impl IdRange {
    fn map(self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.host).filter(|offset| *offset < self.count)?;
        Some(self.container + offset)
    }

    fn overlaps(self, other: Self) -> bool {
        let meet = |a: u32, b: u32| a < b + other.count && b < a + self.count;
        meet(self.host, other.host) || meet(self.container, other.container)
    }
}

/// Ranges of ids, none of which share an id on either side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

impl IdMap {
    /// A map of these ranges; without any, every id stays.
    ///
    /// # Errors
    /// The two ranges that share an id on one side.
    pub fn new(ranges: Vec<IdRange>) -> Result<Self, [IdRange; 2]> {
        for (at, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[..at].iter().find(|other| range.overlaps(**other)) {
                return Err([*other, *range]);
            }
        }
        Ok(Self(ranges))
    }

    /// The id on the disk; none for one that the map does not have.
    #[must_use]
    pub fn map(&self, id: u32) -> Option<u32> {
        if self.0.is_empty() {
            return Some(id);
        }
        self.0.iter().find_map(|range| range.map(id))
    }
}

/// The maps of users and of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMaps {
    /// Users.
    pub users: IdMap,
    /// Groups.
    pub groups: IdMap,
}

impl IdMaps {
    /// Changes the ids of an entry: its owner and group, those in its access control lists, and the root user of its
    /// capabilities.
    ///
    /// # Errors
    /// [`Error::Unmapped`] for an id that the maps do not have; [`Error::Refused`] for attributes that cannot be read.
    pub fn apply(&self, entry: &mut Entry) -> Result<()> {
        if matches!(entry.kind, EntryKind::HardLink(_)) || *self == Self::default() {
            return Ok(());
        }
        let path = &entry.path;
        let map = |ids: &IdMap, what, id| {
            let unmapped = || {
                format!("{what}, {id}, is in no range that is mapped; add one, or change it in the source")
            };
            ids.map(id).ok_or_else(|| Error::Unmapped { path: path.clone(), reason: unmapped() })
        };
        let user = |what, id| map(&self.users, what, id);
        let group = |what, id| map(&self.groups, what, id);
        let refused = |reason| Error::Refused { path: path.clone(), reason };
        let attributes = &mut entry.attributes;
        attributes.uid = user("its user", attributes.uid)?;
        attributes.gid = group("its group", attributes.gid)?;
        for (name, value) in &mut attributes.xattrs {
            if name == ACL_ACCESS || name == ACL_DEFAULT {
                let malformed = |_| refused("malformed access control list");
                let Some(acl) = Acl::from_xattr(value).map_err(malformed)? else { continue };
                let entry = |entry: &AclEntry| {
                    let tag = match entry.tag {
                        AclTag::User(id) => AclTag::User(user("a user of its access control list", id)?),
                        AclTag::Group(id) => AclTag::Group(group("a group of its access control list", id)?),
                        tag => tag,
                    };
                    Ok(AclEntry { tag, perm: entry.perm })
                };
                let entries = acl.entries().iter().map(entry).collect::<Result<Vec<_>>>()?;
                *value = Acl::new(entries).map_err(malformed)?.to_xattr();
            } else if name == CAPABILITY && self.users != IdMap::default() {
                let capabilities =
                    FileCapabilities::parse(value).ok_or_else(|| refused("malformed capabilities"))?;
                let root = user("the root user of its capabilities", capabilities.root)?;
                *value = FileCapabilities { root, ..capabilities }.to_bytes();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_podman_and_umoci_read_them() {
        let parse = |text: &str| text.parse::<IdRange>();
        assert_eq!(parse("0:100000:65536"), Ok(IdRange { container: 0, host: 100_000, count: 65536 }));
        assert_eq!(parse("5:7"), Ok(IdRange { container: 5, host: 7, count: 1 }));
        assert!(parse("0:4294967294:1").is_ok());
        for text in [
            "",
            "1",
            "1:2:0",
            "1:2:3:4",
            "a:1:1",
            "+1:1:1",
            "0:4294967295:1",
            "4294967295:0:1",
            "1:1:4294967295",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_id_is_of_one_range_on_either_side() {
        let range = |text: &str| text.parse::<IdRange>().unwrap();
        let map = IdMap::new(vec![range("0:1000:1"), range("1:100000:10")]).unwrap();
        let ids = [999, 1000, 1001, 100_000, 100_009, 100_010, 0].map(|id| map.map(id));
        assert_eq!(ids, [None, Some(0), None, Some(1), Some(10), None, None]);
        for second in ["0:2000:1", "5:1009:1", "9:500:501"] {
            assert!(IdMap::new(vec![range("0:1000:10"), range(second)]).is_err(), "{second}");
        }
        assert!(IdMap::new(vec![range("0:1000:10"), range("10:990:10")]).is_ok());
        assert_eq!(IdMap::default().map(7), Some(7));
    }
}
