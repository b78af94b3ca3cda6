//! Many creators at once: locks of groups that they take, and where their inodes go.

use std::collections::BTreeSet;

use extant_alloc::{InodeSearch, Tuning};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_tools};
use super::names::new;
use crate::inode::InodeRef;
use crate::mount::Options;
use crate::namei::NewKind;
use crate::volume::Volume;

const CREATORS: usize = 48;
const FILES: usize = 100;

/// Group-lock acquisitions for each file that 48 threads create, in one directory or each in its own.
fn locks_per_create(inode_search: InodeSearch, is_apart: bool) -> f64 {
    let device = Arc::new(format(&["-b", "4096", "-J", "size=16", "-N", "65536"], 1 << 20, &[]).0);
    let tuning = Tuning { inode_search, ..Tuning::default() };
    let options = Options { background: false, tuning, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).expect("a clean disk").0;
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let tree = volume.create(&root, b"tree", &new(NewKind::Directory)).expect("a directory");
    let make = |index: usize| {
        volume.create(&tree, format!("d{index}").as_bytes(), &new(NewKind::Directory)).expect("a directory")
    };
    let dirs: Vec<InodeRef> = (0..if is_apart { CREATORS } else { 1 }).map(make).collect();
    let groups: BTreeSet<_> = dirs.iter().map(|dir| volume.group_of_inode(dir.number)).collect();
    assert!(!is_apart || groups.len() == volume.geometry.group_count as usize, "{groups:?}");
    let locks = || {
        let statistics = volume.allocator.statistics();
        statistics.locks + statistics.other_locks
    };
    let before = locks();
    extant_rt::parallel(CREATORS, |thread| {
        let dir = &dirs[thread % dirs.len()];
        for file in 0..FILES {
            let name = format!("file-{thread}-{file}");
            let made = volume.create(dir, name.as_bytes(), &new(NewKind::File)).expect("a file");
            assert_eq!(volume.group_of_inode(made.number), volume.group_of_inode(dir.number));
        }
    });
    let taken = locks() - before;
    drop((root, tree, dirs));
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "created by many");
    taken as f64 / (CREATORS * FILES) as f64
}

#[test]
fn a_create_takes_at_most_three_locks_of_groups_with_48_creators() {
    if !has_tools() {
        return;
    }
    for is_apart in [false, true] {
        let [hold, repeat] =
            [InodeSearch::Hold, InodeSearch::Repeat].map(|form| locks_per_create(form, is_apart));
        let place = if is_apart { "48 directories" } else { "one directory" };
        println!(
            "{CREATORS} creators in {place}: {hold:.2} locks of groups per create, {repeat:.2} in the older form"
        );
        assert!(hold <= 3.0 && hold + 0.9 < repeat, "{hold} and {repeat}");
    }
}
