//! Owners of files: the mapping between ids on the disk and ids on the host.

/// How owners on the disk and on the host correspond. User and group go alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owners {
    /// The same numbers.
    #[default]
    AsStored,
    /// Everything appears as this user's and group's, and is stored as root's.
    Own {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// Root and this user change places, and so do their groups.
    Swap {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

const fn swap(id: u32, own: u32) -> u32 {
    if id == 0 {
        own
    } else if id == own {
        0
    } else {
        id
    }
}

impl Owners {
    /// The host's numbers for those of the disk.
    #[must_use]
    pub const fn shown(self, uid: u32, gid: u32) -> (u32, u32) {
        match self {
            Self::AsStored => (uid, gid),
            Self::Own { uid, gid } => (uid, gid),
            Self::Swap { uid: own, gid: group } => (swap(uid, own), swap(gid, group)),
        }
    }

    /// The disk's numbers for those of the host.
    #[must_use]
    pub const fn stored(self, uid: u32, gid: u32) -> (u32, u32) {
        match self {
            Self::AsStored => (uid, gid),
            Self::Own { .. } => (0, 0),
            Self::Swap { uid: own, gid: group } => (swap(uid, own), swap(gid, group)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Owners;

    #[test]
    fn swapped_owners_come_back() {
        let owners = Owners::Swap { uid: 1000, gid: 100 };
        assert_eq!(owners.shown(0, 0), (1000, 100));
        for ids in [(0, 0), (1000, 100), (1000, 0), (7, 8), (100, 1000)] {
            let (uid, gid) = owners.shown(ids.0, ids.1);
            assert_eq!(owners.stored(uid, gid), ids);
        }
    }

    #[test]
    fn own_files_are_stored_as_roots() {
        let owners = Owners::Own { uid: 1000, gid: 100 };
        assert_eq!(owners.shown(5, 6), (1000, 100));
        assert_eq!(owners.stored(1000, 100), (0, 0));
    }
}
