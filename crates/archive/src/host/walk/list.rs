//! Lists a tree of Linux on several threads.
//!
//! Each directory is a task, which a thread opens in the directory above; so no link leads elsewhere, whatever happens to the tree meanwhile. The
//! directories are put in order in the end, and what is another name of a file is found then.
//!
//! Memory: the entries, up to [`ENTRIES_BYTES_MAX`] without their names. A directory is open until all directories in it are, and the last ones
//! found are opened first.
//!
//! Locks: `SHARED_WORK`, held for no I/O. Test: `tests/host.rs`; few descriptors: `tests/command/content.rs` of the command.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use extant_rt::{Arc, AtomicUsize, Condvar, LockClass, Mutex, Ordering, panicking, share_work};
use rustix::io::Errno;

use super::Walk;
use super::look::{Place, Seen, names, own_name};
use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use crate::host::open_path::open_directory;
use crate::host::walk::ENTRIES_BYTES_MAX;
use crate::host_file::FileId;
use crate::path::TreePath;

/// More than CPUs where there are few: looks wait for disks, too.
const THREADS: usize = 4;

/// A directory to list.
struct Task {
    above: Arc<OwnedFd>,
    name: Vec<u8>,
    tree: TreePath,
    id: FileId,
    /// Its place among the listings.
    listing: usize,
}

/// A file that was found, but for which other names it has.
struct Found {
    entry: Entry,
    id: FileId,
    links: u64,
    /// The listing of what is in it, if it is a directory.
    below: Option<usize>,
}

/// What is in a directory, in order.
#[derive(Default)]
struct Inside {
    found: Vec<Found>,
    /// One for each directory; the listings get their places later.
    tasks: Vec<Task>,
}

struct State {
    /// The one that was found last is taken first.
    tasks: Vec<Task>,
    running: usize,
    /// Of each directory that was found, once it is listed.
    listings: Vec<Option<Result<Vec<Found>>>>,
    /// There are too many entries, or too many directories on the way.
    is_over: bool,
}

struct Listings<'a> {
    walk: &'a Walk,
    has_proc: bool,
    /// Of all entries.
    bytes: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread that lists. Dropping it in a panic ends the others' waiting.
struct Worker<'a>(&'a Listings<'a>);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.0.state.lock().is_over = true;
            self.0.changed.notify_all();
        }
    }
}

impl Walk {
    /// The entries of the tree and, of each regular file, which one it is. None if they are too many to be kept.
    pub(in crate::host) fn entries(&self) -> Result<Option<(Vec<Entry>, Vec<FileId>)>> {
        let seen = Seen::at(&self.root, self.follow_root).map_err(self.failed(&self.at))?;
        let (id, links) = (seen.id(), seen.found.nlink());
        let (entry, _) = self.entry(self.at.clone(), self.root_place(), seen)?;
        if entry.kind != EntryKind::Directory {
            return Ok(Some(in_order(vec![Some(Ok(vec![Found { entry, id, links, below: None }]))], false)?));
        }
        let root = Arc::new(self.open_root(id)?);
        let state = State { tasks: Vec::new(), running: 1, listings: vec![None, None], is_over: false };
        let listings = Listings {
            walk: self,
            has_proc: own_name(&root).join(".").is_dir(),
            bytes: AtomicUsize::new(0),
            state: Mutex::new(LockClass::SHARED_WORK, state),
            changed: Condvar::new(),
        };
        listings.enter(1, listings.list(&root, &self.at));
        drop(root);
        share_work(THREADS, 0..THREADS, |_| listings.work());
        let state = listings.state.into_inner();
        if state.is_over {
            return Ok(None);
        }
        let mut all = state.listings;
        all[0] = Some(Ok(vec![Found { entry, id, links, below: Some(1) }]));
        in_order(all, self.hard_links).map(Some)
    }
}

