//! The features of a new file system: the defaults, changes by name, and which exclude each other.
//!
//! Source: `mke2fs.conf` of Debian 12, `mke2fs -O`.

use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

use super::{Error, Result};

/// The three feature words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    pub compat: CompatFeatures,
    pub incompat: IncompatFeatures,
    pub ro_compat: RoCompatFeatures,
}

const COMPAT: CompatFeatures = CompatFeatures::HAS_JOURNAL
    .union(CompatFeatures::EXT_ATTR)
    .union(CompatFeatures::RESIZE_INODE)
    .union(CompatFeatures::DIR_INDEX);
const INCOMPAT: IncompatFeatures = IncompatFeatures::FILETYPE
    .union(IncompatFeatures::EXTENTS)
    .union(IncompatFeatures::BIT64)
    .union(IncompatFeatures::FLEX_BG);
const RO_COMPAT: RoCompatFeatures = RoCompatFeatures::SPARSE_SUPER
    .union(RoCompatFeatures::LARGE_FILE)
    .union(RoCompatFeatures::HUGE_FILE)
    .union(RoCompatFeatures::DIR_NLINK)
    .union(RoCompatFeatures::EXTRA_ISIZE)
    .union(RoCompatFeatures::METADATA_CSUM);

/// Features that can be requested beside the defaults.
const MORE_COMPAT: CompatFeatures = CompatFeatures::SPARSE_SUPER2
    .union(CompatFeatures::STABLE_INODES)
    .union(CompatFeatures::ORPHAN_FILE)
    .union(CompatFeatures::FAST_COMMIT);
const MORE_INCOMPAT: IncompatFeatures = IncompatFeatures::META_BG
    .union(IncompatFeatures::MMP)
    .union(IncompatFeatures::EA_INODE)
    .union(IncompatFeatures::CSUM_SEED)
    .union(IncompatFeatures::LARGEDIR)
    .union(IncompatFeatures::INLINE_DATA);
const MORE_RO_COMPAT: RoCompatFeatures = RoCompatFeatures::GDT_CSUM
    .union(RoCompatFeatures::BIGALLOC)
    .union(RoCompatFeatures::PROJECT)
    .union(RoCompatFeatures::QUOTA)
    .union(RoCompatFeatures::VERITY);

impl Default for Features {
    fn default() -> Self {
        Self { compat: COMPAT, incompat: INCOMPAT, ro_compat: RO_COMPAT }
    }
}

