//! Trees of the host that others change while they are read, and trees deeper than a process may have descriptors.
#![cfg(target_os = "linux")]

#[path = "common/collect.rs"]
mod collect;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use collect::Collect;
use extant_archive::{
    Attributes, CopyOptions, Entry, EntryKind, Error, Extent, Extract, Result, Sink, Source, TreePath, Walk,
};

/// Does something when an entry comes that has a name.
struct Meddle<F> {
    collect: Collect,
    at: &'static str,
    change: F,
}

impl<F: FnMut()> Sink for Meddle<F> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        if entry.path.to_string() == self.at {
            (self.change)();
        }
        self.collect.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.collect.content(offset, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.collect.finish()
    }
}

/// `tree/d` with the files `a` and `b`, and `secret` with a file `b` of other content.
fn make(dir: &Path) {
    fs::create_dir_all(dir.join("tree/d")).unwrap();
    fs::create_dir(dir.join("secret")).unwrap();
    for (path, content) in [("tree/d/a", "aa"), ("tree/d/b", "bb"), ("secret/b", "secret")] {
        fs::write(dir.join(path), content).unwrap();
    }
}

fn swap_directory(dir: &Path) {
    fs::rename(dir.join("tree/d"), dir.join("away")).unwrap();
    symlink(dir.join("secret"), dir.join("tree/d")).unwrap();
}

#[test]
fn a_link_put_in_place_of_a_directory_is_not_followed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make(dir.path());
    let mut sink = Meddle { collect: Collect::default(), at: "/d", change: || swap_directory(dir.path()) };
    let refused = Walk::new(dir.path().join("tree")).pour(&mut sink, Extent::Everything).unwrap_err();
    assert!(matches!(&refused, Error::Host { path, .. } if path.ends_with("tree/d")), "{refused}");
    assert!(sink.collect.contents.is_empty());
}

#[test]
fn a_directory_that_is_read_stays_the_same_whatever_takes_its_name() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make(dir.path());
    let mut sink = Meddle { collect: Collect::default(), at: "/d/a", change: || swap_directory(dir.path()) };
    Walk::new(dir.path().join("tree")).pour(&mut sink, Extent::Everything).unwrap();
    assert_eq!(sink.collect.contents[&b"d/b"[..]], b"bb");
}

#[test]
fn what_took_the_place_of_a_listed_file_is_not_read() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for other in ["link", "file", "directory"] {
        let dir = dir.path().join(other);
        make(&dir);
        let mut listed = Walk::new(dir.join("tree")).list().unwrap().map(Arc::new).expect("few entries");
        match other {
            "link" => {
                fs::remove_file(dir.join("tree/d/b")).unwrap();
                symlink(dir.join("secret/b"), dir.join("tree/d/b")).unwrap();
            }
            "file" => fs::rename(dir.join("secret/b"), dir.join("tree/d/b")).unwrap(),
            _ => swap_directory(&dir),
        }
        let mut collect = Collect::default();
        assert_eq!(
            Collect::all(Walk::new(dir.join("secret"))).unwrap().by_path().len(),
            if other == "file" { 1 } else { 2 }
        );
        let refused = listed.pour(&mut collect, Extent::Everything);
        assert!(matches!(&refused, Err(Error::Changed { .. } | Error::Host { .. })), "{other}: {refused:?}");
        assert!(collect.contents.values().all(|content| !content.starts_with(b"se")), "{other}");
    }
}

#[test]
fn a_tree_may_be_deeper_than_paths_and_descriptors_reach() {
    const LEVELS: usize = 3000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut extract = Extract::new(dir.path(), CopyOptions::archive()).unwrap();
    let attributes = Attributes { mode: 0o750, ..Attributes::default() };
    let mut path = TreePath::root();
    for _ in 0..LEVELS {
        path = path.join(b"deep").unwrap();
        extract
            .entry(Entry { path: path.clone(), kind: EntryKind::Directory, attributes: attributes.clone() })
            .unwrap();
    }
    let file = path.join(b"file").unwrap();
    extract
        .entry(Entry { path: file.clone(), kind: EntryKind::Fifo, attributes: attributes.clone() })
        .unwrap();
    let link = TreePath::parse(b"link").unwrap();
    extract.entry(Entry { path: link, kind: EntryKind::HardLink(file), attributes }).unwrap();
    extract.finish().unwrap();
    let read = Collect::all(Walk::new(dir.path())).unwrap();
    assert_eq!(read.entries.len(), LEVELS + 3);
    for entry in &read.entries[1..] {
        assert_eq!(entry.attributes.mode, 0o750);
        assert_eq!(entry.attributes.mtime.seconds, 0);
    }
    // The standard library recurses with a descriptor for each level.
    assert!(
        std::process::Command::new("rm").arg("-r").arg(dir.path().join("deep")).status().unwrap().success()
    );
}

#[test]
fn files_after_a_deep_directory_are_those_beside_it() {
    const LEVELS: usize = 150;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut here = dir.path().to_owned();
    for level in 0..LEVELS {
        fs::create_dir(here.join("a")).unwrap();
        fs::write(here.join("file"), level.to_string()).unwrap();
        symlink(level.to_string(), here.join("link")).unwrap();
        here.push("a");
    }
    let read = Collect::all(Walk::new(dir.path())).unwrap();
    assert_eq!(read.entries.len(), 1 + 3 * LEVELS);
    for entry in &read.entries {
        let level = entry.path.depth().saturating_sub(1).to_string().into_bytes();
        match &entry.kind {
            EntryKind::Symlink(says) => assert_eq!(*says, level, "{}", entry.path),
            EntryKind::File(_) => assert_eq!(read.contents[&entry.path.to_bytes()], level, "{}", entry.path),
            kind => assert_eq!(*kind, EntryKind::Directory),
        }
    }
}

/// A directory of so many levels below it, with two directories, a file of two names, a sparse one, a link and a pipe in each.
fn make_tree(dir: &Path, levels: usize) {
    for name in ["a", "z"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("file"), dir.as_os_str().len().to_string()).unwrap();
    fs::hard_link(dir.join("file"), dir.join("a/also")).unwrap();
    fs::File::create(dir.join("sparse")).unwrap().set_len(1 << 20).unwrap();
    symlink("a", dir.join("link")).unwrap();
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    );
    pipe.unwrap();
    if levels > 0 {
        make_tree(&dir.join("a"), levels - 1);
        make_tree(&dir.join("z"), levels - 1);
    }
}

#[test]
fn what_is_listed_is_what_is_walked() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make_tree(dir.path(), 4);
    for hard_links in [true, false] {
        for root in ["", "z", "file", "link"] {
            let walk = Walk::new(dir.path().join(root)).hard_links(hard_links);
            let walked = Collect::all(walk.clone()).unwrap();
            let listed = Collect::all(Arc::new(walk.list().unwrap().expect("few entries"))).unwrap();
            assert_eq!(walked.entries, listed.entries, "{root}");
            assert_eq!(walked.contents, listed.contents, "{root}");
        }
    }
}
