//! Trees written to the host: nothing is lost, and nothing gets out.
#![cfg(target_os = "linux")]

#[path = "common/collect.rs"]
mod collect;
#[path = "common/tree.rs"]
mod tree;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use collect::Collect;
use extant_archive::{
    Attributes, CopyOptions, Entry, EntryKind, Error, Existing, Extent, Extract, Shape, Sink, Source,
    TreePath,
};
use tree::{Tree, is_root};

fn entry(path: &str, kind: EntryKind) -> Entry {
    let attributes = Attributes { mode: 0o755, ..Attributes::default() };
    Entry { path: TreePath::parse(path.as_bytes()).unwrap(), kind, attributes }
}

#[test]
fn a_tree_comes_out_as_it_was() {
    let tree = Tree::new();
    let dir = &tree.dir;
    fs::create_dir(dir.path().join("out")).unwrap();
    let mut extract = Extract::new(dir.path().join("out"), CopyOptions::archive()).unwrap();
    tree.source().pour(&mut extract, Extent::Everything).unwrap();
    let before = Collect::all(tree.source()).unwrap();
    let after = Collect::all(tree.source_of("out")).unwrap();
    assert!(before.contents == after.contents);
    if !is_root() {
        println!("skipped: owners and devices need root");
        return;
    }
    let (before, after) = (before.by_path(), after.by_path());
    for (path, entry) in &before {
        assert_eq!(Some(entry), after.get(path), "{path}");
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn without_keeping_files_are_new_and_not_set_id() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut extract = Extract::new(dir.path(), CopyOptions::default()).unwrap();
    let mut program = entry("x", EntryKind::File(Shape::dense(2)));
    program.attributes.mode = 0o4755;
    program.attributes.uid = 12345;
    extract.entry(program).unwrap();
    extract.content(0, b"ab".to_vec()).unwrap();
    extract.finish().unwrap();
    let found = fs::metadata(dir.path().join("x")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7000, 0);
    assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(fs::read(dir.path().join("x")).unwrap(), b"ab");
}

#[test]
fn names_do_not_lead_through_links() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (outside, target) = (dir.path().join("outside"), dir.path().join("target"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&target).unwrap();
    symlink(&outside, target.join("out")).unwrap();
    fs::write(outside.join("victim"), "old").unwrap();
    symlink(outside.join("victim"), target.join("victim")).unwrap();
    let mut extract = Extract::new(&target, CopyOptions::default()).unwrap();
    // Through a link that was there, one that the tree brings along, and to the file behind a link.
    let refused = extract.entry(entry("out/x", EntryKind::File(Shape::dense(0))));
    assert!(matches!(refused, Err(Error::Host { .. })));
    assert!(extract.entry(entry("out", EntryKind::Directory)).is_err());
    extract.entry(entry("own", EntryKind::Symlink(outside.as_os_str().as_encoded_bytes().to_vec()))).unwrap();
    assert!(extract.entry(entry("own/x", EntryKind::Fifo)).is_err());
    let victim = entry("victim", EntryKind::File(Shape::dense(3)));
    assert!(extract.entry(victim.clone()).is_err());
    extract.finish().unwrap();
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old");
    let copy = |mut extract: Extract| {
        extract.entry(victim.clone()).unwrap();
        extract.content(0, b"new".to_vec()).unwrap();
        extract.finish().unwrap();
    };
    let options = CopyOptions { existing: Existing::Remove, ..CopyOptions::default() };
    copy(Extract::new(&target, options).unwrap());
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old");
    assert_eq!(fs::read(target.join("victim")).unwrap(), b"new");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // The user spelled the link.
    fs::remove_file(target.join("victim")).unwrap();
    symlink(outside.join("victim"), target.join("victim")).unwrap();
    copy(Extract::new(&target, CopyOptions::default()).unwrap().spelled(victim.path.clone()));
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"new");
    assert!(fs::symlink_metadata(target.join("victim")).unwrap().is_symlink());
}

#[test]
fn files_that_exist_are_written_in_place() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(dir.path().join("f"), "older content").unwrap();
    fs::set_permissions(dir.path().join("f"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::hard_link(dir.path().join("f"), dir.path().join("other name")).unwrap();
    let before = fs::metadata(dir.path().join("f")).unwrap();
    let mut extract = Extract::new(dir.path(), CopyOptions::default()).unwrap();
    extract.entry(entry("f", EntryKind::File(Shape::dense(3)))).unwrap();
    extract.content(0, b"new".to_vec()).unwrap();
    extract.finish().unwrap();
    let after = fs::metadata(dir.path().join("f")).unwrap();
    assert_eq!((before.ino(), before.mode(), 2), (after.ino(), after.mode(), after.nlink()));
    assert_eq!(fs::read(dir.path().join("other name")).unwrap(), b"new");
    // The image that is read from is not among the files that may be written.
    let mut extract =
        Extract::new(dir.path(), CopyOptions::default()).unwrap().keep((after.dev(), after.ino()));
    assert!(extract.entry(entry("f", EntryKind::File(Shape::dense(3)))).is_err());
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"new");
}

#[test]
fn a_file_that_is_cut_short_leaves_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(dir.path().join("f"), "old").unwrap();
    let options = CopyOptions { existing: Existing::Remove, ..CopyOptions::default() };
    for (name, options) in [("g", CopyOptions::default()), ("f", options)] {
        let mut extract = Extract::new(dir.path(), options).unwrap();
        extract.entry(entry(name, EntryKind::File(Shape::dense(8)))).unwrap();
        extract.content(0, b"half".to_vec()).unwrap();
    }
    assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
