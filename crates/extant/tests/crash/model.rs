//! The model of the tree after each operation, and of the changes promised to be durable.
//!
//! The model knows nothing of blocks on the disk except this: a block of a file has an identity from its allocation
//! to its freeing, and moves with its identity when a range is removed or inserted. Data that is written into a
//! block in place may reach the disk before the metadata of the same operation, and is then seen through the older
//! map of the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::op::{HELD, Name, Op, fill_name, fill_target, pattern_of, target_of, xattr_name};
use crate::random::hash;

pub type Id = u32;
pub const ROOT: Id = 0;

/// A block of a file.
#[derive(Clone, Debug)]
pub struct Block {
    pub identity: u64,
    /// Else it reads as zeroes.
    pub is_written: bool,
    pub bytes: Arc<[u8]>,
}

#[derive(Clone, Debug)]
pub enum Body {
    File { size: u64, blocks: BTreeMap<u64, Block> },
    Directory(BTreeMap<String, Id>),
    Symlink(String),
}

#[derive(Clone, Debug)]
pub struct Inode {
    pub body: Body,
    pub mode: u16,
    /// Names; of a directory 1.
    pub names: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree.
pub type State = BTreeMap<Id, Arc<Inode>>;

/// The changes that must have survived.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The tree is as after this step or a later one.
    pub step: usize,
    /// The bytes of these inodes are as after this step or a later one.
    pub content: BTreeMap<Id, usize>,
    /// Those of all inodes.
    pub all_content: usize,
}

/// The history of a sequence.
#[derive(Clone, Debug)]
pub struct Model {
    block_size: u64,
    /// Else files have no ranges that could be allocated, zeroed or moved.
    has_extents: bool,
    state: State,
    next_id: Id,
    next_block: u64,
    /// Files that are open, the last one at the end.
    held: Vec<Id>,
    unnamed: Vec<Id>,
    fill_serial: u32,
    drain_serial: u32,
    /// The tree after each step; the first is the tree before the first operation.
    pub steps: Vec<State>,
    /// For each step, the inode that changed in several updates.
    pub in_steps: Vec<Option<Id>>,
    /// For each step, [`hash_names`] of all directories together.
    pub names: Vec<u64>,
    /// The names of directories that have not changed since they were hashed.
    names_of: BTreeMap<Id, (Arc<Inode>, u64)>,
    /// For each operation, the last of its steps; the first entry is for none.
    pub ends: Vec<usize>,
    /// The promises after each operation.
    pub promises: Vec<Promise>,
    changed: BTreeMap<Id, usize>,
    mapped: BTreeMap<Id, usize>,
    /// Of each file, steps with which what was written before had its place.
    written_back: BTreeMap<Id, Vec<WrittenBack>>,
}

/// Blocks of a file which all had their places with a step.
#[derive(Clone, Debug)]
struct WrittenBack {
    step: usize,
    blocks: Range<u64>,
    /// The size on the disk was the file's.
    has_size: bool,
}

/// All blocks of a file.
const ALL: Range<u64> = 0..u64::MAX;

/// An operation that must fail; the real operation must fail too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;
type Answer = Result<(), Refused>;

impl Model {
    pub fn new(block_size: u64, has_extents: bool) -> Self {
        let root = new_inode(Body::Directory(BTreeMap::new()), 0o755);
        let state = State::from([(ROOT, Arc::new(root))]);
        Self {
            block_size,
            has_extents,
            steps: vec![state.clone()],
            state,
            next_id: ROOT + 1,
            next_block: 0,
            held: Vec::new(),
            unnamed: Vec::new(),
            fill_serial: 0,
            drain_serial: 0,
            in_steps: vec![None],
            names: vec![0],
            names_of: BTreeMap::new(),
            ends: vec![0],
            promises: vec![Promise::default()],
            changed: BTreeMap::new(),
            mapped: BTreeMap::new(),
            written_back: BTreeMap::new(),
        }
    }

    /// The same tree with no history: all of it is durable.
    pub fn restart(&self) -> Self {
        let mut fresh = Self::new(self.block_size, self.has_extents);
        fresh.state = self.state.clone();
        fresh.steps.clear();
        fresh.names.clear();
        fresh.step();
        (fresh.next_id, fresh.next_block) = (self.next_id, self.next_block);
        (fresh.fill_serial, fresh.drain_serial) = (self.fill_serial, self.drain_serial);
        fresh
    }

    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The number of the next write, for [`crate::op::pattern`].
    pub fn tag(&self) -> usize {
        self.ends.len()
    }

