//! Random operations on names against a model tree, on disks of many features; `e2fsck` judges the disk.

use std::collections::{BTreeMap, BTreeSet};

use extant_block::MemoryDevice;
use extant_ondisk::{FileType, InodeFlags, InodeNumber};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use crate::error::{Error, Result};
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::{New, NewKind, RenameFlags};

/// Features of disks, as `mke2fs` takes them.
pub(super) const DISKS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "2048"],
    &["-b", "4096"],
    &["-b", "1024", "-O", "^dir_index"],
    &["-b", "1024", "-O", "^metadata_csum"],
    &["-b", "2048", "-O", "^metadata_csum,^dir_index"],
    &["-b", "1024", "-O", "^64bit", "-I", "128"],
    &["-b", "4096", "-O", "^metadata_csum,uninit_bg,^64bit"],
    &["-b", "1024", "-O", "^filetype,^metadata_csum"],
    &["-b", "1024", "-O", "large_dir,^dir_nlink,^flex_bg"],
    &["-b", "1024", "-I", "512", "-O", "orphan_file"],
    &["-b", "1024", "-O", "^has_journal"],
    &["-b", "1024", "-O", "^extent,^flex_bg,^64bit"],
    // As ext2 and ext3.
    &[
        "-b",
        "1024",
        "-O",
        "none,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file",
        "-I",
        "128",
    ],
    &[
        "-b",
        "2048",
        "-O",
        "none,has_journal,ext_attr,resize_inode,dir_index,filetype,sparse_super,large_file",
    ],
];

