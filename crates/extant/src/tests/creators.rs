//! Many creators at once: locks of groups that they take, and where their inodes go.

use std::collections::BTreeSet;

use extant_alloc::Tuning;
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const CREATORS: usize = 48;
const FILES: usize = 100;

/// Group-lock acquisitions for each file that 48 threads create, in one directory or each in its own.
fn locks_per_create(tuning: Tuning, is_apart: bool) -> f64 {
    let device = Arc::new(format(&["-b", "4096", "-J", "size=16", "-N", "65536"], 1 << 20, &[]).0);
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
            // Threads that meet in a directory make its files in groups of their own.
            let group = volume.group_of_inode(made.number);
            assert!(group == volume.group_of_inode(dir.number) || !is_apart, "{group:?}");
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
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    for (is_apart, place) in [(false, "one directory"), (true, "48 directories")] {
        let locks = locks_per_create(Tuning::default(), is_apart);
        println!("{CREATORS} creators in {place}: {locks:.2} locks of groups per create");
        assert!(locks <= 3.0, "{locks}");
    }
}

#[test]
#[cfg(extant_linux_model)]
fn a_create_takes_more_locks_of_groups_with_the_search_of_older_kernels() {
    if !has_threads() {
        return;
    }
    use extant_alloc::linux_model::{InodeSearch, LinuxModel};
    if !has_e2fsprogs() {
        return;
    }
    let older = LinuxModel { inode_search: InodeSearch::Repeat, ..LinuxModel::default() };
    for (is_apart, place) in [(false, "one directory"), (true, "48 directories")] {
        let [hold, repeat] = [LinuxModel::default(), older]
            .map(|linux_model| locks_per_create(Tuning { linux_model, ..Tuning::default() }, is_apart));
        println!(
            "{CREATORS} creators in {place}: {hold:.2} locks of groups per create, {repeat:.2} in the older form"
        );
        assert!(hold + 0.9 < repeat, "{hold} and {repeat}");
    }
}
