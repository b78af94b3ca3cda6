//! Renaming.
//!
//! Source: `ext4_rename`, `ext4_cross_rename` of `fs/ext4/namei.c`, `lock_rename` of `fs/namei.c`.

use extant_ondisk::{FileType, InodeNumber, Structure};
use extant_rt::{Arc, MutexGuard};

use super::new_inode::InodePlan;
use super::{New, NewKind, check_new_name, check_old_name, check_project};
use crate::directory::{Directories, Found, HeldPair, InsertPlan, Insertion, LeafHold, Looked};
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::Inodes;
use crate::inode::delete::DELETE_CREDITS;
use crate::inode::truncate::FREE_ALL_CREDITS;
use crate::metadata::fast_commit::NameChange;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::namespace::Namespace;

/// How to rename, as `renameat2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Both names exist and change places.
    pub exchange: bool,
    /// Leave a whiteout, a character device of numbers 0, under the old name.
    pub whiteout: bool,
}

/// The directories and names of a rename.
#[derive(Clone, Copy)]
struct Names<'n> {
    from: &'n Arc<Inode>,
    from_name: &'n [u8],
    to: &'n Arc<Inode>,
    to_name: &'n [u8],
}

/// What came of a try.
enum Tried {
    Renamed,
    /// Someone changed the names between their look-up and the locks.
    Changed,
    /// The leaf of the new name has no room for it.
    LeafIsFull,
}

/// The entries that were looked up under the locks.
struct Entries {
    child: InodeRef,
    found: Found,
    target: Option<(InodeRef, Found)>,
}