    /// Serials of the names that the next [`Op::Fill`] and [`Op::Drain`] begin with.
    pub fn serials(&self) -> (u32, u32) {
        (self.fill_serial, self.drain_serial)
    }

    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// Does `op`, and keeps what it changed.
    pub fn apply(&mut self, op: Op) -> Answer {
        let steps = self.steps.len();
        let answer = self.change(op);
        if self.steps.len() > steps
            && let Some((id, blocks, has_size)) = self.writes_back(op)
        {
            let step = self.steps.len() - 1;
            self.written_back.entry(id).or_default().push(WrittenBack { step, blocks, has_size });
        }
        if self.in_steps.len() < self.steps.len() {
            let target = if op.is_in_steps() { self.target(op) } else { None };
            self.in_steps.resize(self.steps.len(), target);
        }
        let promise = self.promise(op, answer.is_ok());
        self.promises.push(promise);
        self.ends.push(self.steps.len() - 1);
        answer
    }

    /// The file of which blocks are written before the operation of the last step changes them, or gives it the name of another, and
    /// whether its size on the disk is the file's afterwards. All are, where the range reaches behind the end.
    fn writes_back(&self, op: Op) -> Option<(Id, Range<u64>, bool)> {
        let range = match op {
            Op::Truncate { bytes, .. } => bytes..u64::MAX,
            Op::Allocate { at, bytes, .. } | Op::Zero { at, bytes, .. } | Op::Punch { at, bytes, .. } => {
                at..at + bytes
            }
            Op::Collapse { block, .. } | Op::Insert { block, .. } => block * self.block_size..u64::MAX,
            Op::Rename { to, .. } => {
                return self.find(to).filter(|_| self.has_replaced()).map(|id| (id, ALL, true));
            }
            _ => return None,
        };
        let id = self.target(op)?;
        let before = match &self.steps[self.steps.len() - 2].get(&id)?.body {
            Body::File { size, .. } => *size,
            _ => return None,
        };
        let touched_end = if let Op::Truncate { bytes, .. } = op { bytes } else { range.end };
        if touched_end > before && touched_end < u64::MAX {
            return Some((id, ALL, true));
        }
        let blocks = range.start / self.block_size..range.end.div_ceil(self.block_size);
        Some((id, blocks, range.end == u64::MAX))
    }

    /// Whether the last step took an inode away or a name of one.
    fn has_replaced(&self) -> bool {
        let names = |state: &State| {
            let entries = state.values().map(|inode| match &inode.body {
                Body::Directory(entries) => entries.len(),
                _ => 0,
            });
            entries.sum::<usize>()
        };
        let before = self.steps.len() - 2;
        names(&self.steps[before]) > names(&self.state)
    }

    /// The last step up to `step` with which the disk had the size of a file, or in which it is new.
    pub fn size_written_back(&self, id: Id, step: usize) -> usize {
        self.last_written_back(id, step, |written| written.has_size)
    }

    /// The last step up to `step` with which a file had a place for what was written to a block, or in which it is new.
    pub fn written_back(&self, id: Id, block: u64, step: usize) -> usize {
        self.last_written_back(id, step, |written| written.blocks.contains(&block))
    }

    fn last_written_back(&self, id: Id, step: usize, is_meant: impl Fn(&WrittenBack) -> bool) -> usize {
        let all = self.written_back.get(&id).into_iter().flatten().rev();
        let last = all.filter(|written| written.step <= step).find(|written| is_meant(written));
        let first = || (0..=step).rev().take_while(|step| self.steps[*step].contains_key(&id)).last();
        last.map(|written| written.step).or_else(first).unwrap_or(step)
    }

    /// After a loss of data: no step from `step` on counts as one before which a file was written back.
    pub fn forget_writeback(&mut self, step: usize) {
        self.written_back.values_mut().for_each(|steps| steps.retain(|written| written.step < step));
    }

    fn target(&self, op: Op) -> Option<Id> {
        match op {
            Op::Write { file, .. }
            | Op::Append { file, .. }
            | Op::Truncate { file, .. }
            | Op::Allocate { file, .. }
            | Op::Zero { file, .. }
            | Op::Punch { file, .. }
            | Op::Collapse { file, .. }
            | Op::Insert { file, .. } => self.find(file),
            _ => None,
        }
    }

