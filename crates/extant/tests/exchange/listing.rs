//! A side's view: every path with all that must survive the other side.

use std::collections::BTreeMap;

/// One inode as a side sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u64,
    pub size: u64,
    pub blocks_512: u64,
    pub mtime: (i64, i64),
    pub device: (u32, u32),
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree, by path.
#[derive(Clone, Debug, Default)]
pub struct Listing(pub BTreeMap<Vec<u8>, Seen>);

/// The state that a side found at the start of its turn and left at the end.
pub struct Turn {
    pub found: Listing,
    pub left: Listing,
}

impl Listing {
    pub fn assert_equals(&self, other: &Self, what: &str) {
        for (path, seen) in &self.0 {
            let path = String::from_utf8_lossy(path);
            match other.0.get(path.as_bytes()) {
                None => panic!("{what}: {path} is lost"),
                Some(found) if found != seen => {
                    panic!("{what}: {path} differs\nleft  {:?}\nfound {:?}", short(seen), short(found))
                }
                Some(_) => {}
            }
        }
        for path in other.0.keys() {
            assert!(self.0.contains_key(path), "{what}: {} was not there", String::from_utf8_lossy(path));
        }
    }
}

/// Without most of a long content.
fn short(seen: &Seen) -> Seen {
    let sum = seen.content.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    Seen { content: format!("{} bytes, sum {sum:x}", seen.content.len()).into_bytes(), ..seen.clone() }
}
