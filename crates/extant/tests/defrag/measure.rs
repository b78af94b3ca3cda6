//! How a disk is broken up.

use extant::{FileType, Filesystem};

/// How files and free space are broken up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measure {
    /// Runs of blocks of all files and directories.
    pub runs: u64,
    /// Runs that they need: one for each part without a hole, or for 32,768 blocks of it.
    pub needed: u64,
    /// Blocks of directories.
    pub directory_blocks: u64,
    pub free_runs: u64,
    pub free_blocks: u64,
    pub longest_free: u64,
    /// The length of the free run that a free block lies in, on average.
    pub around_free_block: u64,
}

pub fn measure(fs: &Filesystem) -> Measure {
    let mut found = Measure::default();
    let mut free = Vec::new();
    fs.free_runs(|start, len| match free.last_mut() {
        Some((from, before)) if *from + *before == start => *before += u64::from(len),
        _ => free.push((start, u64::from(len))),
    })
    .expect("free runs");
    found.free_runs = free.len() as u64;
    found.free_blocks = free.iter().map(|(_, len)| len).sum();
    found.longest_free = free.iter().map(|(_, len)| *len).max().unwrap_or(0);
    found.around_free_block = free.iter().map(|(_, len)| len * len).sum::<u64>() / found.free_blocks.max(1);
    let mut folders = vec!["/".to_owned()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let own = fs.lookup(&folder).expect("a directory");
        add(&mut found, &own);
        found.directory_blocks += own.metadata().size / u64::from(fs.statistics().block_size);
        for entry in fs.dir(&folder).and_then(|dir| dir.entries()).expect("a directory") {
            if matches!(entry.name.as_slice(), b"." | b"..") || !seen.insert(entry.inode) {
                continue;
            }
            let path = format!("{folder}{}", String::from_utf8_lossy(&entry.name));
            match fs.symlink_metadata(&path).expect("metadata").file_type {
                FileType::Directory => folders.push(path + "/"),
                FileType::Regular => add(&mut found, &fs.lookup(&path).expect("a file")),
                _ => {}
            }
        }
    }
    found
}

fn add(found: &mut Measure, file: &extant::File) {
    let extents = file.extents(0, u64::MAX >> 1).expect("extents");
    let mut parts: Vec<u64> = Vec::new();
    let mut last = None;
    for extent in extents {
        let (logical, start, len) = (u64::from(extent.logical.0), extent.start.0, u64::from(extent.len));
        let (is_joined, is_next) =
            last.map_or((false, false), |(end, block)| (end == logical && block == start, end == logical));
        found.runs += u64::from(!is_joined);
        match parts.last_mut() {
            Some(part) if is_next => *part += len,
            _ => parts.push(len),
        }
        last = Some((logical + len, start + len));
    }
    found.needed += parts.iter().map(|len| len.div_ceil(32_768)).sum::<u64>();
}
