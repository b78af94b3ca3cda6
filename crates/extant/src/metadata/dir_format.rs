//! How directories are laid out, which the superblock says.

use extant_ondisk::dir_hash::{DirHasher, HashVersion};
use extant_ondisk::{
    CompatFeatures, FileType, IncompatFeatures, InodeFlags, RawInode, SuperFlags, Superblock, dirent,
};

/// How the directories of a volume are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirFormat {
    pub(crate) block_bytes: usize,
    /// Bytes of a linear block that hold entries.
    pub(crate) usable: usize,
    pub(crate) has_csum: bool,
    /// Entries say what their inodes are.
    pub(crate) has_file_type: bool,
    /// The flags of directories, of those that change the form of names, that there may be.
    pub(crate) forms: InodeFlags,
    /// Directories that overflow a block are indexed.
    pub(crate) has_index: bool,
    pub(crate) has_large_dir: bool,
    pub(crate) hash_version: HashVersion,
    pub(crate) unsigned_hash: bool,
    pub(crate) hash_seed: [u32; 4],
}

impl DirFormat {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let block_bytes = superblock.block_size() as usize;
        let has_csum = superblock.has_metadata_csum();
        let unsigned_hash = superblock.flags().contains(SuperFlags::UNSIGNED_HASH);
        // The kernel takes half an MD4 where a disk names no hash that it knows.
        let unknown = if unsigned_hash { HashVersion::HalfMd4Unsigned } else { HashVersion::HalfMd4 };
        let hash_version =
            HashVersion::from_disk(superblock.s_def_hash_version(), unsigned_hash).unwrap_or(unknown);
        let incompat = superblock.incompat();
        let mut forms = InodeFlags::empty();
        forms.set(InodeFlags::ENCRYPT, incompat.contains(IncompatFeatures::ENCRYPT));
        forms.set(InodeFlags::CASEFOLD, incompat.contains(IncompatFeatures::CASEFOLD));
        Self {
            block_bytes,
            usable: dirent::usable_bytes(block_bytes, has_csum),
            has_csum,
            has_file_type: superblock.incompat().contains(IncompatFeatures::FILETYPE),
            forms,
            has_index: superblock.compat().contains(CompatFeatures::DIR_INDEX),
            has_large_dir: superblock.incompat().contains(IncompatFeatures::LARGEDIR),
            hash_version,
            unsigned_hash,
            hash_seed: superblock.s_hash_seed(),
        }
    }

    /// The hash of directories that have no index yet.
    pub(crate) fn default_hasher(&self) -> DirHasher {
        DirHasher::new(self.hash_version, self.hash_seed)
    }

    /// The type byte of an entry.
    pub(crate) fn file_type_byte(&self, file_type: FileType) -> u8 {
        if self.has_file_type { file_type.dirent_byte() } else { FileType::Unknown.dirent_byte() }
    }

    pub(crate) fn file_type(&self, byte: u8) -> Option<FileType> {
        match FileType::from_dirent(byte) {
            FileType::Unknown => None,
            file_type => self.has_file_type.then_some(file_type),
        }
    }

    /// Whether a directory has an index that is to be used.
    pub(crate) fn is_indexed(&self, dir: &RawInode) -> bool {
        self.has_index && dir.flags().contains(InodeFlags::INDEX) && !dir.has_inline_data()
    }
}
