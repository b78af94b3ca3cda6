//! Recently looked-up or created names: what a directory holds under each, or that it holds nothing.
//!
//! Leaves out: `.` and `..`, names of more than [`BYTES_MAX`] bytes, and permission to look.
//!
//! An index by hash, of fixed size, says in which slot a name may be ([`index`]). The names of a directory enter it near each
//! other, in a part that few other directories have at a time: so threads that create names in different directories write
//! different cache lines. Names that find no room there enter a wider part, and then anywhere ([`Region`]), and from then on names of the
//! directory are looked for there too. Each thread fills slots of its own, one after the other, and fills them again in the same order if
//! they were not used since ([`slots`]). A slot holds its inode: a hit touches neither the directory nor the table of inodes,
//! and writes to cache lines of that name alone; to none, once threads have looked for the name often in turns
//! ([`BiasedMutex`](extant_rt::BiasedMutex)).
//!
//! Invariants: an entry is true. Names enter under the directory's lock; a thread that holds that alone, or alone the leaf that the name
//! belongs to ([`hold_leaf`](crate::directory::Directories::hold_leaf): what is said here of the lock holds for that one), takes a name out
//! before its change can be seen, or puts in what became of it in one step. So a look-up without the directory's lock gives
//! what was there at that moment, or nothing. A slot that is in the index got there under its own lock, after it was filled:
//! taking a name out leaves nothing of it that can be found. That a directory has names in a wider region is noted under its
//! lock, before the first of them is there, and stays so: a thread that holds the lock alone looks wherever a name was entered,
//! also by threads that shared it, and a look-up without the lock may miss a name, but finds nothing that is false.
//! Directories are distinguished by their inodes, not by their numbers: nothing is found in one that is gone. A name is taken
//! out before the users of its inode are counted for a deletion.
//!
//! Locks: `DENTRY`, one per slot, never two at once; `INODE_STATE` inside.
//!
//! Source: the purpose of `fs/dcache.c`. Tests: `tests/dcache.rs`.

mod index;
mod slots;

use extant_rt::{Arc, AtomicU64, Ordering, Padded};

use self::index::{Index, Place, Region, SLOTS_MAX};
use self::slots::{Slot, Slots};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeCache;

/// Longer names are looked up in their directories. With so much a slot fills its lines.
const BYTES_MAX: usize = 70;

/// The names of a volume that are in memory.
#[derive(Debug)]
pub(crate) struct Dcache {
    index: Index,
    slots: Slots,
    /// The identity that the next directory gets.
    next_identity: Padded<AtomicU64>,
}

/// A cached name of a directory.
#[derive(Debug)]
struct Dentry {
    /// 0 if the slot is empty.
    dir: u64,
    /// None if the directory has no such name.
    inode: Option<Arc<Inode>>,
    /// Where in the index it is.
    place: Place,
    len: u8,
    name: [u8; BYTES_MAX],
}

/// A directory, as far as its names are looked for: true of it as long as it is in memory, and of no other afterwards.
#[derive(Clone, Copy)]
pub(crate) struct DirIdentity {
    identity: u64,
    /// See [`Key::regions`].
    regions: u32,
}

impl DirIdentity {
    /// None for a directory of which nothing was entered.
    pub(crate) fn of(dir: &Inode) -> Option<Self> {
        let identity = dir.identity.load(Ordering::Relaxed);
        let regions = dir.regions.load(Ordering::Relaxed);
        (identity != 0).then_some(Self { identity, regions })
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Key<'n> {
    dir: u64,
    /// The regions in which names of the directory are, beside the near one ([`Region::bit`]).
    regions: u32,
    name: &'n [u8],
    hash: u64,
}

impl Dcache {
    /// Room for `count` names, or somewhat less, but for a few.
    pub(crate) fn new(count: usize) -> Self {
        let slots = Slots::new(count.min(SLOTS_MAX));
        Self { index: Index::new(slots.count()), slots, next_identity: Padded(AtomicU64::new(1)) }
    }

