//! A sink that keeps everything.

use std::collections::BTreeMap;

use extant_archive::{Entry, EntryKind, Extent, Result, Sink, Source};

/// Entries and content, in the order they came.
#[derive(Default)]
pub struct Collect {
    pub entries: Vec<Entry>,
    pub contents: BTreeMap<Vec<u8>, Vec<u8>>,
    pub finished: bool,
}

impl Collect {
    /// Everything that `source` pours.
    pub fn all(mut source: impl Source) -> Result<Self> {
        let mut collect = Self::default();
        source.pour(&mut collect, Extent::Everything)?;
        assert!(collect.finished);
        Ok(collect)
    }

    /// The entries by path, as text that compares well.
    pub fn by_path(&self) -> BTreeMap<String, Entry> {
        self.entries.iter().map(|entry| (entry.path.to_string(), entry.clone())).collect()
    }
}

impl Sink for Collect {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        if let EntryKind::File(shape) = &entry.kind {
            self.contents.insert(entry.path.to_bytes(), vec![0; shape.size as usize]);
        }
        self.entries.push(entry);
        Ok(())
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let path = self.entries.last().unwrap().path.to_bytes();
        let at = offset as usize;
        self.contents.get_mut(&path).unwrap()[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.finished = true;
        Ok(())
    }
}
