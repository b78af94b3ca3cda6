//! Paths from bytes of others, which may lead out of the tree.

use super::TreePath;
use crate::error::{Error, Result};

impl TreePath {
    /// The path that `bytes` spell. A leading slash, empty components and `.` mean nothing.
    ///
    /// # Errors
    /// [`Error::UnsafeName`] for `..`, which would lead out of the tree, and for a NUL.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        PathReader::default().read(bytes)
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// [`Error::UnsafeName`] if `name` is not a component.
    pub fn join(&self, name: &[u8]) -> Result<Self> {
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(Error::UnsafeName(name.to_vec()));
        }
        Ok(self.clone().below(name))
    }
}

/// Reads paths one after the other. A common prefix of two paths is read once and shared, so a tree listed by whole paths
/// costs no more memory than its names.
#[derive(Debug, Default)]
pub(crate) struct PathReader {
    last: Vec<u8>,
    /// The end of each component in `last`, and the path up to there.
    levels: Vec<(usize, TreePath)>,
}

impl PathReader {
    /// The path that `bytes` spell.
    ///
    /// # Errors
    /// As [`TreePath::parse`].
    pub fn read(&mut self, bytes: &[u8]) -> Result<TreePath> {
        let same = self.last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let is_kept =
            |(end, _): &(usize, TreePath)| *end <= same && bytes.get(*end).is_none_or(|next| *next == b'/');
        while self.levels.pop_if(|level| !is_kept(level)).is_some() {}
        let (mut at, mut path) = self.levels.last().cloned().unwrap_or_default();
        self.last.truncate(at);
        for component in bytes[at..].split(|byte| *byte == b'/') {
            let end = at + component.len();
            match component {
                b"" | b"." => {}
                b".." => return Err(Error::UnsafeName(bytes.to_vec())),
                _ if component.contains(&0) => return Err(Error::UnsafeName(bytes.to_vec())),
                _ => {
                    path = path.below(component);
                    self.last.extend(&bytes[self.last.len()..end]);
                    self.levels.push((end, path.clone()));
                }
            }
            at = end + 1;
        }
        Ok(path)
    }
}
