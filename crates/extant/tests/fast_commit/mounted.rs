//! What Linux shows of a disk that it has mounted.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use extant_testing::{run, text, unmount};

/// A disk that Linux has mounted; unmounted on drop.
pub struct Mounted {
    pub point: PathBuf,
}

impl Mounted {
    pub fn new(image: &Path, options: &str) -> Result<Self, String> {
        let point = image.with_extension("mounted");
        fs::create_dir_all(&point).expect("a folder");
        run("mount", &["-o", &format!("loop,{options}"), text(image), text(&point)])?;
        Ok(Self { point })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.point);
    }
}

/// What Linux shows of an inode: type and mode, links, owner, size, time of the last change, and content.
#[derive(Clone, PartialEq, Eq)]
pub struct Shown {
    mode: u32,
    links: u64,
    owner: (u32, u32),
    size: u64,
    mtime: (i64, i64),
    content: Vec<u8>,
}

impl Shown {
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn has(&self, content: &[u8]) -> bool {
        self.content == content
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum = self.content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        let Self { mode, links, owner, size, mtime, .. } = self;
        write!(f, "{mode:o} {links} links {owner:?} {size} bytes {mtime:?} {sum:x}")
    }
}

pub type Tree = BTreeMap<PathBuf, Shown>;

/// The tree below a folder. Of folders only the names count.
pub fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let of = path.symlink_metadata().expect("metadata");
            let mut content = Vec::new();
            if of.is_symlink() {
                content = fs::read_link(&path).expect("a target").into_os_string().into_encoded_bytes();
            } else if of.is_file() {
                fs::File::open(&path).expect("open").read_to_end(&mut content).expect("read");
            } else if of.is_dir() {
                folders.push(path.clone());
            }
            let is_dir = of.is_dir();
            let shown = Shown {
                mode: of.mode(),
                links: if is_dir { 0 } else { of.nlink() },
                owner: (of.uid(), of.gid()),
                size: if is_dir { 0 } else { of.size() },
                mtime: if is_dir { (0, 0) } else { (of.mtime(), of.mtime_nsec()) },
                content,
            };
            found.insert(path.strip_prefix(root).expect("below").to_owned(), shown);
        }
    }
    found
}

/// Where two trees differ.
pub fn differences(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let paths: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differs = paths.into_iter().filter(|path| ours.get(*path) != theirs.get(*path));
    differs.map(|path| format!("{path:?}: {:?}, then {:?}", ours.get(path), theirs.get(path))).collect()
}
