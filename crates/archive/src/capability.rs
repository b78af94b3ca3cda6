//! Capabilities of files, the value of `security.capability`.
//!
//! Source: `include/uapi/linux/capability.h`, `struct vfs_ns_cap_data`; `cap_inode_getsecurity` of
//! `security/commoncap.c`.

/// The extended attribute that holds the capabilities of a file.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const REVISION_MASK: u32 = 0xff00_0000;
const REVISION_1: u32 = 0x0100_0000;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
const EFFECTIVE: u32 = 1;

/// The capabilities that a program gets from its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileCapabilities {
    /// Whether the program begins with its permitted ones in effect.
    pub effective: bool,
    /// One bit for each capability.
    pub permitted: u64,
    /// Likewise.
    pub inheritable: u64,
    /// The user who is root of the user namespaces where they count.
    pub root: u32,
}

impl FileCapabilities {
    /// Reads a value of revision 1, 2 or 3. None if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (words, rest) = value.as_chunks::<4>();
        if !rest.is_empty() {
            return None;
        }
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (magic, sets) = words.split_first()?;
        let (low, high, root) = match (magic & REVISION_MASK, sets) {
            (REVISION_1, &[permitted, inheritable]) => ((permitted, inheritable), (0, 0), 0),
            (REVISION_2, &[p0, i0, p1, i1]) => ((p0, i0), (p1, i1), 0),
            (REVISION_3, &[p0, i0, p1, i1, root]) => ((p0, i0), (p1, i1), root),
            _ => return None,
        };
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Some(Self {
            effective: magic & EFFECTIVE != 0,
            permitted: join(low.0, high.0),
            inheritable: join(low.1, high.1),
            root,
        })
    }

    /// The value: of revision 2 for the root of all namespaces, else of revision 3.
    pub fn to_bytes(self) -> Vec<u8> {
        let revision = if self.root == 0 { REVISION_2 } else { REVISION_3 };
        let mut words = vec![revision | if self.effective { EFFECTIVE } else { 0 }];
        for shift in [0, 32] {
            words.extend([self.permitted, self.inheritable].map(|set| (set >> shift) as u32));
        }
        if self.root != 0 {
            words.push(self.root);
        }
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_read_and_the_shortest_is_written() {
        let all = FileCapabilities { effective: true, permitted: 1 << 40 | 1 << 13, inheritable: 4, root: 7 };
        let value = all.to_bytes();
        assert_eq!((value.len(), FileCapabilities::parse(&value)), (24, Some(all)));
        let of_root = FileCapabilities { root: 0, ..all };
        let value = of_root.to_bytes();
        assert_eq!((value.len(), FileCapabilities::parse(&value)), (20, Some(of_root)));
        let first = [REVISION_1, 1 << 13, 0].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(FileCapabilities::parse(&first).unwrap().permitted, 1 << 13);
        for len in 0..value.len() {
            assert_eq!(FileCapabilities::parse(&value[..len]), None, "{len}");
        }
    }
}
