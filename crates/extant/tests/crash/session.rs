//! Carrying operations out on a mounted disk.

use std::time::Duration;

use extant::{
    Dir, Error, Fallocate, File, Filesystem, Mount, New, NewKind, QuotaType, RenameFlags, Result,
    SetAttributes, SetQuota, XattrMode,
};
use extant_block::BlockDevice;
use extant_rt::{Arc, WallClock};

use crate::model::Model;
use crate::op::{HELD, Name, Op, fill_name, fill_target, pattern_of, target_of, xattr_name};

/// A mounted disk, a directory of it, and the files that are open there.
pub struct Session {
    device: Arc<dyn BlockDevice>,
    fs: Option<Filesystem>,
    /// The prefix of all paths.
    root: String,
    held: Vec<File>,
    unnamed: Vec<File>,
    pages: Pages,
}

/// The page cache of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// None: all is written at once.
    pub bytes: u64,
    pub keep_clean: bool,
}

/// The byte of the superblock's `s_feature_ro_compat` with `quota`, and its bit.
const RO_COMPAT_SECOND_BYTE: u64 = 1024 + 0x65;
const QUOTA_BIT: u8 = 1;
/// Writeback contexts at most, more than an image has on two CPUs.
const CONTEXTS: usize = 4;

/// As every mount here: the same work gives the same bytes, and nothing happens in the background.
pub fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> Result<Filesystem> {
    options(read_only).enforce_quotas(&counted(&*device)).background(false).open_device(device)
}

/// The types whose limits are in force: those that a disk counts.
fn counted(device: &dyn BlockDevice) -> Vec<QuotaType> {
    let mut feature = [0];
    let is_read = device.read_at(RO_COMPAT_SECOND_BYTE, &mut feature).is_ok();
    let has_quotas = is_read && feature[0] & QUOTA_BIT != 0;
    if has_quotas { vec![QuotaType::User, QuotaType::Group] } else { Vec::new() }
}

fn mount_with(device: Arc<dyn BlockDevice>, pages: Pages) -> Result<Filesystem> {
    options(false)
        .enforce_quotas(&counted(&*device))
        .background(false)
        .page_cache_bytes(pages.bytes)
        .keep_clean_pages(pages.keep_clean)
        .open_device(device)
}

/// As [`mount`], but a thread commits and checkpoints, some write back, and nothing stays in memory that can be read again.
pub fn mount_in_background(device: Arc<dyn BlockDevice>, pages: Pages) -> Result<Filesystem> {
    let fs = background_options(pages).open_device(device)?;
    if let Some((_, max)) = fs.writeback_contexts() {
        fs.set_writeback_contexts(CONTEXTS.min(max))?;
    }
    Ok(fs)
}

/// As [`mount_in_background`], with commits every 2 ms and inode tables zeroed from the start.
pub fn mount_restless(device: Arc<dyn BlockDevice>, pages: Pages) -> Result<Filesystem> {
    background_options(pages)
        .commit_interval(Duration::from_millis(2))
        .table_initialisation_delay(Duration::ZERO)
        .open_device(device)
}

fn background_options(pages: Pages) -> Mount {
    options(false)
        .background(true)
        .cache_bytes(0)
        .page_cache_bytes(pages.bytes)
        .keep_clean_pages(pages.keep_clean)
}

fn options(read_only: bool) -> Mount {
    // With discards, so that one that comes too early is found.
    Mount::new().read_only(read_only).discard(true).clock(WallClock::Fixed(1_700_000_000, 0))
}

/// Gives users and groups limits, of which soft ones are exceeded by few files; root may exceed all.
pub fn set_limits(fs: &Filesystem) {
    let set = SetQuota {
        space_soft_bytes: Some(2048),
        space_hard_bytes: Some(4096),
        inodes_soft: Some(1),
        inodes_hard: Some(2),
        ..SetQuota::default()
    };
    for id in [0, 0o600, 0o644, 0o777] {
        for quota_type in [QuotaType::User, QuotaType::Group] {
            fs.set_quota(quota_type, id, &set).expect("limits");
        }
    }
}

fn new_file<'n>(mode: u16) -> New<'n> {
    // Of other users by their mode, whose usage a disk may count.
    New { kind: NewKind::File, mode, uid: u32::from(mode), gid: u32::from(mode), times: None, xattrs: &[] }
}

/// Writes until the disk is full: how many bytes, at least one.
fn write(file: &File, bytes: &[u8], at: u64) -> Result<u64> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], at + done as u64) {
            Ok(0) => return Err(Error::NoSpace),
            Ok(written) => done += written,
            Err(Error::NoSpace) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done as u64)
}

/// Does something `count` times, or until the disk is full: how often, at least once.
fn repeat(count: u32, mut work: impl FnMut(u32) -> Result<()>) -> Result<u32> {
    for index in 0..count {
        match work(index) {
            Err(Error::NoSpace | Error::NoInodes) if index > 0 => return Ok(index),
            other => other?,
        }
    }
    Ok(count)
}