    fn promise(&self, op: Op, is_ok: bool) -> Promise {
        let mut promise = self.promises.last().cloned().unwrap_or_default();
        if !is_ok {
            return promise;
        }
        let now = self.steps.len() - 1;
        let (path, since) = match op {
            Op::Sync | Op::Remount => {
                promise.step = now;
                promise.all_content = now;
                return promise;
            }
            Op::Fsync(path) => (path, &self.changed),
            Op::Fdatasync(path) => (path, &self.mapped),
            _ => return promise,
        };
        let Some(id) = self.find(path) else { return promise };
        promise.step = promise.step.max(since.get(&id).copied().unwrap_or(0));
        promise.content.insert(id, now);
        promise
    }

    fn change(&mut self, op: Op) -> Answer {
        let tag = self.tag();
        match op {
            Op::Create(path) => self.make(path, new_inode(empty_file(), 0o644)).map(drop),
            Op::Write { file, at, bytes } => self.file(file).map(|id| self.write(id, at, bytes, tag)),
            Op::Append { file, bytes } => self.file(file).map(|id| self.write(id, self.size(id), bytes, tag)),
            Op::Sparse { file, block, count } => {
                let id = self.file(file)?;
                for index in 0..u64::from(count) {
                    self.write(id, (block + 2 * index) * self.block_size, self.block_size, tag);
                }
                Ok(())
            }
            Op::Truncate { .. }
            | Op::Allocate { .. }
            | Op::Zero { .. }
            | Op::Punch { .. }
            | Op::Collapse { .. }
            | Op::Insert { .. } => self.change_map(op),
            Op::Unlink(path) => self.unlink(path),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Exchange { from, to } => self.exchange(from, to),
            Op::Link { from, to } => self.link(from, to),
            Op::Symlink { link, bytes } => {
                self.make(link, new_inode(Body::Symlink(target_of(bytes)), 0o777)).map(drop)
            }
            Op::Mkdir(path) => self.make(path, new_inode(Body::Directory(BTreeMap::new()), 0o755)).map(drop),
            Op::Rmdir(path) => self.rmdir(path),
            Op::Fill { dir, count } => self.fill(dir, count),
            Op::Drain { dir, count } => self.drain(dir, count),
            Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::Chmod { .. } => {
                self.change_attributes(op, tag)
            }
            Op::Fsync(path) | Op::Fdatasync(path) => match self.followed(path) {
                Some(_) => Ok(()),
                None => Err(Refused),
            },
            Op::Sync => Ok(()),
            Op::Hold(path) => self.file(path).map(|id| self.held.push(id)),
            Op::Tmpfile { bytes } => {
                let id = self.add(Inode { names: 0, ..new_inode(empty_file(), 0o600) });
                self.held.push(id);
                self.unnamed.push(id);
                self.step();
                self.write(id, 0, bytes, tag);
                Ok(())
            }
            Op::LinkTmp(path) => match self.unnamed.last() {
                Some(id) => self.link_id(*id, path),
                None => Ok(()),
            },
            Op::Close => {
                self.close();
                Ok(())
            }
            Op::Release | Op::Remount => {
                self.held.clear();
                self.unnamed.clear();
                self.state.retain(|_, inode| inode.names > 0);
                Ok(())
            }
        }
    }

    fn step(&mut self) {
        self.steps.push(self.state.clone());
        let mut names = 0;
        for (id, inode) in &self.state {
            let Body::Directory(entries) = &inode.body else { continue };
            let known = self.names_of.get(id).filter(|(known, _)| Arc::ptr_eq(known, inode));
            names ^= match known {
                Some((_, hash)) => *hash,
                None => {
                    let hash = hash_names(entries.keys());
                    self.names_of.insert(*id, (inode.clone(), hash));
                    hash
                }
            };
        }
        self.names.push(names);
    }

