//! Ids of users and groups by name, from a disk's own `/etc/passwd` and `/etc/group`.

use std::collections::HashMap;

use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};

/// Users and groups by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDatabase {
    users: HashMap<Vec<u8>, (u32, u32)>,
    groups: HashMap<Vec<u8>, u32>,
}

impl UserDatabase {
    /// Parses the two files; malformed lines are skipped, and of two lines for a name the first counts.
    #[must_use]
    pub fn parse(passwd: &[u8], group: &[u8]) -> Self {
        let mut names = Self::default();
        for fields in lines(passwd) {
            if let [name, _, uid, gid, ..] = fields.as_slice()
                && let (Some(uid), Some(gid)) = (number(uid), number(gid))
            {
                names.users.entry(name.to_vec()).or_insert((uid, gid));
            }
        }
        for fields in lines(group) {
            if let [name, _, gid, ..] = fields.as_slice()
                && let Some(gid) = number(gid)
            {
                names.groups.entry(name.to_vec()).or_insert(gid);
            }
        }
        names
    }

    /// Those that a tree's own `/etc/passwd` and `/etc/group` have.
    ///
    /// # Errors
    /// The source's.
    pub fn in_tree(source: &mut dyn Source) -> Result<Self> {
        let mut files = DatabaseFiles::default();
        match source.pour(&mut files, Extent::Everything) {
            Ok(()) => {}
            Err(Error::Cancelled) if files.are_complete() => {}
            Err(error) => return Err(error),
        }
        let [passwd, group] = files.files.map(Option::unwrap_or_default);
        Ok(Self::parse(&passwd, &group))
    }

    /// Knows also those of `others` whose names are not known yet.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        for (name, ids) in others.users {
            self.users.entry(name).or_insert(ids);
        }
        for (name, gid) in others.groups {
            self.groups.entry(name).or_insert(gid);
        }
        self
    }

    /// The user of that name, or of that number.
    #[must_use]
    pub fn user(&self, name: &[u8]) -> Option<u32> {
        self.users.get(name).map(|(uid, _)| *uid).or_else(|| number(name))
    }

    /// The group that the user of that name begins with.
    #[must_use]
    pub fn login_group(&self, name: &[u8]) -> Option<u32> {
        self.users.get(name).map(|(_, gid)| *gid)
    }

    /// The group of that name, or of that number.
    #[must_use]
    pub fn group(&self, name: &[u8]) -> Option<u32> {
        self.groups.get(name).copied().or_else(|| number(name))
    }
}

/// Keeps the two files of a tree; ends when both are there.
#[derive(Default)]
struct DatabaseFiles {
    files: [Option<Vec<u8>>; 2],
    current: Option<usize>,
}

impl DatabaseFiles {
    /// Bytes that are read of a file.
    const BYTES_MAX: usize = 16 << 20;

    fn are_complete(&self) -> bool {
        self.current.is_none() && self.files.iter().all(Option::is_some)
    }
}

impl Sink for DatabaseFiles {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.current = None;
        if self.are_complete() {
            return Err(Error::Cancelled);
        }
        if let EntryKind::File(_) = entry.kind {
            let names = [&[&b"etc"[..], b"passwd"][..], &[b"etc", b"group"]];
            self.current = names.into_iter().position(|name| entry.path.components() == name);
        }
        if let Some(at) = self.current {
            self.files[at] = Some(Vec::new());
        }
        Ok(())
    }

    fn content(&mut self, _offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if let Some(Some(file)) = self.current.map(|at| &mut self.files[at]) {
            let room = Self::BYTES_MAX.saturating_sub(file.len());
            file.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        Ok(bytes)
    }

    fn is_skipping(&self) -> bool {
        self.current.is_none()
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

fn lines(file: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    file.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':').collect())
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_found() {
        let names = UserDatabase::parse(
            b"root:x:0:0::/root:/bin/sh\nweb:x:33:34::\nbad\nweb:x:1:1::\n",
            b"www:x:34:\n",
        );
        assert_eq!(
            (names.user(b"web"), names.login_group(b"web"), names.group(b"www")),
            (Some(33), Some(34), Some(34))
        );
        let both = names.clone().or(UserDatabase::parse(b"web:x:5:5::\nman:x:6:6::\n", b""));
        assert_eq!((both.user(b"web"), both.user(b"man")), (Some(33), Some(6)));
        assert_eq!((names.user(b"77"), names.group(b"+7"), names.user(b"nobody")), (Some(77), None, None));
    }
}