impl Session {
    pub fn mount(device: Arc<dyn BlockDevice>, pages: Pages) -> Result<Self> {
        let fs = Some(mount_with(device.clone(), pages)?);
        Ok(Self { device, fs, root: "/".to_owned(), held: Vec::new(), unnamed: Vec::new(), pages })
    }

    /// Works in a directory of a disk that others use too.
    pub fn within(device: Arc<dyn BlockDevice>, fs: Filesystem, dir: &str) -> Self {
        let (root, pages) = (format!("/{dir}/"), Pages::default());
        Self { device, fs: Some(fs), root, held: Vec::new(), unnamed: Vec::new(), pages }
    }

    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("mounted")
    }

    /// Not after a remount that failed.
    pub fn is_mounted(&self) -> bool {
        self.fs.is_some()
    }

    /// The position on the disk of the bytes behind a file's end in its last block, and their length.
    pub fn tail_of(&self, file: Name) -> Result<(u64, u64)> {
        let file = self.lookup(file)?;
        let block = u64::from(self.fs().statistics().block_size);
        let size = file.metadata().size;
        let extents = file.extents(size, 1)?;
        let extent = extents.first().ok_or(Error::NoSuchOffset)?;
        let start = extent.start.0 + size / block - u64::from(extent.logical.0);
        Ok((start * block + size % block, block - size % block))
    }

    pub fn unmount(mut self) -> Result<()> {
        self.release();
        self.fs.take().map_or(Ok(()), Filesystem::unmount)
    }

    fn release(&mut self) {
        self.unnamed.clear();
        self.held.clear();
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    fn held(&self) -> Result<File> {
        self.held.last().cloned().ok_or(Error::NotFound)
    }

    fn lookup(&self, path: Name) -> Result<File> {
        if path == HELD { self.held() } else { self.fs().lookup(self.path(path)) }
    }

    fn writer(&self, file: Name) -> Result<File> {
        if file == HELD {
            return self.held();
        }
        self.fs().options().read(true).write(true).open(self.path(file))
    }

    /// Names a file that is open; whether it was made without a name does not matter from then on.
    fn link_open(&mut self, file: &File, path: Name) -> Result<()> {
        let (dir, name) = self.place(path)?;
        dir.link(file, name)?;
        self.unnamed.retain(|unnamed| unnamed.number() != file.number());
        Ok(())
    }

    fn dir(&self, path: &str) -> Result<Dir> {
        self.fs().dir(self.path(path))
    }

    /// The directory of a path and its last name.
    fn place<'n>(&self, path: &'n str) -> Result<(Dir, &'n [u8])> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.dir(parent)?, name.as_bytes()))
    }

    /// Carries out `op`; `model` is the tree before it. What was done is less than `op` if the disk became full.
    pub fn run(&mut self, op: Op, model: &Model) -> Result<Op> {
        self.run_by_path(op, model).map_err(Error::into_cause)
    }

    fn run_by_path(&mut self, op: Op, model: &Model) -> Result<Op> {
        let tag = model.tag();
        match op {
            Op::Create(path) => {
                self.fs().options().write(true).create_new(true).open(self.path(path)).map(drop)?
            }
            Op::Write { .. }
            | Op::Append { .. }
            | Op::Sparse { .. }
            | Op::Truncate { .. }
            | Op::Allocate { .. }
            | Op::Zero { .. }
            | Op::Punch { .. }
            | Op::Collapse { .. }
            | Op::Insert { .. } => return self.run_on_content(op, model),
            Op::Unlink(path) => self.fs().remove_file(self.path(path))?,
            Op::Rename { from, to } => self.fs().rename(self.path(from), self.path(to))?,
            Op::Exchange { from, to } => {
                let ((from_dir, from), (to_dir, to)) = (self.place(from)?, self.place(to)?);
                let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
                from_dir.rename(from, &to_dir, to, exchange)?;
            }
            Op::Link { from: HELD, to } => self.link_open(&self.held()?, to)?,
            Op::Link { from, to } => self.fs().hard_link(self.path(from), self.path(to))?,
            Op::Symlink { link, bytes } => self.fs().symlink(target_of(bytes), self.path(link))?,
            Op::Mkdir(path) => self.fs().create_dir(self.path(path))?,
            Op::Rmdir(path) => self.fs().remove_dir(self.path(path))?,
            Op::Fill { dir: path, count } => {
                let dir = self.dir(path)?;
                let first = model.serials().0;
                let make = |index| {
                    let target = fill_target(first + index);
                    let new = match &target {
                        Some(target) => New { kind: NewKind::Symlink(target.as_bytes()), ..new_file(0o777) },
                        None => new_file(0o644),
                    };
                    dir.create(fill_name(first + index).as_bytes(), &new).map(drop)
                };
                return Ok(Op::Fill { dir: path, count: repeat(count, make)? });
            }
            Op::Drain { dir, count } => self.drain(dir, model.serials().1, count)?,
            Op::SetXattr { path, key, bytes } => {
                let value = pattern_of(tag, 0, bytes as u64);
                self.lookup(path)?.set_xattr(&xattr_name(key), &value, XattrMode::default())?;
            }
            Op::RemoveXattr { path, key } => self.lookup(path)?.remove_xattr(&xattr_name(key))?,
            Op::Chmod { path, mode } => {
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.lookup(path)?.set_attributes(&set)?;
            }
            Op::Fsync(path) => self.lookup(path)?.sync_all()?,
            Op::Fdatasync(path) => self.lookup(path)?.sync_data()?,
            Op::Sync => self.fs().sync()?,
            Op::Hold(_) | Op::Tmpfile { .. } | Op::LinkTmp(_) | Op::Close | Op::Release | Op::Remount => {
                return self.run_on_held(op, tag);
            }
        }
        Ok(op)
    }

    fn run_on_content(&self, op: Op, model: &Model) -> Result<Op> {
        let (tag, block) = (model.tag(), model.block_size());
        match op {
            Op::Write { file, at, bytes } => {
                let bytes = write(&self.writer(file)?, &pattern_of(tag, at, bytes), at)?;
                return Ok(Op::Write { file, at, bytes });
            }
            Op::Append { file: HELD, bytes } => {
                let file = self.held()?;
                let at = file.metadata().size;
                return Ok(Op::Append { file: HELD, bytes: write(&file, &pattern_of(tag, at, bytes), at)? });
            }
            Op::Append { file, bytes } => {
                let data = pattern_of(tag, model.size_of(file), bytes);
                let bytes = write(&self.fs().options().append(true).open(self.path(file))?, &data, 0)?;
                return Ok(Op::Append { file, bytes });
            }
            Op::Sparse { file: path, block: first, count } => {
                let file = self.writer(path)?;
                let make = |index| {
                    let at = (first + 2 * u64::from(index)) * block;
                    file.write_all_at(&pattern_of(tag, at, block), at)
                };
                return Ok(Op::Sparse { file: path, block: first, count: repeat(count, make)? });
            }
            Op::Truncate { file, bytes } => self.writer(file)?.set_len(bytes)?,
            Op::Allocate { file, at, bytes, keep_size } => {
                self.writer(file)?.allocate(Fallocate::Allocate { keep_size }, at, bytes)?;
            }
            Op::Zero { file, at, bytes, keep_size } => {
                self.writer(file)?.allocate(Fallocate::ZeroRange { keep_size }, at, bytes)?;
            }
            Op::Punch { file, at, bytes } => self.writer(file)?.allocate(Fallocate::PunchHole, at, bytes)?,
            Op::Collapse { file, block: at, len } => {
                self.writer(file)?.allocate(Fallocate::CollapseRange, at * block, len * block)?;
            }
            Op::Insert { file, block: at, len } => {
                self.writer(file)?.allocate(Fallocate::InsertRange, at * block, len * block)?;
            }
            _ => unreachable!("changes content"),
        }
        Ok(op)
    }

    fn drain(&self, dir: Name, first: u32, count: u32) -> Result<()> {
        let dir = self.dir(dir)?;
        (first..first + count).try_for_each(|serial| match dir.unlink(fill_name(serial).as_bytes()) {
            Err(Error::NotFound) => Ok(()),
            other => other,
        })
    }

    fn run_on_held(&mut self, op: Op, tag: usize) -> Result<Op> {
        match op {
            Op::Hold(path) => self.held.push(self.writer(path)?),
            Op::Tmpfile { bytes } => {
                let file = self.dir("")?.create_tmpfile(&new_file(0o600))?;
                let bytes = write(&file, &pattern_of(tag, 0, bytes), 0)?;
                self.held.push(file.clone());
                self.unnamed.push(file);
                return Ok(Op::Tmpfile { bytes });
            }
            Op::LinkTmp(path) => {
                if let Some(file) = self.unnamed.last().cloned() {
                    self.link_open(&file, path)?;
                }
            }
            Op::Close => {
                let closed = self.held.pop();
                let is_closed =
                    |file: &File| closed.as_ref().is_some_and(|closed| closed.number() == file.number());
                if !self.held.iter().any(is_closed) {
                    self.unnamed.retain(|file| !is_closed(file));
                }
            }
            Op::Release => self.release(),
            Op::Remount => {
                self.release();
                if let Some(fs) = self.fs.take() {
                    fs.unmount()?;
                }
                self.fs = Some(mount_with(self.device.clone(), self.pages)?);
            }
            _ => unreachable!("works on files held open"),
        }
        Ok(op)
    }
}