    /// Calls `found` with the inode of that name, which has it until `found` returns. `Some(None)` if there is none of
    /// that name; `None` if the directory must be asked, or `found` says so.
    pub(crate) fn get<R>(
        &self,
        dir: &Inode,
        name: &[u8],
        found: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<Option<R>> {
        self.get_by_identity(DirIdentity::of(dir)?, name, found)
    }

    /// As [`Dcache::get`], of a directory that need not be held.
    pub(crate) fn get_by_identity<R>(
        &self,
        dir: DirIdentity,
        name: &[u8],
        found: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<Option<R>> {
        let key = Key::of(dir, name)?;
        let (slot, entry) = self.find(&key, |_, slot| {
            let entry = slot.entry.read();
            key.is_of(&entry).then_some((slot, entry))
        })?;
        if !slot.recently_used.load(Ordering::Relaxed) {
            slot.recently_used.store(true, Ordering::Relaxed);
        }
        entry.inode.as_ref().map_or(Some(None), |inode| found(inode).map(Some))
    }

    /// Enters what the directory holds under a name, in place of what was entered before.
    ///
    /// # Locks
    /// `INODE` of the directory must be held; alone, if the directory changed.
    pub(crate) fn put(&self, inodes: &InodeCache, dir: &Inode, name: &[u8], inode: Option<&Arc<Inode>>) {
        self.identify(dir);
        let Some(key) = Key::new(dir, name) else { return };
        // Otherwise the line is hardly another thread's, and its first reads need not wait for each other.
        if Region::Far.is_in(key.regions) && dir.leaf_map().is_some() {
            self.index.expect_far(&key);
        }
        if self.replace(inodes, &key, inode) {
            return;
        }
        let (number, slot) = self.slots.to_fill();
        let mut entry = slot.entry.write();
        let old = self.empty(number, &mut entry);
        let place = self.enter(dir, &key, number);
        *entry = key.entry(inode, place);
        drop(entry);
        old.let_go(inodes);
    }

    /// Enters that the directory holds nothing under a name any more, if something was entered for it: one that was not looked up before it
    /// was removed is not looked up afterwards either.
    ///
    /// # Locks
    /// `INODE` of the directory must be held alone.
    pub(crate) fn note_removal(&self, inodes: &InodeCache, dir: &Inode, name: &[u8]) {
        if let Some(key) = Key::new(dir, name) {
            self.replace(inodes, &key, None);
        }
    }

    /// Replaces what was entered for a name. Whether anything was.
    fn replace(&self, inodes: &InodeCache, key: &Key<'_>, inode: Option<&Arc<Inode>>) -> bool {
        let mut is_entered = false;
        self.find(key, |number, slot| {
            let mut entry = slot.entry.write();
            if !key.is_of(&entry) {
                return None::<()>;
            }
            // Two that looked the name up at once may have entered it twice.
            let old = if is_entered {
                self.empty(number, &mut entry)
            } else {
                let place = entry.place;
                entry.replace(key.entry(inode, place))
            };
            // A negative entry is looked up less often than a positive one.
            if inode.is_none() {
                slot.recently_used.store(false, Ordering::Relaxed);
            }
            drop(entry);
            old.let_go(inodes);
            is_entered = true;
            None
        });
        is_entered
    }

    /// Takes out what was entered for a name.
    ///
    /// # Locks
    /// `INODE` of the directory must be held alone.
    pub(crate) fn forget(&self, inodes: &InodeCache, dir: &Inode, name: &[u8]) {
        let Some(key) = Key::new(dir, name) else { return };
        self.find(&key, |number, slot| {
            let mut entry = slot.entry.write();
            if key.is_of(&entry) {
                let old = self.empty(number, &mut entry);
                slot.recently_used.store(false, Ordering::Relaxed);
                drop(entry);
                old.let_go(inodes);
            }
            None::<()>
        });
    }

    /// Takes what a slot holds out of it and out of the index.
    fn empty(&self, number: usize, entry: &mut Dentry) -> Dentry {
        self.index.take_out(&entry.key(), entry.place, number);
        entry.replace(Dentry::default())
    }

    /// Goes through the slots where the name may be until `look` finds what it wants.
    fn find<'s, R>(&'s self, key: &Key<'_>, mut look: impl FnMut(usize, &'s Slot) -> Option<R>) -> Option<R> {
        self.index.find(key, |number| look(number, self.slots.get(number)?))
    }

