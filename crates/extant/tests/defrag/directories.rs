//! Directories that become smaller: names are found, readers go on where they were, and the index is one that e2fsck knows.

use std::collections::BTreeSet;

use extant::{DefragEvent, DefragOptions, Filesystem};

use crate::aged::defrag;
use crate::disk::{Image, MIB, run, text};

const LAYOUTS: &[&[&str]] = &[
    &["-b1024", "-Jsize=1", "-N256"],
    &["-b1024", "-N256", "-O^metadata_csum,^uninit_bg"],
    &["-b1024", "-N256", "-Olarge_dir"],
    &["-b1024", "-N256", "-O^dir_index"],
    &["-b1024", "-N256", "-O^extents,^64bit"],
    &["-b4096", "-N256", "-O^filetype"],
];

fn name(number: u64) -> String {
    format!("a-name-that-takes-some-room-{number}")
}

/// A directory of so many names, of which one in `kept` stays.
fn shrunken(fs: &Filesystem, dir: &str, names: u64, kept: u64) {
    fs.create_dir(dir).expect("a directory");
    fs.write(format!("{dir}/file"), b"").expect("a file");
    let path = |number| format!("{dir}/{}", name(number));
    (0..names).for_each(|number| fs.hard_link(format!("{dir}/file"), path(number)).expect("a link"));
    (0..names)
        .filter(|number| number % kept != 0)
        .for_each(|number| fs.remove_file(path(number)).expect("a name"));
}

fn names(fs: &Filesystem, dir: &str) -> BTreeSet<Vec<u8>> {
    fs.dir(dir)
        .and_then(|dir| dir.entries())
        .expect("a directory")
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

#[test]
fn directories_keep_their_names_and_become_as_small_as_e2fsck_makes_them() {
    for arguments in LAYOUTS {
        let Some(image) = Image::made(16 * MIB, arguments) else { return };
        let fs = image.mount();
        let cases = [("/few", 600, 100), ("/some", 3000, 7), ("/none", 500, u64::MAX), ("/all", 3000, 1)];
        cases.iter().for_each(|(dir, count, kept)| shrunken(&fs, dir, *count, *kept));
        let before: Vec<_> = cases.iter().map(|(dir, ..)| names(&fs, dir)).collect();
        let size = |fs: &Filesystem, dir: &str| fs.metadata(dir).expect("metadata").size;
        let sizes: Vec<_> = cases.iter().map(|(dir, ..)| size(&fs, dir)).collect();
        fs.unmount().expect("unmount");
        let bytes = std::fs::read(&image.path).expect("the image");
        // As e2fsck does it, to compare with; it exits with 1 for what it changed.
        let _ = run("e2fsck", &["-fyD", text(&image.path)]);
        let peer = image.mount();
        let peers: Vec<_> = cases.iter().map(|(dir, ..)| size(&peer, dir)).collect();
        drop(peer);
        std::fs::write(&image.path, bytes).expect("the image");
        let fs = image.mount();
        let done = defrag(&fs);
        for (at, (dir, count, kept)) in cases.iter().enumerate() {
            let own = size(&fs, dir);
            println!("{arguments:?} {dir}: {} bytes, then {own}; by e2fsck -D {}", sizes[at], peers[at]);
            // What saves less than a quarter stays.
            assert!(own <= sizes[at] && 3 * own <= 4 * peers[at] + 8192, "{arguments:?} {dir}: {own}");
            assert_eq!(names(&fs, dir), before[at], "{arguments:?} {dir}");
            for number in (0..*count).filter(|number| number % kept == 0) {
                fs.symlink_metadata(format!("{dir}/{}", name(number))).expect("a name that is looked up");
            }
            assert!(fs.symlink_metadata(format!("{dir}/none")).is_err());
            // And it takes names again.
            (0..40).for_each(|number| fs.write(format!("{dir}/new{number}"), b"").expect("a file"));
            (0..40).for_each(|number| fs.remove_file(format!("{dir}/new{number}")).expect("a file"));
        }
        assert!(done.directories >= 3, "{arguments:?}: {done:?}");
        let again = defrag(&fs);
        assert!(again.directories <= 1, "{arguments:?}: {again:?}");
        fs.unmount().expect("unmount");
        image.assert_clean(&format!("{arguments:?}"));
    }
}

#[test]
fn a_reader_goes_on_where_it_was_when_its_directory_was_packed() {
    for (arguments, is_packed) in [(&["-b1024", "-N256"], true), (&["-b1024", "-O^dir_index"], false)] {
        let Some(image) = Image::made(16 * MIB, arguments) else { return };
        let fs = image.mount();
        shrunken(&fs, "/many", 2000, 9);
        let expected = names(&fs, "/many");
        for stop in [1, 17, 100, 150] {
            let dir = fs.dir("/many").expect("the directory");
            let (mut seen, mut cookie) = (BTreeSet::new(), 0);
            let size = fs.metadata("/many").expect("metadata").size;
            dir.read_from(0, &mut |item| {
                if !matches!(item.name, b"." | b"..") {
                    seen.insert(item.name.to_vec());
                }
                cookie = item.next_cookie;
                seen.len() < stop
            })
            .expect("names");
            let mut reasons = Vec::new();
            fs.defrag("/many", &DefragOptions::default(), &mut |event| {
                if let DefragEvent::Left { reason, .. } = event {
                    reasons.push(reason);
                }
                true
            })
            .expect("defragment");
            let is_smaller = fs.metadata("/many").expect("metadata").size < size;
            if stop == 1 {
                assert_eq!(
                    (is_smaller, reasons.is_empty()),
                    (is_packed, is_packed),
                    "{arguments:?}: {reasons:?}"
                );
            }
            dir.read_from(cookie, &mut |item| {
                assert!(
                    seen.insert(item.name.to_vec()),
                    "seen twice: {:?}",
                    String::from_utf8_lossy(item.name)
                );
                true
            })
            .expect("names");
            assert_eq!(seen, expected, "{arguments:?}, stopped after {stop}");
        }
        drop(fs.dir("/many"));
        let size = fs.metadata("/many").expect("metadata").size;
        defrag(&fs);
        assert!(
            fs.metadata("/many").expect("metadata").size < size || is_packed,
            "{arguments:?}: in use no more"
        );
        assert_eq!(names(&fs, "/many"), expected);
        fs.unmount().expect("unmount");
        image.assert_clean("read on");
    }
}