pub(super) fn new(kind: NewKind<'_>) -> New<'_> {
    New { kind, mode: 0o755, uid: 3, gid: 70_000, times: None, xattrs: &[] }
}

/// An inode of the model.
#[derive(Clone, Debug)]
struct Thing {
    inode: InodeNumber,
    file_type: FileType,
    /// A directory's names.
    names: BTreeMap<Vec<u8>, usize>,
    parent: usize,
    /// The links of any other inode.
    links: u16,
    target: Vec<u8>,
    content: Vec<u8>,
}

/// A disk and what it must hold.
struct Model {
    volume: Arc<Volume>,
    things: Vec<Thing>,
    /// Directories that have a name.
    dirs: Vec<usize>,
    /// Files that are open.
    open: Vec<(usize, InodeRef)>,
    random: Random,
    /// Operations may find no space or no inode, and must have done nothing then.
    may_be_full: bool,
    /// How often that was so.
    refusals: u32,
}

const ROOT: usize = 0;

impl Model {
    fn new(device: &Arc<MemoryDevice>, seed: u64, may_be_full: bool) -> Self {
        let volume = mount(device);
        let mut root = Thing::new(InodeNumber::ROOT, FileType::Directory, ROOT);
        root.names.insert(b"lost+found".to_vec(), 1);
        let found = volume.lookup(&volume.inode(InodeNumber::ROOT).unwrap(), b"lost+found").unwrap();
        let things = vec![root, Thing::new(found.number, FileType::Directory, ROOT)];
        Self {
            volume,
            things,
            dirs: vec![ROOT, 1],
            open: Vec::new(),
            random: Random::new(seed),
            may_be_full,
            refusals: 0,
        }
    }

    /// Whether an operation failed with `NoSpace`.
    fn is_refused<T>(&mut self, result: &Result<T>) -> bool {
        let refused = self.may_be_full && matches!(result, Err(Error::NoSpace | Error::NoInodes));
        self.refusals += u32::from(refused);
        refused
    }

    fn inode(&self, thing: usize) -> InodeRef {
        self.volume.inode(self.things[thing].inode).unwrap()
    }

    fn dir(&mut self) -> usize {
        self.dirs[self.random.below(self.dirs.len() as u64) as usize]
    }

    /// A name of a directory, mostly one that it has.
    fn name(&mut self, dir: usize, known: bool) -> Vec<u8> {
        let names = &self.things[dir].names;
        if known && !names.is_empty() && self.random.below(8) > 0 {
            let index = self.random.below(names.len() as u64) as usize;
            return names.keys().nth(index).unwrap().clone();
        }
        let len = match self.random.below(4) {
            0 => 1,
            1 => 8,
            2 => 60,
            _ => 255,
        };
        let mut name = format!("{:03}", self.random.below(600)).into_bytes();
        name.resize(len.max(3), b'x');
        name
    }

    fn add(&mut self, dir: usize, name: Vec<u8>, thing: Thing) {
        let index = self.things.len();
        if thing.file_type == FileType::Directory {
            self.dirs.push(index);
        }
        self.things.push(thing);
        self.things[dir].names.insert(name, index);
    }

    fn create(&mut self) -> String {
        let dir = self.dir();
        let name = self.name(dir, false);
        let len = match self.random.below(5) {
            0 => 59,
            1 => 60,
            2 => 900,
            _ => 7,
        };
        let target = vec![b't'; len];
        let kind = match self.random.below(10) {
            0..4 => NewKind::File,
            4..7 => NewKind::Directory,
            7 => NewKind::Symlink(&target),
            8 => NewKind::CharDevice { major: 5, minor: self.random.below(1 << 20) as u32 },
            _ => NewKind::Fifo,
        };
        let made = self.volume.create(&self.inode(dir), &name, &new(kind));
        let said = format!("create {kind:?} in {dir}: {made:?}");
        if self.things[dir].names.contains_key(&name) {
            assert!(matches!(made, Err(Error::Exists)), "{said}");
            return said;
        }
        if self.is_refused(&made) {
            return said;
        }
        let inode = made.unwrap_or_else(|e| panic!("{said}: {e}"));
        let mut thing = Thing::new(inode.number, kind.file_type(), dir);
        if let NewKind::Symlink(target) = kind {
            thing.target = target.to_vec();
        }
        self.add(dir, name, thing);
        if self.random.below(6) == 0 && kind == NewKind::File {
            self.open.push((self.things.len() - 1, inode));
        }
        said
    }

    fn link(&mut self) -> String {
        let from = self.dir();
        let name = self.name(from, true);
        let Some(&thing) = self.things[from].names.get(&name) else { return String::new() };
        let dir = self.dir();
        let new_name = self.name(dir, false);
        let linked = self.volume.link(&self.inode(thing), &self.inode(dir), &new_name);
        let said = format!("link {thing} in {dir}: {linked:?}");
        if self.things[thing].file_type == FileType::Directory {
            assert!(matches!(linked, Err(Error::NotPermitted)), "{said}");
        } else if self.things[dir].names.contains_key(&new_name) {
            assert!(matches!(linked, Err(Error::Exists)), "{said}");
        } else if !self.is_refused(&linked) {
            assert!(linked.is_ok(), "{said}");
            self.things[thing].links += 1;
            self.things[dir].names.insert(new_name, thing);
        }
        said
    }

    fn tmpfile(&mut self) -> String {
        let dir = self.dir();
        let made = self.volume.tmpfile(&self.inode(dir), &new(NewKind::File));
        let name = self.name(dir, false);
        let is_refused = self.is_refused(&made);
        if is_refused || self.random.below(3) == 0 || self.things[dir].names.contains_key(&name) {
            return format!("tmpfile in {dir}: {made:?}");
        }
        let inode = made.unwrap();
        let linked = self.volume.link(&inode, &self.inode(dir), &name);
        if self.is_refused(&linked) {
            return format!("tmpfile in {dir}, not linked");
        }
        linked.unwrap();
        let thing = Thing::new(inode.number, FileType::Regular, dir);
        self.add(dir, name, thing);
        format!("tmpfile in {dir}, linked")
    }

    fn remove(&mut self) -> String {
        let dir = self.dir();
        let name = self.name(dir, true);
        let inode = self.inode(dir);
        let is_rmdir = self.random.below(2) == 0;
        let removed =
            if is_rmdir { self.volume.rmdir(&inode, &name) } else { self.volume.unlink(&inode, &name) };
        let said = format!("remove (rmdir {is_rmdir}) {name:?} from {dir}: {removed:?}");
        let Some(&thing) = self.things[dir].names.get(&name) else {
            assert!(matches!(removed, Err(Error::NotFound)), "{said}");
            return said;
        };
        match (is_rmdir, self.things[thing].file_type == FileType::Directory) {
            (true, false) => assert!(matches!(removed, Err(Error::NotADirectory)), "{said}"),
            (false, true) => assert!(matches!(removed, Err(Error::IsADirectory)), "{said}"),
            (true, true) if !self.things[thing].names.is_empty() => {
                assert!(matches!(removed, Err(Error::NotEmpty)), "{said}");
            }
            _ => {
                assert!(removed.is_ok(), "{said}");
                self.take(dir, &name);
            }
        }
        said
    }

    /// Takes a name out of the model.
    fn take(&mut self, dir: usize, name: &[u8]) {
        let thing = self.things[dir].names.remove(name).unwrap();
        self.things[thing].links -= 1;
        self.dirs.retain(|dir| *dir != thing);
    }

    fn is_below(&self, thing: usize, above: usize) -> bool {
        let mut here = thing;
        loop {
            if here == above {
                return true;
            }
            if here == ROOT {
                return false;
            }
            here = self.things[here].parent;
        }
    }

    /// The expected result of a rename.
    fn renamed(&self, from: usize, name: &[u8], to: usize, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        let child = *self.things[from].names.get(name).ok_or(Error::NotFound)?;
        let target = self.things[to].names.get(to_name).copied();
        if flags.no_replace && target.is_some() {
            return Err(Error::Exists);
        }
        if flags.exchange && target.is_none() {
            return Err(Error::NotFound);
        }
        let is_dir = |thing: usize| self.things[thing].file_type == FileType::Directory;
        if is_dir(child) && from != to && self.is_below(to, child) {
            return Err(Error::InvalidArgument(""));
        }
        let Some(target) = target.filter(|target| *target != child) else { return Ok(()) };
        if is_dir(target) && from != to && self.is_below(from, target) {
            return Err(if flags.exchange { Error::InvalidArgument("") } else { Error::NotEmpty });
        }
        match (is_dir(child), is_dir(target)) {
            _ if flags.exchange => Ok(()),
            (true, false) => Err(Error::NotADirectory),
            (false, true) => Err(Error::IsADirectory),
            (true, true) if !self.things[target].names.is_empty() => Err(Error::NotEmpty),
            _ => Ok(()),
        }
    }

    fn rename(&mut self) -> String {
        let from = self.dir();
        let to = if self.random.below(3) == 0 { from } else { self.dir() };
        let name = self.name(from, true);
        let known = self.random.below(2) == 0;
        let to_name = self.name(to, known);
        let flags = match self.random.below(6) {
            0 => RenameFlags { no_replace: true, ..RenameFlags::default() },
            1 => RenameFlags { exchange: true, ..RenameFlags::default() },
            2 => RenameFlags { whiteout: true, ..RenameFlags::default() },
            _ => RenameFlags::default(),
        };
        let renamed = self.volume.rename(&self.inode(from), &name, &self.inode(to), &to_name, flags);
        let expected = self.renamed(from, &name, to, &to_name, flags);
        if expected.is_ok() && self.is_refused(&renamed) {
            return "rename refused".to_owned();
        }
        let said = format!(
            "rename {from}/{name:?} to {to}/{to_name:?} {flags:?}: {renamed:?}, expected {expected:?}"
        );
        match (&renamed, &expected) {
            (Ok(()), Ok(())) => {}
            (Err(is), Err(must)) => {
                assert_eq!(std::mem::discriminant(is), std::mem::discriminant(must), "{said}");
                return said;
            }
            _ => panic!("{said}"),
        }
        let child = self.things[from].names[&name];
        let target = self.things[to].names.get(&to_name).copied();
        if target == Some(child) {
            return said;
        }
        if flags.exchange {
            let target = target.unwrap();
            self.things[from].names.insert(name, target);
            self.things[target].parent = from;
        } else {
            if target.is_some() {
                self.take(to, &to_name);
            }
            self.things[from].names.remove(&name);
            if flags.whiteout {
                let inode = self.volume.lookup(&self.inode(from), &name).unwrap();
                assert_eq!(inode.raw().device(), (0, 0));
                let thing = Thing::new(inode.number, FileType::CharDevice, from);
                self.add(from, name, thing);
            }
        }
        self.things[to].names.insert(to_name, child);
        self.things[child].parent = to;
        said
    }

    fn write(&mut self) -> String {
        let dir = self.dir();
        let name = self.name(dir, true);
        let Some(&thing) = self.things[dir].names.get(&name) else { return String::new() };
        if self.things[thing].file_type != FileType::Regular {
            return String::new();
        }
        let len = self.random.below(9_000) as usize;
        let bytes = self.random.bytes(len);
        let written = self.volume.write_at(&self.inode(thing), None, &bytes, true);
        if !self.is_refused(&written) {
            let written = written.as_ref().unwrap();
            assert!(*written == len || self.may_be_full, "{written} of {len} written");
            self.things[thing].content.extend_from_slice(&bytes[..*written]);
        }
        format!("write to {thing}: {written:?} of {len}")
    }

    fn step(&mut self) -> String {
        match self.random.below(22) {
            20.. => self.write(),
            0..9 => self.create(),
            9..13 => self.remove(),
            13..17 => self.rename(),
            17 => self.link(),
            18 => self.tmpfile(),
            _ => {
                if !self.open.is_empty() {
                    let index = self.random.below(self.open.len() as u64) as usize;
                    drop(self.open.swap_remove(index));
                }
                self.volume.evict_unlinked();
                "evict_unlinked".to_owned()
            }
        }
    }

    fn compare(&self, volume: &Arc<Volume>) {
        for &dir in &self.dirs {
            let thing = &self.things[dir];
            let inode = volume.inode(thing.inode).unwrap();
            let listed = list(volume, &inode);
            let names: BTreeSet<_> = thing.names.keys().cloned().collect();
            let found: BTreeSet<_> =
                listed.keys().filter(|name| !matches!(name.as_slice(), b"." | b"..")).cloned().collect();
            assert_eq!(found, names, "names of {dir}");
            assert_eq!(listed[b".".as_slice()].0, thing.inode);
            assert_eq!(listed[b"..".as_slice()].0, self.things[thing.parent].inode, "parent of {dir}");
            let below =
                thing.names.values().filter(|t| self.things[**t].file_type == FileType::Directory).count();
            assert_eq!(usize::from(inode.raw().links_count()), below + 2, "links of {dir}");
            for (name, child) in &thing.names {
                let child = &self.things[*child];
                let (number, file_type) = listed[name];
                assert_eq!(number, child.inode);
                assert!(file_type.is_none_or(|file_type| file_type == child.file_type));
                let inode = volume.lookup(&inode, name).unwrap();
                assert_eq!((inode.number, inode.file_type()), (child.inode, child.file_type));
                if child.file_type != FileType::Directory {
                    assert_eq!(inode.raw().links_count(), child.links);
                }
                if child.file_type == FileType::Symlink {
                    assert_eq!(volume.read_link(&inode).unwrap(), child.target);
                }
                if child.file_type == FileType::Regular {
                    let mut content = vec![0; child.content.len() + 1];
                    let read = volume.read_at(&inode, 0, &mut content).unwrap();
                    assert_eq!(content[..read], child.content);
                }
            }
        }
    }
}

impl Thing {
    fn new(inode: InodeNumber, file_type: FileType, parent: usize) -> Self {
        Self {
            inode,
            file_type,
            names: BTreeMap::new(),
            parent,
            links: 1,
            target: Vec::new(),
            content: Vec::new(),
        }
    }
}

/// All names of a directory, each once, with inode and type.
pub(super) fn list(
    volume: &Arc<Volume>,
    dir: &InodeRef,
) -> BTreeMap<Vec<u8>, (InodeNumber, Option<FileType>)> {
    let mut names = BTreeMap::new();
    volume
        .read_dir(dir, 0, &mut |item| {
            let before = names.insert(item.name.to_vec(), (item.inode, item.file_type));
            assert!(before.is_none(), "twice: {:?}", item.name);
            true
        })
        .unwrap();
    names
}

/// How often an operation found no space or no inode.
fn run(seed: u64, arguments: &[&str], kilobytes: u32, may_be_full: bool) -> u32 {
    let (device, _) = format(arguments, kilobytes, &[]);
    let device = Arc::new(device);
    let mut model = Model::new(&device, seed, may_be_full);
    for step in 0..400 {
        let said = model.step();
        if std::env::var_os("EXTANT_TRACE").is_some() {
            println!("{step}: {said}");
        }
        if step % 100 == 99 {
            model.compare(&model.volume);
        }
    }
    model.compare(&model.volume);
    model.open.clear();
    model.volume.unmount().unwrap();
    assert_clean(&*device, &format!("seed {seed}, {arguments:?}"));
    let options = Options { read_only: true, background: false, ..Options::default() };
    let again = Volume::mount(device, &options).unwrap().0;
    model.compare(&again);
    model.refusals
}

/// Runs and says which one failed.
fn run_said(seed: u64, arguments: &[&str], kilobytes: u32, may_be_full: bool) -> u32 {
    std::panic::catch_unwind(|| run(seed, arguments, kilobytes, may_be_full)).unwrap_or_else(|panic| {
        println!("seed {seed}, {arguments:?}");
        std::panic::resume_unwind(panic)
    })
}

#[test]
fn random_operations_agree_with_a_model_tree() {
    if has_e2fsprogs() {
        for seed in 0..225 {
            run_said(seed, DISKS[seed as usize % DISKS.len()], 24 << 10, false);
        }
    }
}

#[test]
fn random_operations_on_a_full_disk_do_all_or_nothing() {
    if !has_e2fsprogs() {
        return;
    }
    let disks: [&[&str]; 4] = [
        &["-b", "1024", "-N", "64", "-m", "0"],
        &["-b", "1024", "-N", "400", "-m", "0"],
        &["-b", "1024", "-N", "400", "-m", "0", "-O", "^metadata_csum,^dir_index"],
        &["-b", "1024", "-N", "400", "-m", "0", "-I", "128", "-O", "^has_journal"],
    ];
    let refusals: u32 = (0..60).map(|seed| run_said(seed, disks[seed as usize % 4], 1_600, true)).sum();
    assert!(refusals > 1_000, "{refusals} refusals: the disks are too large for this test");
}

#[test]
fn names_in_a_synchronous_directory_are_durable_at_once() {
    if !has_e2fsprogs() {
        return;
    }
    for (flag, is_durable) in
        [(InodeFlags::DIRSYNC, true), (InodeFlags::SYNC, true), (InodeFlags::NODUMP, false)]
    {
        let (device, _) = format(&["-b", "1024"], 8 << 10, &[]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        volume.set_flags(&root, root.raw().flags() & InodeFlags::USER_VISIBLE | flag).unwrap();
        volume.create(&root, b"a", &new(NewKind::File)).unwrap();
        volume.create(&root, b"b", &new(NewKind::File)).unwrap();
        volume.rename(&root, b"a", &root, b"c", RenameFlags::default()).unwrap();
        volume.unlink(&root, b"b").unwrap();
        let crashed = mount(&Arc::new(device.snapshot()));
        let names = list(&crashed, &crashed.inode(InodeNumber::ROOT).unwrap());
        let has = |name: &[u8]| names.contains_key(name);
        assert_eq!((has(b"a"), has(b"b"), has(b"c")), (false, false, is_durable), "{flag:?}");
    }
}