    /// Enters a slot into the index, and says where.
    fn enter(&self, dir: &Inode, key: &Key<'_>, number: usize) -> Place {
        if let Some(place) = self.index.enter(key, Region::Near, number) {
            return place;
        }
        // The directory's lock orders these before what other threads do that hold it alone, and before the directory becomes shared.
        let has = |region: Region| region.is_in(dir.regions.load(Ordering::Relaxed));
        let note = |region: Region| {
            if !has(region) {
                dir.regions.fetch_or(region.bit(), Ordering::Relaxed);
            }
        };
        // Names of threads that share a directory are not to be near each other. And wide buckets know of no names that went far away before
        // there were any wide ones.
        if dir.leaf_map().is_none() && (has(Region::Wide) || !has(Region::Far)) {
            note(Region::Wide);
            if let Some(place) = self.index.enter(key, Region::Wide, number) {
                return place;
            }
        }
        if has(Region::Wide) {
            self.index.pass_on(key);
        }
        note(Region::Far);
        self.index.enter(key, Region::Far, number).unwrap_or_else(|| self.index.displace(key, number))
    }

    /// Distinguishes the directory from all others that were ever in memory.
    fn identify(&self, dir: &Inode) {
        if dir.identity.load(Ordering::Relaxed) == 0 {
            let new = self.next_identity.fetch_add(1, Ordering::Relaxed);
            let _ = dir.identity.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Dentry {
    fn key(&self) -> Key<'_> {
        let name = &self.name[..usize::from(self.len)];
        Key { dir: self.dir, regions: 0, name, hash: hash(self.dir, name) }
    }

    fn replace(&mut self, new: Self) -> Self {
        std::mem::replace(self, new)
    }

    /// Lets the inode go that it held.
    fn let_go(self, inodes: &InodeCache) {
        if let Some(inode) = self.inode {
            inodes.let_go(&inode);
        }
    }
}

impl Default for Dentry {
    fn default() -> Self {
        Self { dir: 0, inode: None, place: Place::default(), len: 0, name: [0; BYTES_MAX] }
    }
}

impl<'n> Key<'n> {
    /// As [`Key::of`] in a directory.
    fn new(dir: &Inode, name: &'n [u8]) -> Option<Self> {
        Self::of(DirIdentity::of(dir)?, name)
    }

    /// None for a name that is not entered.
    fn of(dir: DirIdentity, name: &'n [u8]) -> Option<Self> {
        let DirIdentity { identity, regions } = dir;
        let is_entered = name.len() <= BYTES_MAX && !matches!(name, b"" | b"." | b"..");
        is_entered.then(|| Self { dir: identity, regions, name, hash: hash(identity, name) })
    }

    fn entry(&self, inode: Option<&Arc<Inode>>, place: Place) -> Dentry {
        let mut name = [0; BYTES_MAX];
        name[..self.name.len()].copy_from_slice(self.name);
        Dentry { dir: self.dir, inode: inode.cloned(), place, len: self.name.len() as u8, name }
    }

    fn is_of(&self, entry: &Dentry) -> bool {
        entry.dir == self.dir && &entry.name[..usize::from(entry.len)] == self.name
    }
}

/// Spreads names over the index. Names that meet on purpose only drive each other out.
fn hash(dir: u64, name: &[u8]) -> u64 {
    /// The golden ratio's.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(26) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = name.as_chunks::<8>();
    let hash =
        words.iter().fold(mix(dir, name.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(hash, u64::from_le_bytes(last));
    // Else neighbouring numbers would meet in few of a part's buckets.
    let hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}