impl Features {
    /// Applies words separated by commas or spaces: a name adds, `^name` removes, `none` removes all.
    pub fn edit(&mut self, words: &str) -> Result<()> {
        for word in words.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                self.compat = CompatFeatures::empty();
                self.incompat = IncompatFeatures::empty();
                self.ro_compat = RoCompatFeatures::empty();
                continue;
            }
            let (name, wanted) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            self.set(name, wanted)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, wanted: bool) -> Result<()> {
        let supported = if let Some(flag) = CompatFeatures::by_name(name) {
            self.compat.set(flag, wanted);
            (COMPAT | MORE_COMPAT).contains(flag)
        } else if let Some(flag) = IncompatFeatures::by_name(name) {
            self.incompat.set(flag, wanted);
            (INCOMPAT | MORE_INCOMPAT).contains(flag)
        } else if let Some(flag) = RoCompatFeatures::by_name(name) {
            self.ro_compat.set(flag, wanted);
            (RO_COMPAT | MORE_RO_COMPAT).contains(flag)
        } else {
            return Err(Error::UnknownFeature(name.to_owned()));
        };
        if wanted && !supported {
            return Err(Error::UnsupportedFeature(name.to_owned()));
        }
        Ok(())
    }

    /// Refuses what excludes each other.
    pub fn check(&mut self, inode_size: u16) -> Result<()> {
        let conflict = |present: bool, message| if present { Err(Error::Conflict(message)) } else { Ok(()) };
        let (has_journal, has_resize) = (self.has_journal(), self.has_resize_inode());
        conflict(
            has_resize && self.incompat.contains(IncompatFeatures::META_BG),
            "the features resize_inode and meta_bg exclude each other",
        )?;
        conflict(
            has_resize
                && !self.ro_compat.contains(RoCompatFeatures::SPARSE_SUPER)
                && !self.has_sparse_super2(),
            "the feature resize_inode needs sparse_super",
        )?;
        conflict(
            self.incompat.contains(IncompatFeatures::CSUM_SEED) && !self.has_metadata_csum(),
            "the feature metadata_csum_seed needs metadata_csum",
        )?;
        conflict(
            self.compat.contains(CompatFeatures::ORPHAN_FILE) && !has_journal,
            "the feature orphan_file needs has_journal",
        )?;
        conflict(
            self.compat.contains(CompatFeatures::FAST_COMMIT) && !has_journal,
            "the feature fast_commit needs has_journal",
        )?;
        conflict(self.has_bigalloc() && !self.has_extents(), "the feature bigalloc needs extent")?;
        conflict(
            inode_size == 128
                && (self.ro_compat.contains(RoCompatFeatures::PROJECT)
                    || self.incompat.contains(IncompatFeatures::INLINE_DATA)),
            "the features project and inline_data need inodes of 256 bytes",
        )?;
        conflict(
            self.ro_compat.contains(RoCompatFeatures::QUOTA)
                && self.incompat.contains(IncompatFeatures::EA_INODE),
            "the usage of values in inodes of their own is not counted: quota excludes ea_inode",
        )?;
        if self.has_metadata_csum() {
            self.ro_compat -= RoCompatFeatures::GDT_CSUM;
        }
        Ok(())
    }

    pub fn has_journal(&self) -> bool {
        self.compat.contains(CompatFeatures::HAS_JOURNAL)
    }

    pub fn has_bigalloc(&self) -> bool {
        self.ro_compat.contains(RoCompatFeatures::BIGALLOC)
    }

    pub fn has_resize_inode(&self) -> bool {
        self.compat.contains(CompatFeatures::RESIZE_INODE)
    }

    pub fn has_sparse_super2(&self) -> bool {
        self.compat.contains(CompatFeatures::SPARSE_SUPER2)
    }

    pub fn has_orphan_file(&self) -> bool {
        self.compat.contains(CompatFeatures::ORPHAN_FILE)
    }

    pub fn has_extents(&self) -> bool {
        self.incompat.contains(IncompatFeatures::EXTENTS)
    }

    pub fn is_64bit(&self) -> bool {
        self.incompat.contains(IncompatFeatures::BIT64)
    }

    pub fn has_flex_bg(&self) -> bool {
        self.incompat.contains(IncompatFeatures::FLEX_BG)
    }

    pub fn has_mmp(&self) -> bool {
        self.incompat.contains(IncompatFeatures::MMP)
    }

    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
    }

    /// Whether descriptors are summed, so that groups may be left uninitialised.
    pub fn has_group_checksums(&self) -> bool {
        self.ro_compat.intersects(RoCompatFeatures::METADATA_CSUM | RoCompatFeatures::GDT_CSUM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_remove_and_clear() {
        let mut features = Features::default();
        features.edit("^64bit,^metadata_csum orphan_file,extents").expect("known names");
        assert!(!features.is_64bit() && !features.has_metadata_csum() && features.has_orphan_file());
        features.edit("none,sparse_super").expect("known names");
        assert_eq!(features.compat.bits() | features.incompat.bits(), 0);
        assert_eq!(features.ro_compat, RoCompatFeatures::SPARSE_SUPER);
    }

    #[test]
    fn what_is_unknown_or_cannot_be_made_is_refused_by_name() {
        let refused = |words| Features::default().edit(words).expect_err("refused").to_string();
        assert_eq!(refused("dir_index,fancy"), "unknown feature 'fancy'");
        assert_eq!(refused("casefold"), "feature 'casefold' is not supported");
        assert!(Features::default().edit("^casefold").is_ok());
    }
}
