//! Feature flags of the superblock, by the names that `mke2fs` and `dumpe2fs` use.
//!
//! Bits without a name are kept: the mount decides about an unknown feature.

use std::fmt;

macro_rules! features {
    (
        $(#[$doc:meta])*
        $name:ident, $letter:literal {
            $($(#[doc = $flag_doc:literal])* $flag:ident = $bits:literal, $spelling:literal $(or $alias:literal)?;)*
        }
    ) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u32 {
                $($(#[doc = $flag_doc])* const $flag = $bits;)*
            }
        }

        impl $name {
            /// The names of the flags that are set and have one, in the order of their bits.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((Self::$flag, $spelling)),*]
                    .into_iter()
                    .filter(move |(flag, _)| self.contains(*flag))
                    .map(|(_, name)| name)
            }

            /// The flag of this name, as `mke2fs -O` takes it. (`from_name` takes the name of the constant.)
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                match name {
                    $($spelling $(| $alias)? => Some(Self::$flag),)*
                    _ => None,
                }
            }

            /// The flags that are set, those without a name as e2fsprogs calls them: `FEATURE_I30` is bit 30 of the
            /// incompatible ones.
            pub fn all_names(self) -> impl Iterator<Item = String> {
                let unknown = self.unknown().bits();
                let nameless = (0..u32::BITS).filter(move |bit| unknown >> bit & 1 != 0);
                self.names()
                    .map(str::to_owned)
                    .chain(nameless.map(|bit| format!(concat!("FEATURE_", $letter, "{}"), bit)))
            }

            /// The bits that are set and have no name.
            #[must_use]
            pub fn unknown(self) -> Self {
                self.difference(Self::all())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut separator = "";
                for name in self.all_names() {
                    write!(f, "{separator}{name}")?;
                    separator = " ";
                }
                Ok(())
            }
        }
    };
}

features! {
    /// Features that a reader and a writer may ignore.
    CompatFeatures, "C" {
        /// Directories get blocks in advance.
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// Inodes of AFS servers.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// There is a journal.
        HAS_JOURNAL = 0x4, "has_journal";
        /// Extended attributes.
        EXT_ATTR = 0x8, "ext_attr";
        /// Blocks are reserved for the growth of the descriptor table.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Directories may have a hash tree.
        DIR_INDEX = 0x20, "dir_index";
        /// Groups may be uninitialised; an experiment.
        LAZY_BG = 0x40, "lazy_bg";
        /// Bitmaps of blocks that snapshots leave out.
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap" or "exclude_bitmap";
        /// Copies of the superblock are in at most two groups.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal may hold fast commits.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and the UUID never change.
        STABLE_INODES = 0x800, "stable_inodes";
        /// Orphans are kept in a file.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

features! {
    /// Features that an implementation must know to interpret the disk.
    IncompatFeatures, "I" {
        /// Compressed files; never merged.
        COMPRESSION = 0x1, "compression";
        /// Directory entries carry the file's type.
        FILETYPE = 0x2, "filetype";
        /// The journal must be replayed.
        RECOVER = 0x4, "needs_recovery";
        /// This is an external journal.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Descriptor blocks are spread over the disk.
        META_BG = 0x10, "meta_bg";
        /// Files may map their blocks by extents.
        EXTENTS = 0x40, "extent" or "extents";
        /// Block numbers have more than 32 bits.
        BIT64 = 0x80, "64bit";
        /// Multiple-mount protection.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables may lie outside of their group.
        FLEX_BG = 0x200, "flex_bg";
        /// Large attribute values lie in inodes.
        EA_INODE = 0x400, "ea_inode";
        /// Directory entries may carry further bytes.
        DIRDATA = 0x1000, "dirdata";
        /// The checksum seed is stored, not made from the UUID.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Hash trees of three levels, and directories above 2 GiB.
        LARGEDIR = 0x4000, "large_dir";
        /// Small files and directories lie in their inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// Encrypted files and names.
        ENCRYPT = 0x1_0000, "encrypt";
        /// Names may be compared without regard to case.
        CASEFOLD = 0x2_0000, "casefold";
    }
}

features! {
    /// Features that an implementation must know to write the disk; without them it may read.
    RoCompatFeatures, "R" {
        /// Not every group has a copy of the superblock.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// Files may exceed 2 GiB.
        LARGE_FILE = 0x2, "large_file";
        /// Directories as B-trees; never used.
        BTREE_DIR = 0x4, "btree_dir";
        /// An inode's block count has 48 bits.
        HUGE_FILE = 0x8, "huge_file";
        /// Descriptors are summed and groups may be uninitialised.
        GDT_CSUM = 0x10, "uninit_bg" or "uninit_groups";
        /// A directory's link count may be 1 for "many".
        DIR_NLINK = 0x20, "dir_nlink";
        /// Inodes reserve room for newer fields.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// There is a snapshot; never merged.
        HAS_SNAPSHOT = 0x80, "snapshot" or "has_snapshot";
        /// Quotas are kept in hidden inodes.
        QUOTA = 0x100, "quota";
        /// Space is allocated in clusters of blocks.
        BIGALLOC = 0x200, "bigalloc";
        /// All metadata is summed.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Replicas; never used.
        REPLICA = 0x800, "replica";
        /// Must not be written.
        READONLY = 0x1000, "read-only" or "readonly";
        /// Inodes carry a project id.
        PROJECT = 0x2000, "project";
        /// Several files may share blocks.
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// Files may be protected by a hash tree.
        VERITY = 0x8000, "verity";
        /// The orphan file is not empty.
        ORPHAN_PRESENT = 0x1_0000, "orphan_present" or "orphan_file_present";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_flag() {
        for flag in CompatFeatures::all().iter() {
            assert_eq!(flag.names().map(CompatFeatures::by_name).collect::<Vec<_>>(), [Some(flag)]);
        }
        for flag in IncompatFeatures::all().iter() {
            assert_eq!(flag.names().map(IncompatFeatures::by_name).collect::<Vec<_>>(), [Some(flag)]);
        }
        for flag in RoCompatFeatures::all().iter() {
            assert_eq!(flag.names().map(RoCompatFeatures::by_name).collect::<Vec<_>>(), [Some(flag)]);
        }
    }

    #[test]
    fn unknown_bits_are_shown_after_the_names() {
        let features = IncompatFeatures::from_bits_retain(0x8000_0042);
        assert_eq!(features.to_string(), "filetype extent FEATURE_I31");
        assert_eq!(features.unknown().bits(), 0x8000_0000);
    }
}
