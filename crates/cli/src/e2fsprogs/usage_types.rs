//! What `mke2fs.conf` of Debian 12 says of types of file systems and of their use.

use crate::failure::Failure;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Features that every type has.
const BASE_FEATURES: &str = "none,sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
const BLOCK_SIZE: u32 = 4096;
const INODE_RATIO: u32 = 16384;

/// Features of ext2, ext3 or ext4.
pub fn features(fs_type: &str) -> Result<String, Failure> {
    let more = match fs_type {
        "ext2" => "",
        "ext3" => ",has_journal",
        "ext4" => ",has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize",
        _ => return Err(Failure::usage(format!("the {fs_type} filesystem type is not served"))),
    };
    Ok(format!("{BASE_FEATURES}{more}"))
}

/// The type of use that a disk of so many bytes has if none is asked for.
pub fn by_size(bytes: u64) -> &'static str {
    match bytes {
        n if n < 3 * MIB => "floppy",
        n if n < 512 * MIB => "small",
        n if n < 4 * TIB => "default",
        n if n < 16 * TIB => "big",
        _ => "huge",
    }
}

/// What types of use choose; of several the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of the disk for each inode.
    pub inode_ratio: u32,
}

/// What the types of use in `names`, separated by commas, choose, and those that are not known.
pub fn chosen(names: &str) -> (Chosen, Vec<&str>) {
    let mut chosen = Chosen { block_size: BLOCK_SIZE, inode_ratio: INODE_RATIO };
    let mut unknown = Vec::new();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let (block_size, inode_ratio) = match name {
            "default" => continue,
            "small" => (Some(1024), 4096),
            "floppy" => (Some(1024), 8192),
            "big" => (None, 32768),
            "huge" => (None, 65536),
            "news" => (None, 4096),
            // A block is as large as a page.
            "largefile" => (Some(BLOCK_SIZE), 1 << 20),
            "largefile4" => (Some(BLOCK_SIZE), 4 << 20),
            _ => {
                unknown.push(name);
                continue;
            }
        };
        chosen = Chosen { block_size: block_size.unwrap_or(chosen.block_size), inode_ratio };
    }
    (chosen, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_type_of_use_counts() {
        let of = |names| chosen(names).0;
        assert_eq!(of("default"), Chosen { block_size: 4096, inode_ratio: 16384 });
        assert_eq!(of("small,largefile"), Chosen { block_size: 4096, inode_ratio: 1 << 20 });
        assert_eq!(of("floppy,news"), Chosen { block_size: 1024, inode_ratio: 4096 });
        assert_eq!(chosen("news,odd").1, ["odd"]);
        assert_eq!(
            [by_size(3 * MIB - 1), by_size(3 * MIB), by_size(512 * MIB), by_size(16 * TIB)],
            ["floppy", "small", "default", "huge"]
        );
    }
}
