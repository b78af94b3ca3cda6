//! Carrying operations out on a mounted disk.

use extant::{
    Dir, Error, Fallocate, File, Filesystem, Mount, New, NewKind, RenameFlags, Result, SetAttributes,
    XattrMode,
};
use extant_block::BlockDevice;
use extant_rt::{Arc, WallClock};

use crate::model::Model;
use crate::op::{Name, Op, fill_name, pattern_of, target_of, xattr_name};

/// A mounted disk and the files that are open on it.
pub struct Session {
    device: Arc<dyn BlockDevice>,
    fs: Option<Filesystem>,
    held: Vec<File>,
    unnamed: Vec<File>,
}

/// As every mount here: the same work gives the same bytes, and nothing happens by itself.
pub fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> Result<Filesystem> {
    let clock = WallClock::Fixed(1_700_000_000, 0);
    Mount::new().read_only(read_only).background(false).clock(clock).open_device(device)
}

fn new_file<'n>(mode: u16) -> New<'n> {
    New { kind: NewKind::File, mode, uid: 0, gid: 0, times: None, xattrs: &[] }
}

impl Session {
    pub fn mount(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let fs = mount(device.clone(), false)?;
        Ok(Self { device, fs: Some(fs), held: Vec::new(), unnamed: Vec::new() })
    }

    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("mounted")
    }

    pub fn unmount(mut self) -> Result<()> {
        self.release();
        self.fs.take().map_or(Ok(()), Filesystem::unmount)
    }

    fn release(&mut self) {
        self.unnamed.clear();
        self.held.clear();
    }

    fn writer(&self, file: Name) -> Result<File> {
        self.fs().options().read(true).write(true).open(file)
    }

    /// The directory of a path and its last name.
    fn place<'n>(&self, path: &'n str) -> Result<(Dir, &'n [u8])> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.fs().dir(format!("/{parent}"))?, name.as_bytes()))
    }

    /// Carries out `op`; `model` is the tree before it.
    pub fn run(&mut self, op: Op, model: &Model) -> Result<()> {
        let tag = model.tag();
        let block = model.block_size();
        match op {
            Op::Create(path) => self.fs().options().write(true).create_new(true).open(path).map(drop),
            Op::Write { file, at, bytes } => self.writer(file)?.write_all_at(&pattern_of(tag, at, bytes), at),
            Op::Append { file, bytes } => {
                let at = model.size_of(file);
                self.fs().options().append(true).open(file)?.write_all_at(&pattern_of(tag, at, bytes), 0)
            }
            Op::Sparse { file, block: first, count } => {
                let file = self.writer(file)?;
                (0..count)
                    .map(|index| (first + 2 * index) * block)
                    .try_for_each(|at| file.write_all_at(&pattern_of(tag, at, block), at))
            }
            Op::Truncate { file, bytes } => self.writer(file)?.set_len(bytes),
            Op::Allocate { file, at, bytes, keep_size } => {
                self.writer(file)?.allocate(Fallocate::Allocate { keep_size }, at, bytes)
            }
            Op::Zero { file, at, bytes, keep_size } => {
                self.writer(file)?.allocate(Fallocate::ZeroRange { keep_size }, at, bytes)
            }
            Op::Punch { file, at, bytes } => self.writer(file)?.allocate(Fallocate::PunchHole, at, bytes),
            Op::Collapse { file, block: at, len } => {
                self.writer(file)?.allocate(Fallocate::CollapseRange, at * block, len * block)
            }
            Op::Insert { file, block: at, len } => {
                self.writer(file)?.allocate(Fallocate::InsertRange, at * block, len * block)
            }
            Op::Unlink(path) => self.fs().remove_file(path),
            Op::Rename { from, to } => self.fs().rename(from, to),
            Op::Exchange { from, to } => {
                let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
                from_dir.rename(from, &to_dir, to, RenameFlags { exchange: true, ..RenameFlags::default() })
            }
            Op::Link { from, to } => self.fs().hard_link(from, to),
            Op::Symlink { link, bytes } => self.fs().symlink(target_of(bytes), link),
            Op::Mkdir(path) => self.fs().create_dir(path),
            Op::Rmdir(path) => self.fs().remove_dir(path),
            Op::Fill { dir, count } => {
                let dir = self.fs().dir(dir)?;
                let first = model.serials().0;
                (first..first + count).try_for_each(|serial| {
                    dir.create(fill_name(serial).as_bytes(), &new_file(0o644)).map(drop)
                })
            }
            Op::Drain { dir, count } => self.drain(dir, model.serials().1, count),
            Op::SetXattr { path, key, bytes } => {
                let value = pattern_of(tag, 0, bytes as u64);
                self.fs().lookup(path)?.set_xattr(&xattr_name(key), &value, XattrMode::default())
            }
            Op::RemoveXattr { path, key } => self.fs().lookup(path)?.remove_xattr(&xattr_name(key)),
            Op::Chmod { path, mode } => {
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.fs().lookup(path)?.set_attributes(&set)
            }
            Op::Fsync(path) => self.fs().lookup(path)?.sync_all(),
            Op::Fdatasync(path) => self.fs().lookup(path)?.sync_data(),
            Op::Sync => self.fs().sync(),
            Op::Hold(_)
            | Op::WriteHeld { .. }
            | Op::Tmpfile { .. }
            | Op::LinkTmp(_)
            | Op::Release
            | Op::Remount => self.run_on_held(op, tag),
        }
    }

    fn drain(&self, dir: Name, first: u32, count: u32) -> Result<()> {
        let dir = self.fs().dir(dir)?;
        (first..first + count).try_for_each(|serial| match dir.unlink(fill_name(serial).as_bytes()) {
            Err(Error::NotFound) => Ok(()),
            other => other,
        })
    }

    fn run_on_held(&mut self, op: Op, tag: usize) -> Result<()> {
        match op {
            Op::Hold(path) => self.held.push(self.writer(path)?),
            Op::WriteHeld { bytes } => {
                if let Some(file) = self.held.last() {
                    let at = file.metadata().size;
                    file.write_all_at(&pattern_of(tag, at, bytes), at)?;
                }
            }
            Op::Tmpfile { bytes } => {
                let file = self.fs().root()?.create_unnamed(&new_file(0o600))?;
                self.held.push(file.clone());
                self.unnamed.push(file.clone());
                file.write_all_at(&pattern_of(tag, 0, bytes), 0)?;
            }
            Op::LinkTmp(path) => {
                if let Some(file) = self.unnamed.last() {
                    let (dir, name) = self.place(path)?;
                    dir.link(file, name)?;
                    self.unnamed.pop();
                }
            }
            Op::Release => self.release(),
            Op::Remount => {
                self.release();
                if let Some(fs) = self.fs.take() {
                    fs.unmount()?;
                }
                self.fs = Some(mount(self.device.clone(), false)?);
            }
            _ => unreachable!("works on files held open"),
        }
        Ok(())
    }
}