impl Listings<'_> {
    /// Lists directories until there are no more.
    fn work(&self) {
        let _worker = Worker(self);
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return;
            }
            let Some(task) = state.tasks.pop() else {
                if state.running == 0 {
                    return;
                }
                state = self.changed.wait(state);
                continue;
            };
            state.running += 1;
            drop(state);
            let (listing, listed) = (task.listing, self.open(task));
            self.enter(listing, listed);
            state = self.state.lock();
        }
    }

    /// Lists the directory of a task.
    fn open(&self, task: Task) -> Result<Inside> {
        let Task { above, name, tree, id, .. } = task;
        let opened = open_directory(&above, &name);
        drop(above);
        let (directory, opened) = opened.map_err(self.walk.failed(&tree))?;
        if opened != id {
            return Err(Error::Changed { path: self.walk.host(&tree) });
        }
        self.list(&Arc::new(directory), &tree)
    }

    /// What is in a directory, or some of it if there are too many entries.
    fn list(&self, directory: &Arc<OwnedFd>, tree: &TreePath) -> Result<Inside> {
        let mut inside = Inside::default();
        let mut names = names(directory).map_err(self.walk.failed(tree))?;
        while let Some(name) = names.pop() {
            let path = tree.join(&name.bytes)?;
            let place = Place { directory: directory.as_fd(), name: &name.bytes, follow: false };
            let base = || if self.has_proc { own_name(directory) } else { self.walk.host(tree) };
            let seen = place.look(name.is_regular, base).map_err(self.walk.failed(&path))?;
            let (id, links) = (seen.id(), seen.found.nlink());
            if self.walk.excluded == Some(id) {
                continue;
            }
            let (entry, _) = self.walk.entry(path, place, seen)?;
            let bytes = entry.memory_bytes();
            if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > ENTRIES_BYTES_MAX {
                break;
            }
            let mut below = None;
            if entry.kind == EntryKind::Directory {
                below = Some(inside.tasks.len());
                let (above, tree) = (directory.clone(), entry.path.clone());
                inside.tasks.push(Task { above, name: name.bytes, tree, id, listing: 0 });
            }
            inside.found.push(Found { entry, id, links, below });
        }
        Ok(inside)
    }

    /// Enters what is in a directory, and the directories there as tasks.
    fn enter(&self, listing: usize, inside: Result<Inside>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.running -= 1;
        state.is_over |= self.bytes.load(Ordering::Relaxed) > ENTRIES_BYTES_MAX;
        let inside = inside.map(|Inside { mut found, mut tasks }| {
            let first = state.listings.len();
            found.iter_mut().filter_map(|found| found.below.as_mut()).for_each(|below| *below += first);
            tasks.iter_mut().zip(first..).for_each(|(task, place)| task.listing = place);
            state.listings.resize_with(first + tasks.len(), || None);
            state.tasks.extend(tasks.into_iter().rev());
            found
        });
        state.is_over |= inside.as_ref().is_err_and(is_short_of_descriptors);
        state.listings[listing] = Some(inside);
        drop(guard);
        self.changed.notify_all();
    }
}

fn is_short_of_descriptors(error: &Error) -> bool {
    let Error::Host { source, .. } = error else { return false };
    matches!(Errno::from_io_error(source), Some(Errno::MFILE | Errno::NFILE))
}

/// The entries in the order of a walk, from the first listing on: what is in a directory comes after it.
fn in_order(
    mut listings: Vec<Option<Result<Vec<Found>>>>,
    hard_links: bool,
) -> Result<(Vec<Entry>, Vec<FileId>)> {
    let (mut entries, mut files) = (Vec::new(), Vec::new());
    let mut first_names: HashMap<FileId, TreePath> = HashMap::new();
    let mut take =
        |listing: usize| listings[listing].take().unwrap_or_else(|| Ok(Vec::new())).map(Vec::into_iter);
    let mut open = vec![take(0)?];
    while let Some(here) = open.last_mut() {
        let Some(Found { mut entry, id, links, below }) = here.next() else {
            open.pop();
            continue;
        };
        if hard_links && links > 1 && entry.kind != EntryKind::Directory {
            match first_names.get(&id) {
                Some(first) => {
                    entry.kind = EntryKind::HardLink(first.clone());
                    entry.attributes.xattrs.clear();
                }
                None => drop(first_names.insert(id, entry.path.clone())),
            }
        }
        if let EntryKind::File(_) = entry.kind {
            files.push(id);
        }
        entries.push(entry);
        if let Some(below) = below {
            open.push(take(below)?);
        }
    }
    Ok((entries, files))
}
