//! Crashes after every request, with all, none or parts of what was not flushed.

use std::sync::Arc;

use extant::Tune;
use extant_block::{MemoryDevice, Recorder, Tearing, Unflushed};
use extant_ondisk::{RoCompatFeatures, Superblock};

use super::disk::{Tree, UUID, assert_whole, disk, has_e2fsck, new_features, new_uuid, superblock};

/// Crashes at `stride`th places of what `tune` does; at each the tree is whole, and the same again gives what `is_done` asks for.
fn explore(
    base: &MemoryDevice,
    tree: &Tree,
    tune: &Tune,
    stride: usize,
    is_done: impl Fn(&Superblock) -> bool,
) -> usize {
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    tune.apply(recorder.clone()).expect("tune");
    let log = recorder.log();
    let mut cursor = log.cursor();
    let mut images = 0;
    for events in (0..=log.events().len()).step_by(stride) {
        cursor.advance_to(events).expect("a log");
        let unflushed = cursor.unflushed(Tearing::Requests).count();
        for choice in 0..4_usize {
            // None, all, and two halves; where nothing can be lost all are one.
            if choice > 0 && unflushed == 0 || choice > 1 && unflushed == 1 {
                continue;
            }
            let image = Arc::new(cursor.crash_image(Tearing::Requests, survivors(choice)).expect("an image"));
            let when = format!("after {events} of {} events, choice {choice}", log.events().len());
            assert_whole(&image, tree, &when);
            tune.apply(image.clone()).unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(is_done(&superblock(&*image)), "{when}");
            assert_whole(&image, tree, &format!("again {when}"));
            images += 1;
        }
    }
    images
}

/// None, all, or every other part of what was not flushed survives.
pub fn survivors(choice: usize) -> impl FnMut(&Unflushed) -> bool {
    let mut count = 0_usize;
    move |_| {
        count += 1;
        match choice {
            0 => false,
            1 => true,
            _ => (count + choice).is_multiple_of(2),
        }
    }
}

/// Every `stride`th place, so that all tests together take seconds; `EXTANT_TUNE_CRASHES=all` takes each.
fn stride(stride: usize) -> usize {
    if std::env::var_os("EXTANT_TUNE_CRASHES").is_some() { 1 } else { stride }
}

#[test]
fn crash_while_the_uuid_changes_leaves_the_tree_whole() {
    if !has_e2fsck() {
        return;
    }
    let is_done = |superblock: &Superblock| superblock.s_uuid() == UUID && superblock.has_metadata_csum();
    for features in ["", "^has_journal"] {
        let (base, tree) = disk(features);
        let images = explore(&base, &tree, &new_uuid(), stride(8), is_done);
        println!("{images} images");
        assert!(images > 7, "{images}");
    }
}

#[test]
fn crash_while_checksums_go_off_or_on_leaves_the_tree_whole() {
    if !has_e2fsck() {
        return;
    }
    let (base, tree) = disk("");
    let off = explore(&base, &tree, &new_features("^metadata_csum"), stride(7), |superblock| {
        !superblock.has_metadata_csum()
    });
    new_features("^metadata_csum").apply(base.clone()).expect("tune");
    let on = explore(&base, &tree, &new_features("metadata_csum"), stride(7), Superblock::has_metadata_csum);
    println!("{off} and {on} images");
    assert!(off > 5 && on > 5, "{off} {on}");
}

#[test]
fn crash_while_descriptors_get_other_checksums_leaves_the_tree_whole() {
    if !has_e2fsck() {
        return;
    }
    let (base, tree) = disk("^metadata_csum,uninit_bg");
    let is_done = |superblock: &Superblock| {
        superblock.s_uuid() == UUID && superblock.ro_compat().contains(RoCompatFeatures::GDT_CSUM)
    };
    let images = explore(&base, &tree, &new_uuid(), stride(2), is_done);
    assert!(images > 5, "{images}");
}

#[test]
fn crash_while_fields_change_leaves_old_or_new_ones() {
    if !has_e2fsck() {
        return;
    }
    let (base, tree) = disk("metadata_csum_seed");
    let mut tune = new_uuid();
    tune.label(b"tuned").expect("a label");
    let is_done =
        |superblock: &Superblock| superblock.s_uuid() == UUID && superblock.volume_name() == b"tuned";
    let images = explore(&base, &tree, &tune, stride(2), is_done);
    assert!(images > 5, "{images}");
}

#[test]
fn crash_while_quotas_go_on_or_off_leaves_the_tree_whole() {
    if !has_e2fsck() {
        return;
    }
    let (base, tree) = disk("");
    let has = |superblock: &Superblock| superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
    let on = explore(&base, &tree, &new_features("quota,project"), stride(3), has);
    new_features("quota,project").apply(base.clone()).expect("tune");
    let off = explore(&base, &tree, &new_features("^quota"), stride(3), |superblock| !has(superblock));
    println!("{on} and {off} images");
    assert!(on > 5 && off > 5, "{on} {off}");
}
