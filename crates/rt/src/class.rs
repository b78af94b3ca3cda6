//! Lock classes and the order in which they may be taken.

/// The class of a lock: its name, what it protects, and its rank in the order of locks.
///
/// A thread may take a lock only if its `(rank, key)` is greater than that of every lock it holds; debug
/// builds assert it. Outer locks have smaller ranks.
#[derive(Debug, PartialEq, Eq)]
pub struct LockClass {
    /// Its name in reports.
    pub name: &'static str,
    /// Its place in the order, outer first.
    pub rank: u8,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $rank:literal;)*) => {
        impl LockClass {
            $($(#[$doc])* pub const $name: &'static LockClass =
                &LockClass { name: stringify!($name), rank: $rank };)*

            #[cfg(test)]
            const ALL: &[&'static LockClass] = &[$(Self::$name),*];
        }
    };
}

classes! {
    /// One per open file or directory of a C program: its position. Held over operations of the engine (kernel `f_pos_lock`).
    POSITION = 4;
    /// The shards of a server's tables of inodes in use and of open files; held over no operation of the engine.
    SERVED = 5;
    /// A server's requests that wait for a thread.
    REQUESTS = 6;
    /// One per file system: the count of writeback contexts changes.
    CONTEXTS = 7;
    /// One per file system: it becomes larger; held over transactions.
    RESIZE = 8;
    /// One per file system: renames of directories between directories.
    RENAME = 10;
    /// One per inode, keyed by its number: the file's or directory's content.
    INODE = 20;
    /// Each for leaves of a directory that several threads change: the names in one leaf.
    LEAF = 21;
    /// One per inode, keyed by its number: its content is written back.
    WRITEBACK = 22;
    /// One per inode, keyed by its number: its content in memory, beside the thread that writes it back.
    MAPPING = 24;
    /// One per inode: its extended attributes.
    XATTR = 40;
    /// One per file system: an id comes into a quota file.
    QUOTA = 45;
    /// Not a lock: an open journal handle.
    HANDLE = 50;
    /// One per file system: inode tables that are being zeroed; held over I/O, and by a commit for a moment.
    TABLES = 52;
    /// One per file system: the block of multiple-mount protection; held over its I/O.
    MMP = 53;
    /// Not a lock: the right to write blocks to their final locations, which a checkpoint has, and a change of the superblock past
    /// the log (kernel `j_checkpoint_mutex`).
    CHECKPOINT = 54;
    /// One per file system: the on-disk and in-memory orphan list.
    ORPHAN = 55;
    /// One per directory that several threads change: it gets a block for a leaf.
    LEAF_BLOCK = 56;
    /// One per directory that several threads change: its index, and which blocks it has.
    INDEX = 57;
    /// One per inode: the pages of its content. Held over no I/O.
    PAGES = 60;
    /// One per folio that several threads write to, keyed by its first block: its bytes.
    FOLIO = 61;
    /// One per slot of the dcache; never two at once.
    DENTRY = 70;
    /// One per inode: its decoded fields.
    INODE_STATE = 75;
    /// One per file system: a run of free blocks is out of its group while the device discards it.
    DISCARDING = 76;
    /// One per inode: the blocks preallocated for it.
    PREALLOCATIONS = 77;
    /// The shards of the inodes that have such blocks.
    PREALLOCATING = 78;
    /// One per file system: descriptors that were read are entered.
    DESCRIPTORS = 79;
    /// The slots of locality groups.
    LOCALITY = 79;
    /// Those of an older form that measurements compare: each for many groups, keyed by its index.
    GROUPS = 80;
    /// One per block group, keyed by its number.
    GROUP = 81;
    /// Those of an older form that measurements compare: groups of an order.
    ORDER_LIST = 83;
    /// One per file system, in an older form that measurements compare: the stream goal and freed runs.
    MD_LOCK = 84;
    /// One per file system: runs of freed blocks that wait for a commit.
    FREED = 85;
    /// One per file system: the superblock's fields.
    SUPERBLOCK = 86;
    /// One per file system: blocks are moved between the pool of free ones and a shard.
    FREE_BLOCKS = 87;
    /// One per user, group or project with limits: what of them is taken.
    QUOTA_LIMITS = 94;
    /// One per quota file: its blocks and the places of its entries.
    DQUOTS = 95;
    /// One per buffer; never two at once.
    BUFFER = 100;
    /// The shards of the buffer and inode caches.
    CACHE = 105;
    /// One per inode: its state in writeback.
    INODE_WRITEBACK = 106;
    /// One per writeback context, keyed by its index: its lists.
    CONTEXT = 107;
    /// One per file system: the handles of the contexts' threads.
    THREADS = 108;
    /// One per file system: what of files is being read ahead.
    READ_AHEAD = 109;
    /// The journal's state.
    JOURNAL = 110;
    /// One per disk image of a format, keyed by its place in the chain of backing files: its tables. Held over its I/O.
    DISK_IMAGE = 112;
    /// A wrapper of a device that records or changes its requests: a recorder, a fault injector.
    DEVICE_LAYER = 115;
    /// A device's own state.
    DEVICE = 120;
    /// A pool of memory.
    MEMORY = 122;
    /// The queue between the reader and the writer of a tree.
    PIPE = 125;
    /// Tasks that several threads share: which is the next.
    SHARED_WORK = 126;
    /// One for the process: writers wait for readers who hold a lock that is biased towards them.
    VISIBLE_READERS = 128;
    /// A server's readers: which thread receives requests. Taken under any lock, before a wait.
    READERS = 130;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_locks_has_every_class_in_order() {
        let page = include_str!("../../../docs/reference/locks.md");
        let rows = LockClass::ALL.iter().map(|class| format!("| {} | `{}` |", class.rank, class.name));
        let mut last = 0;
        for row in rows {
            let place = page.find(&row).unwrap_or_else(|| panic!("no row {row}"));
            assert!(place > last, "{row} is not in its place");
            last = place;
        }
        assert_eq!(page.matches("| `").count(), LockClass::ALL.len());
    }
}
