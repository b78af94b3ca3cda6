//! The kernel mounts what was tuned, and what a crash left half tuned.

use std::path::Path;
use std::sync::Arc;

use extant_block::{Mutation, Recorder, Tearing};
use extant_testing::{Command, has_e2fsprogs};

use super::disk::{ImageFile, assert_whole, disk, new_features, new_uuid};
use super::staged::{CASES, LogName, crashed, recorded, replayed};

/// Mounts an image with the kernel and writes a file of a directory with an index; false if that cannot be done here.
fn change_by_kernel(image: &Path, when: &str) -> bool {
    let point = image.with_file_name("point");
    let _ = std::fs::create_dir(&point);
    let mounted = Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(&point).output();
    let Ok(mounted) = mounted else { return false };
    let said = String::from_utf8_lossy(&mounted.stderr);
    if !mounted.status.success() {
        // A disk that it does not take is a finding, everything else is not of this test.
        assert!(
            !said.contains("wrong fs type") && !said.contains("Structure needs cleaning"),
            "{when}: {said}"
        );
        println!("skipped: {said}");
        return false;
    }
    let file = point.join("indexed/a name that takes some room 7");
    let written = std::fs::write(&file, "7").and_then(|()| std::fs::read(&file));
    let others = std::fs::read_dir(point.join("indexed")).map(Iterator::count);
    extant_testing::unmount(&point);
    assert_eq!(written.expect("a file"), b"7", "{when}");
    assert_eq!(others.expect("a directory"), 150, "{when}");
    true
}

#[test]
fn kernel_mounts_what_was_tuned_and_what_a_crash_left() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("");
    for tune in [new_uuid(), new_features("^metadata_csum")] {
        let recorder = Arc::new(Recorder::over(base.snapshot()));
        tune.apply(recorder.clone()).expect("tune");
        let log = recorder.log();
        let mut cursor = log.cursor();
        let places = (0..=log.events().len()).step_by(12).chain([log.events().len()]);
        for events in places.collect::<std::collections::BTreeSet<_>>() {
            cursor.advance_to(events).expect("a log");
            let image = cursor.crash_image(Tearing::Requests, |part| part.event % 2 == 0).expect("an image");
            let file = ImageFile::of(&image);
            let when = format!("after {events} of {} events", log.events().len());
            if !change_by_kernel(&file.0, &when) {
                return;
            }
            assert_whole(&file.device(), &tree, &when);
        }
    }
}

#[test]
fn kernel_mounts_what_was_changed_and_after_e2fsck_what_a_crash_left() {
    if !has_e2fsprogs() {
        return;
    }
    // Linux waits for eleven seconds on a disk with multi-mount protection.
    for case in CASES.iter().filter(|case| case.change != "mmp" && case.before != "mmp").step_by(4) {
        let (base, tree) = case.disk();
        let log = recorded(&base, &case.tune(), Mutation::None);
        let LogName { event, last } = LogName::of(&log);
        for events in [event.midpoint(last), log.events().len()] {
            let when = format!("{}: after {events} of {} events", case.change, log.events().len());
            let file = ImageFile::of(&replayed(&crashed(&log, events, 1), &when));
            if !change_by_kernel(&file.0, &when) {
                return;
            }
            assert_whole(&file.device(), &tree, &when);
        }
    }
}