impl Namespace {
    /// Gives an inode another name, in place of what has it; or exchanges two.
    ///
    /// # Errors
    /// `NotFound`; `Exists` with `no_replace`; `InvalidArgument` for a directory below itself, for `.` and `..` and for
    /// flags that contradict each other; `NotEmpty`, `IsADirectory`, `NotADirectory` by what would be replaced;
    /// `TooManyLinks`; `CrossProject`; `NotPermitted` (immutable or append-only); as [`Namespace::create`].
    ///
    /// # Locks
    /// Takes `RENAME` if a directory moves to another one; `INODE` of both directories and of those that move or are replaced, or, if none
    /// is, `LEAF` of the names of a directory that threads share.
    pub(crate) fn rename(
        &self,
        from: &Arc<Inode>,
        from_name: &[u8],
        to: &Arc<Inode>,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_old_name(from_name)?;
        match check_new_name(to_name) {
            Err(Error::Exists) => return Err(Error::InvalidArgument("`.` and `..` cannot be replaced")),
            other => other?,
        }
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(Error::InvalidArgument("flags of a rename contradict each other"));
        }
        self.check_directory(&self.attributes_of_directory(from))?;
        self.check_directory(&self.attributes_of_directory(to))?;
        self.writable()?;
        let names = Names { from, from_name, to, to_name };
        let mut may_share = true;
        loop {
            match self.try_rename(names, flags, may_share)? {
                Tried::Renamed => return Ok(()),
                Tried::Changed => {}
                Tried::LeafIsFull => may_share = self.make_room(to, to_name)?,
            }
        }
    }

    /// Divides the leaf of a name that is to be added to a directory; whether there is one with room for it now.
    fn make_room(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<bool> {
        let Some(leaf) = self.hold_leaf(dir, name, LeafHold::Alone)? else { return Ok(false) };
        match leaf.looked {
            Looked::Missing(None) => self.divide_leaf(dir, name, &leaf),
            _ => Ok(true),
        }
    }

    fn try_rename(&self, names: Names<'_>, flags: RenameFlags, may_share: bool) -> Result<Tried> {
        let Names { from, to, .. } = names;
        let is_across = from.number != to.number;
        let child = self.lookup(from, names.from_name)?;
        let is_plain = !child.is_directory() && !flags.exchange && !flags.whiteout;
        let may_share = may_share && is_plain;
        let hold = || match may_share {
            true => self.hold_pair([(from, names.from_name), (to, names.to_name)]),
            false => Ok(None),
        };
        let is_known = matches!(self.dcache.get(to, names.to_name, |_| Some(())), Some(Some(())));
        // Most often there is no such new name.
        if is_plain && !is_known {
            let leaves = hold()?;
            let _contents = leaves.is_none().then(|| self.hold_all(&[from, to]));
            if let [found, None] = self.entries_of(names, leaves.as_ref())? {
                let Some(found) = found.filter(|found| found.inode == child.number) else {
                    return Ok(Tried::Changed);
                };
                let looked = leaves.as_ref().and_then(|leaves| leaves.looked_at(1));
                return self.replace(names, Entries { child, found, target: None }, false, looked);
            }
        }
        let target = match self.lookup(to, names.to_name) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        match &target {
            Some(_) if flags.no_replace => return Err(Error::Exists),
            None if flags.exchange => return Err(Error::NotFound),
            _ => {}
        }
        let moves_directory = child.is_directory() || target.as_ref().is_some_and(|it| it.is_directory());
        // With it no directory gets another parent.
        let _rename: Option<MutexGuard<'_, ()>> = (is_across && moves_directory).then(|| self.rename.lock());
        if is_across {
            self.check_no_loop(&child, to, Error::InvalidArgument("a directory cannot move below itself"))?;
            if let Some(target) = &target {
                let error = if flags.exchange {
                    Error::InvalidArgument("a directory cannot move below itself")
                } else {
                    Error::NotEmpty
                };
                self.check_no_loop(target, from, error)?;
            }
        }
        if target.is_some() && !flags.exchange {
            // Without this flush a crash could leave neither the replaced content nor the new one. A sync of it reports
            // an error.
            let _ = self.flush(&child);
        }
        let moved: Vec<Arc<Inode>> = [Some(&child), target.as_ref()]
            .into_iter()
            .flatten()
            .filter(|inode| inode.is_directory())
            .map(|inode| inode.inode().clone())
            .collect();
        let leaves = if moves_directory { None } else { hold()? };
        let locked: Vec<&Arc<Inode>> = [from, to].into_iter().chain(&moved).collect();
        let _contents = leaves.is_none().then(|| self.hold_all(&locked));
        let [found, target_found] = self.entries_of(names, leaves.as_ref())?;
        let same = |found: &Option<Found>, inode: Option<&InodeRef>| {
            found.as_ref().map(|found| found.inode) == inode.map(|inode| inode.number)
        };
        let (true, true, Some(found)) =
            (same(&found, Some(&child)), same(&target_found, target.as_ref()), found)
        else {
            return Ok(Tried::Changed);
        };
        if target.as_ref().is_some_and(|target| target.number == child.number) {
            // Two names of one file: nothing is to be done.
            return Ok(Tried::Renamed);
        }
        let entries = Entries { child, found, target: target.zip(target_found) };
        if flags.exchange {
            self.exchange(names, entries)?;
            return Ok(Tried::Renamed);
        }
        let looked = leaves.as_ref().and_then(|leaves| leaves.looked_at(1));
        self.replace(names, entries, flags.whiteout, looked)
    }

    /// The entries of both names, which are held, as their leaves or as their directories.
    fn entries_of(&self, names: Names<'_>, leaves: Option<&HeldPair<'_>>) -> Result<[Option<Found>; 2]> {
        let find = |index, dir, name| match leaves.and_then(|leaves| leaves.looked_at(index)) {
            Some(looked) => Ok(looked.found().cloned()),
            None => self.find_entry(dir, name),
        };
        Ok([find(0, names.from, names.from_name)?, find(1, names.to, names.to_name)?])
    }

    /// Checks that `dir` is not `inode` and not below it. `RENAME` must be held.
    fn check_no_loop(&self, inode: &InodeRef, dir: &Arc<Inode>, error: Error) -> Result<()> {
        if !inode.is_directory() {
            return Ok(());
        }
        let mut here = dir.number;
        let mut steps_left = self.superblock.lock().s_inodes_count();
        let mut above: Option<InodeRef> = None;
        while here != InodeNumber::ROOT {
            if here == inode.number {
                return Err(error);
            }
            let parent = self.lookup(above.as_ref().map_or(dir, InodeRef::inode), b"..")?;
            here = parent.number;
            above = Some(parent);
            steps_left = steps_left.checked_sub(1).ok_or(
                Location::of(Structure::DirectoryBlock).inode(here).corrupt("parents go round in a circle"),
            )?;
        }
        if inode.number == InodeNumber::ROOT { Err(error) } else { Ok(()) }
    }

    /// `looked_to` is what was found of the new name in its leaf, if that is held in place of the directory.
    fn replace(
        &self,
        names: Names<'_>,
        entries: Entries,
        whiteout: bool,
        looked_to: Option<&Looked>,
    ) -> Result<Tried> {
        let Names { from, to, to_name, .. } = names;
        let Entries { child, found, target } = entries;
        let is_directory = child.is_directory();
        let moves_directory = is_directory && from.number != to.number;
        let (parent, to_parent) = (self.attributes_of_directory(from), self.attributes_of_directory(to));
        self.check_may_remove(&parent, &child.raw())?;
        self.check_may_add(&to_parent)?;
        check_project(&to_parent, &child.raw())?;
        // Two entries, `..`, three inodes; what is replaced.
        let mut need = Credits::new(6 + FREE_ALL_CREDITS + DELETE_CREDITS + ORPHAN_CREDITS, 0);
        let mut plan = None;
        let target = match target {
            Some((target, found)) => {
                self.check_may_remove(&to_parent, &target.raw())?;
                self.check_replaceable(&target, is_directory)?;
                Some((target, self.changeable_entry(to, to_name, found)?))
            }
            None => {
                let insert = match looked_to {
                    Some(looked) => match self.plan_insert_into_leaf(&to_parent, looked)? {
                        Some(insert) => insert,
                        None => return Ok(Tried::LeafIsFull),
                    },
                    None => self.plan_insert(to, &to_parent, to_name)?,
                };
                need = need.and(insert.need);
                plan = Some(insert);
                None
            }
        };
        let found = self.changeable_entry(from, names.from_name, found)?;
        let entries = Entries { child, found, target };
        let child = &entries.child;
        if moves_directory && entries.target.is_none() {
            self.check_subdirectories(&to_parent)?;
        }
        // Dropped here, for while these snapshots live, a change of the inodes would copy their fields.
        drop((parent, to_parent));
        let parent_entry = moves_directory.then(|| self.parent_entry(from, child)).transpose()?;
        let mut whiteout = whiteout
            .then(|| {
                let kind = NewKind::CharDevice { major: 0, minor: 0 };
                let new = New { kind, mode: 0, uid: 0, gid: 0, times: None, xattrs: &[] };
                self.plan_inode(from, &from.raw(), &new)
            })
            .transpose()?;
        if let Some(whiteout) = &whiteout {
            need = need.and(whiteout.need);
        }
        let mut update = self.begin(need)?;
        plan.iter_mut().for_each(|plan| update.hold_quota(std::mem::take(&mut plan.quota)));
        whiteout.iter_mut().for_each(|plan| update.hold_quota(std::mem::take(&mut plan.quota)));
        if !is_directory && whiteout.is_none() {
            update = update.tracked();
        }
        // No other thread may see one name changed and not the other: who looks for the old one waits from now on, and the new one becomes
        // what it is in one step. A target is deleted at once only if it has no name in memory.
        self.forget_name(from, names.from_name);
        if entries.target.is_some() {
            self.forget_name(to, to_name);
        }
        let whiteout = whiteout.map(|plan| update.make_whiteout(self, from, &plan)).transpose()?;
        // An insertion into the same directory may move the old name.
        let has_moved = from.number == to.number && plan.as_ref().is_some_and(|plan| !plan.moves_none());
        update.name_target(self, to, to_name, &entries, plan)?;
        update.unname(self, names, &entries, has_moved, whiteout.as_ref())?;
        if let Some((target, _)) = &entries.target {
            // The name changes once, and has two records.
            update.note_name_changed();
            update.track_name(NameChange::Unlink, to, target, to_name);
        }
        update.track_name(NameChange::Link, to, child, to_name);
        update.track_name(NameChange::Unlink, from, child, names.from_name);
        if let Some(found) = parent_entry {
            update.replace_entry(child, &found, to.number, FileType::Directory)?;
            update.count_subdirectories(from, -1);
            if entries.target.is_none() {
                update.count_subdirectories(to, 1);
            }
        }
        let now = update.now();
        update.modify_inode(child, InodeDirty::Attributes, |raw| raw.set_ctime(now));
        if let Some((target, _)) = &entries.target {
            update.drop_replaced(self, to, target, moves_directory)?;
        }
        self.note_name(to, to_name, Some(child));
        self.note_name(from, names.from_name, whiteout.as_ref().map(InodeRef::inode));
        self.finish_names(update, &[from, to])?;
        Ok(Tried::Renamed)
    }

    /// Checks that the target may be replaced by a directory, or by an inode of another type.
    fn check_replaceable(&self, target: &InodeRef, by_directory: bool) -> Result<()> {
        match (target.is_directory(), by_directory) {
            (true, false) => Err(Error::IsADirectory),
            (false, true) => Err(Error::NotADirectory),
            (true, true) if !self.is_directory_empty(target)? => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    /// The `..` of a directory, which must name `parent` and is to change.
    fn parent_entry(&self, parent: &Inode, dir: &Arc<Inode>) -> Result<Found> {
        let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
        let found = self.find_entry(dir, b"..")?.ok_or(location.corrupt("no entry `..`"))?;
        if found.inode == parent.number {
            self.changeable_entry(dir, b"..", found)
        } else {
            Err(location.corrupt("`..` names another directory"))
        }
    }

    fn exchange(&self, names: Names<'_>, entries: Entries) -> Result<()> {
        let Names { from, to, .. } = names;
        let Entries { child, found, target: Some((target, target_found)) } = entries else {
            return Err(Error::NotFound);
        };
        let (child, target) = (&child, &target);
        self.check_may_remove(&from.raw(), &child.raw())?;
        self.check_may_remove(&to.raw(), &target.raw())?;
        self.check_may_add(&from.raw())?;
        self.check_may_add(&to.raw())?;
        check_project(&to.raw(), &child.raw())?;
        check_project(&from.raw(), &target.raw())?;
        let is_across = from.number != to.number;
        let (child_moves, target_moves) =
            (is_across && child.is_directory(), is_across && target.is_directory());
        if child_moves && !target_moves {
            self.check_subdirectories(&to.raw())?;
        }
        if target_moves && !child_moves {
            self.check_subdirectories(&from.raw())?;
        }
        let child_parent = child_moves.then(|| self.parent_entry(from, child)).transpose()?;
        let target_parent = target_moves.then(|| self.parent_entry(to, target)).transpose()?;
        let found = self.changeable_entry(from, names.from_name, found)?;
        let target_found = self.changeable_entry(to, names.to_name, target_found)?;
        // Two entries, two `..`, four inodes.
        let mut update = self.begin(Credits::new(8, 0))?;
        self.forget_name(from, names.from_name);
        self.forget_name(to, names.to_name);
        update.replace_entry(from, &found, target.number, target.raw().file_type())?;
        update.replace_entry(to, &target_found, child.number, child.raw().file_type())?;
        if let Some(found) = child_parent {
            update.replace_entry(child, &found, to.number, FileType::Directory)?;
        }
        if let Some(found) = target_parent {
            update.replace_entry(target, &found, from.number, FileType::Directory)?;
        }
        if child_moves != target_moves {
            let (more, fewer) = if child_moves { (to, from) } else { (from, to) };
            update.count_subdirectories(more, 1);
            update.count_subdirectories(fewer, -1);
        }
        update.touch_directory(from);
        update.touch_directory(to);
        let now = update.now();
        for inode in [child, target] {
            update.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_ctime(now));
        }
        self.note_name(from, names.from_name, Some(target));
        self.note_name(to, names.to_name, Some(child));
        self.finish_names(update, &[from, to])
    }
}

impl MetadataUpdate<'_> {
    fn make_whiteout(
        &mut self,
        dirs: &Directories,
        dir: &Arc<Inode>,
        plan: &InodePlan<'_, '_>,
    ) -> Result<InodeRef> {
        let whiteout = self.make_inode(dir, plan)?;
        self.fill_inode(dirs, &whiteout, dir.number, plan)?;
        Ok(whiteout)
    }

    /// Takes the name in `to` from what it stood for. If a directory came from elsewhere in its place, `to` has as
    /// many subdirectories as before.
    ///
    /// # Errors
    /// `Corrupt` bitmaps.
    fn drop_replaced(
        &mut self,
        inodes: &Inodes,
        to: &Arc<Inode>,
        target: &InodeRef,
        by_moved_directory: bool,
    ) -> Result<()> {
        if target.is_directory() {
            if !by_moved_directory {
                self.count_subdirectories(to, -1);
            }
            self.drop_all_links(target);
            return self.delete_or_orphan(inodes, target);
        }
        if self.drop_link(target) { self.delete_or_orphan(inodes, target) } else { Ok(()) }
    }

    /// Makes the new name refer to the child.
    fn name_target(
        &mut self,
        dirs: &Directories,
        to: &Arc<Inode>,
        to_name: &[u8],
        entries: &Entries,
        plan: Option<InsertPlan<'_>>,
    ) -> Result<()> {
        let child = &entries.child;
        let file_type = child.raw().file_type();
        if let Some(plan) = plan {
            return self.insert_entry(
                dirs,
                to,
                plan,
                Insertion { name: to_name, inode: child.number, file_type },
            );
        }
        if let Some((_, found)) = &entries.target {
            self.replace_entry(to, found, child.number, file_type)?;
            self.touch_directory(to);
        }
        Ok(())
    }

    /// Takes the old name away, which is looked for again if it moved, or gives it to the whiteout.
    fn unname(
        &mut self,
        dirs: &Directories,
        names: Names<'_>,
        entries: &Entries,
        has_moved: bool,
        whiteout: Option<&InodeRef>,
    ) -> Result<()> {
        let from = names.from;
        // The blocks are in memory, for they changed.
        let moved = if has_moved { dirs.find_entry(from, names.from_name)? } else { None };
        let found = moved.as_ref().unwrap_or(&entries.found);
        match whiteout {
            Some(whiteout) => {
                self.replace_entry(from, found, whiteout.number, FileType::CharDevice)?;
                self.touch_directory(from);
                Ok(())
            }
            None => self.remove_entry(from, found),
        }
    }
}