    fn add(&mut self, inode: Inode) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        self.state.insert(id, Arc::new(inode));
        self.touch(id);
        id
    }

    /// The next step changes this inode.
    fn touch(&mut self, id: Id) -> &mut Inode {
        self.changed.insert(id, self.steps.len());
        Arc::make_mut(self.state.get_mut(&id).expect("an inode of the model"))
    }

    fn touch_map(&mut self, id: Id) {
        self.mapped.insert(id, self.steps.len());
        self.touch(id);
    }

    fn entries(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.touch(id).body {
            Body::Directory(entries) => entries,
            _ => unreachable!("a parent is a directory"),
        }
    }

    /// Parent and last name.
    fn place(&self, path: Name) -> Result<(Id, String), Refused> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent).ok_or(Refused)?;
        match self.state[&parent].body {
            Body::Directory(_) => Ok((parent, name.to_owned())),
            _ => Err(Refused),
        }
    }

    /// The inode at a path, or the one that is held; a symbolic link is not followed.
    pub fn find(&self, path: &str) -> Option<Id> {
        if path == HELD {
            return self.held.last().copied();
        }
        path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |here, name| {
            match &self.state[&here].body {
                Body::Directory(entries) => entries.get(name).copied(),
                _ => None,
            }
        })
    }

    /// The inode at a path; all symbolic links lead nowhere.
    fn followed(&self, path: Name) -> Option<Id> {
        self.find(path).filter(|id| !matches!(self.state[id].body, Body::Symlink(_)))
    }

    pub fn is_file(&self, path: Name) -> bool {
        self.file(path).is_ok()
    }

    pub fn size_of(&self, path: Name) -> u64 {
        self.file(path).map_or(0, |id| self.size(id))
    }

    fn file(&self, path: Name) -> Result<Id, Refused> {
        self.find(path).filter(|id| matches!(self.state[id].body, Body::File { .. })).ok_or(Refused)
    }

    fn is_directory(&self, id: Id) -> bool {
        matches!(self.state[&id].body, Body::Directory(_))
    }

    fn is_empty(&self, id: Id) -> bool {
        matches!(&self.state[&id].body, Body::Directory(entries) if entries.is_empty())
    }

    fn size(&self, id: Id) -> u64 {
        match self.state[&id].body {
            Body::File { size, .. } => size,
            _ => 0,
        }
    }

    fn make(&mut self, path: Name, inode: Inode) -> Result<Id, Refused> {
        let (parent, name) = self.place(path)?;
        if self.entries_of(parent).contains_key(&name) {
            return Err(Refused);
        }
        let id = self.add(inode);
        self.entries(parent).insert(name, id);
        self.step();
        Ok(id)
    }

    fn entries_of(&self, id: Id) -> &BTreeMap<String, Id> {
        match &self.state[&id].body {
            Body::Directory(entries) => entries,
            _ => unreachable!("a parent is a directory"),
        }
    }

    fn drop_name(&mut self, id: Id) {
        let inode = self.touch(id);
        inode.names -= 1;
        if inode.names == 0 && !self.held.contains(&id) {
            self.state.remove(&id);
        }
    }

    fn unlink(&mut self, path: Name) -> Answer {
        let (parent, name) = self.place(path)?;
        let id = self.find(path).ok_or(Refused)?;
        if self.is_directory(id) {
            return Err(Refused);
        }
        self.entries(parent).remove(&name);
        self.drop_name(id);
        self.step();
        Ok(())
    }

    fn rmdir(&mut self, path: Name) -> Answer {
        let (parent, name) = self.place(path)?;
        let id = self.find(path).ok_or(Refused)?;
        if !self.is_empty(id) {
            return Err(Refused);
        }
        self.entries(parent).remove(&name);
        self.drop_name(id);
        self.step();
        Ok(())
    }

    /// Whether `id` is `above` or below it.
    fn is_below(&self, id: Id, above: Id) -> bool {
        id == above
            || matches!(&self.state[&above].body, Body::Directory(entries)
                if entries.values().any(|child| self.is_below(id, *child)))
    }

    fn rename(&mut self, from: Name, to: Name) -> Answer {
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        let child = self.find(from).ok_or(Refused)?;
        let target = self.find(to);
        if self.is_below(to_dir, child)
            || target.is_some_and(|target| target != child && self.is_below(from_dir, target))
        {
            return Err(Refused);
        }
        if target == Some(child) {
            return Ok(());
        }
        if let Some(target) = target {
            let (child_is, target_is) = (self.is_directory(child), self.is_directory(target));
            if child_is != target_is || (target_is && !self.is_empty(target)) {
                return Err(Refused);
            }
        }
        self.entries(from_dir).remove(&from_name);
        self.entries(to_dir).insert(to_name, child);
        if let Some(target) = target {
            self.drop_name(target);
        }
        self.touch(child);
        self.step();
        Ok(())
    }

    fn exchange(&mut self, from: Name, to: Name) -> Answer {
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        let (one, other) = (self.find(from).ok_or(Refused)?, self.find(to).ok_or(Refused)?);
        if self.is_below(to_dir, one) || self.is_below(from_dir, other) {
            return Err(Refused);
        }
        if one != other {
            self.entries(from_dir).insert(from_name, other);
            self.entries(to_dir).insert(to_name, one);
            self.touch(one);
            self.touch(other);
            self.step();
        }
        Ok(())
    }

    fn link(&mut self, from: Name, to: Name) -> Answer {
        let id = self.find(from).filter(|id| !self.is_directory(*id)).ok_or(Refused)?;
        self.link_id(id, to)
    }

    /// A file that lost its last name gets no other; one that was made without gets its first.
    fn link_id(&mut self, id: Id, to: Name) -> Answer {
        let (to_dir, to_name) = self.place(to)?;
        if self.find(to).is_some() || (self.state[&id].names == 0 && !self.unnamed.contains(&id)) {
            return Err(Refused);
        }
        self.unnamed.retain(|unnamed| *unnamed != id);
        self.entries(to_dir).insert(to_name, id);
        self.touch(id).names += 1;
        self.step();
        Ok(())
    }

    fn close(&mut self) {
        let Some(id) = self.held.pop().filter(|id| !self.held.contains(id)) else { return };
        self.unnamed.retain(|unnamed| *unnamed != id);
        if self.state[&id].names == 0 {
            self.state.remove(&id);
        }
    }

    fn fill(&mut self, dir: Name, count: u32) -> Answer {
        let dir = self.find(dir).filter(|id| self.is_directory(*id)).ok_or(Refused)?;
        for _ in 0..count {
            let name = fill_name(self.fill_serial);
            let inode = match fill_target(self.fill_serial) {
                Some(target) => new_inode(Body::Symlink(target), 0o777),
                None => new_inode(empty_file(), 0o644),
            };
            self.fill_serial += 1;
            let id = self.add(inode);
            self.entries(dir).insert(name, id);
            self.step();
        }
        Ok(())
    }

    fn drain(&mut self, dir: Name, count: u32) -> Answer {
        let dir = self.find(dir).filter(|id| self.is_directory(*id)).ok_or(Refused)?;
        for _ in 0..count {
            let name = fill_name(self.drain_serial);
            self.drain_serial += 1;
            let Some(id) = self.entries_of(dir).get(&name).copied() else { continue };
            self.entries(dir).remove(&name);
            self.drop_name(id);
            self.step();
        }
        Ok(())
    }

    fn change_attributes(&mut self, op: Op, tag: usize) -> Answer {
        match op {
            Op::SetXattr { path, key, bytes } => {
                self.followed(path).ok_or(Refused)?;
                self.set_xattr(path, key, pattern_of(tag, 0, bytes as u64));
            }
            Op::RemoveXattr { path, key } => {
                let id = self.followed(path).ok_or(Refused)?;
                if !self.state[&id].xattrs.contains_key(&xattr_name(key)) {
                    return Err(Refused);
                }
                self.touch(id).xattrs.remove(&xattr_name(key));
            }
            Op::Chmod { path, mode } => {
                let id = self.followed(path).ok_or(Refused)?;
                self.touch(id).mode = mode;
            }
            _ => unreachable!("changes attributes"),
        }
        self.step();
        Ok(())
    }

    /// Sets an attribute of what is there, in the next step.
    pub fn set_xattr(&mut self, path: Name, key: u8, value: Vec<u8>) {
        let id = self.followed(path).expect("an inode of the model");
        self.touch(id).xattrs.insert(xattr_name(key), value);
    }

    fn new_block(&mut self, is_written: bool) -> Block {
        self.next_block += 1;
        let zeroes = vec![0; self.block_size as usize];
        Block { identity: self.next_block, is_written, bytes: zeroes.into() }
    }
}

mod content;

/// A number that depends on the names, not on their order.
pub fn hash_names<'n>(names: impl Iterator<Item = &'n String>) -> u64 {
    names.map(|name| hash(&name.bytes().map(u64::from).collect::<Vec<_>>())).fold(0, |sum, name| sum ^ name)
}

fn empty_file() -> Body {
    Body::File { size: 0, blocks: BTreeMap::new() }
}

fn new_inode(body: Body, mode: u16) -> Inode {
    Inode { body, mode, names: 1, xattrs: BTreeMap::new() }
}
