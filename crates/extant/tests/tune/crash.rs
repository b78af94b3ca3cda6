//! Crashes after every request, with all, none or parts of what was not flushed.

use extant::Tune;
use extant_block::MemoryDevice;
use extant_ondisk::{RoCompatFeatures, Superblock};
use extant_testing::has_e2fsprogs;

use super::disk::{Tree, UUID, disk, new_features, new_uuid};
use super::explore::{Judge, places, recorded};

/// Crashes at every `stride`th place of what `tune` does, or at each; at each the tree is whole, and the same again gives what `is_done` asks
/// for.
fn explore(
    base: &MemoryDevice,
    tree: &Tree,
    tune: &Tune,
    stride: usize,
    is_done: impl Fn(&Superblock) -> bool + Sync,
) -> usize {
    let log = recorded(base, tune);
    let judge = Judge { tree, tune, is_done: &is_done, judges_again: &|_| true, sleeps: false };
    judge.explore(&log, &places(&log, stride))
}

#[test]
fn crash_while_the_uuid_changes_leaves_the_tree_whole() {
    if !has_e2fsprogs() {
        return;
    }
    let is_done = |superblock: &Superblock| superblock.s_uuid() == UUID && superblock.has_metadata_csum();
    for features in ["", "^has_journal"] {
        let (base, tree) = disk(features);
        let images = explore(&base, &tree, &new_uuid(), 8, is_done);
        println!("{images} images");
        assert!(images > 7, "{images}");
    }
}

#[test]
fn crash_while_checksums_go_off_or_on_leaves_the_tree_whole() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("");
    let off = explore(&base, &tree, &new_features("^metadata_csum"), 7, |superblock| {
        !superblock.has_metadata_csum()
    });
    new_features("^metadata_csum").apply(base.clone()).expect("tune");
    let on = explore(&base, &tree, &new_features("metadata_csum"), 7, Superblock::has_metadata_csum);
    println!("{off} and {on} images");
    assert!(off > 5 && on > 5, "{off} {on}");
}

#[test]
fn crash_while_descriptors_get_other_checksums_leaves_the_tree_whole() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("^metadata_csum,uninit_bg");
    let is_done = |superblock: &Superblock| {
        superblock.s_uuid() == UUID && superblock.ro_compat().contains(RoCompatFeatures::GDT_CSUM)
    };
    let images = explore(&base, &tree, &new_uuid(), 2, is_done);
    println!("{images} images");
    assert!(images > 5, "{images}");
}

#[test]
fn crash_while_fields_change_leaves_old_or_new_ones() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("metadata_csum_seed");
    let tune = new_uuid().label(b"tuned").expect("a label");
    let is_done =
        |superblock: &Superblock| superblock.s_uuid() == UUID && superblock.volume_name() == b"tuned";
    let images = explore(&base, &tree, &tune, 2, is_done);
    println!("{images} images");
    assert!(images > 5, "{images}");
}

#[test]
fn crash_while_quotas_go_on_or_off_leaves_the_tree_whole() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("");
    let has = |superblock: &Superblock| superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
    let on = explore(&base, &tree, &new_features("quota,project"), 3, has);
    new_features("quota,project").apply(base.clone()).expect("tune");
    let off = explore(&base, &tree, &new_features("^quota"), 3, |superblock| !has(superblock));
    println!("{on} and {off} images");
    assert!(on > 5 && off > 5, "{on} {off}");
}
