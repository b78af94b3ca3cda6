//! What changes, what does not, and what is refused.

use std::sync::Arc;

use extant::{Error, ErrorBehavior, Mount, Tune};
use extant_block::{BlockDevice, FaultDevice, MemoryDevice, Operation};
use extant_ondisk::{
    Checksums, CompatFeatures, Entries, ExtentNode, IncompatFeatures, InodeNumber, RawInode, RoCompatFeatures,
};
use extant_testing::has_e2fsprogs;

use super::disk::{UUID, assert_whole, disk, new_features, new_uuid, superblock, without_noted_errors};

#[test]
fn fields_change_alone_and_in_the_copies_too() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, tree) = disk("");
    let before = superblock(&*device);
    assert!(Tune::new().is_empty());
    let tune = Tune::new();
    let tune = tune.label(b"tuned").expect("a label").reserved_blocks(77).errors(ErrorBehavior::Panic);
    let tune = tune
        .max_mount_count(None)
        .check_interval_s(86_400)
        .default_mount_options("acl,^user_xattr,discard")
        .expect("options");
    let tune = tune.extended("stride=4,stripe_width=16,mount_opts=abc").expect("options");
    let tuned = tune.apply(device.clone()).expect("tune");
    assert_eq!(tuned.checksums_rewritten, 0);
    let after = superblock(&*device);
    assert_eq!((after.volume_name(), after.r_blocks_count(), after.s_errors()), (b"tuned".to_vec(), 77, 3));
    assert_eq!(
        (after.s_max_mnt_count(), after.s_checkinterval(), after.s_default_mount_opts()),
        (0xFFFF, 86_400, 0x408)
    );
    assert_eq!((after.s_raid_stride(), after.s_raid_stripe_width()), (4, 16));
    assert_eq!(
        (after.s_mnt_count(), after.mount_time()),
        (before.s_mnt_count(), before.mount_time()),
        "no mount that counts"
    );
    assert_eq!(after.s_uuid(), before.s_uuid());
    let mut copy = [0; 1024];
    device.read_at(8193 * 1024, &mut copy).expect("read");
    let copy = extant_ondisk::Superblock::parse(&copy).expect("a copy");
    assert_eq!((copy.volume_name(), copy.s_block_group_nr()), (b"tuned".to_vec(), 1));
    assert_whole(&device, &tree, "fields");
}

#[test]
fn uuid_changes_under_every_kind_of_checksums() {
    if !has_e2fsprogs() {
        return;
    }
    for (features, rewrites) in [
        ("", true),
        ("metadata_csum_seed", false),
        ("^metadata_csum,uninit_bg", true),
        ("^metadata_csum", false),
        ("^has_journal", true),
        ("orphan_file", true),
        ("^extent,^64bit", true),
    ] {
        let (device, tree) = disk(features);
        let before = superblock(&*device);
        let tuned = new_uuid().apply(device.clone()).unwrap_or_else(|e| panic!("{features}: {e}"));
        assert_eq!(tuned.checksums_rewritten > 0, rewrites, "{features}");
        let after = superblock(&*device);
        assert_eq!(after.s_uuid(), UUID);
        assert_eq!(
            (before.compat(), before.incompat(), before.ro_compat()),
            (after.compat(), after.incompat(), after.ro_compat())
        );
        assert_eq!(
            Checksums::new(&after).kind == Checksums::new(&before).kind,
            !features.contains("uninit_bg"),
            "{features}"
        );
        assert_whole(&device, &tree, features);
    }
}

#[test]
fn features_go_off_and_on_again() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, tree) = disk("");
    for words in [
        "metadata_csum_seed",
        "^metadata_csum_seed",
        "^metadata_csum",
        "metadata_csum,metadata_csum_seed",
        "^metadata_csum",
        "uninit_bg",
        "metadata_csum",
        "^metadata_csum",
        "uninit_bg",
        "^uninit_bg",
        "fast_commit,large_dir",
        "^fast_commit",
        "metadata_csum",
    ] {
        new_features(words).apply(device.clone()).unwrap_or_else(|e| panic!("{words}: {e}"));
        let superblock = superblock(&*device);
        for word in words.split(',') {
            let name = word.trim_start_matches('^');
            let has = CompatFeatures::by_name(name)
                .is_some_and(|feature| superblock.compat().contains(feature))
                || IncompatFeatures::by_name(name)
                    .is_some_and(|feature| superblock.incompat().contains(feature))
                || RoCompatFeatures::by_name(name)
                    .is_some_and(|feature| superblock.ro_compat().contains(feature));
            assert_eq!(has, !word.starts_with('^'), "{word}");
        }
        assert_whole(&device, &tree, words);
        // Directories grow under the new rules too.
        let fs = Mount::new().background(false).open_device(Arc::new(device.snapshot())).expect("mount");
        for file in 0..50 {
            fs.write(format!("/indexed/another name that takes some room {file}"), b"x").expect("write");
        }
        fs.unmount().expect("unmount");
    }
}

/// The number of an inode of group 0, and the byte at which it begins.
fn place_of(device: &Arc<MemoryDevice>, path: &str) -> (u32, u64) {
    let fs = Mount::new().read_only(true).open_device(device.clone()).expect("mount");
    let number = fs.metadata(path).expect("stat").inode.0;
    let mut bytes = [0; 64];
    device.read_at(2048, &mut bytes).expect("read");
    let descriptor = extant_ondisk::GroupDescriptor::parse(&bytes, 64).expect("a descriptor");
    (number, descriptor.inode_table().0 * 1024 + u64::from(number - 1) * 256)
}

/// Damages a byte.
fn flip(device: &MemoryDevice, at: u64) {
    let mut byte = [0];
    device.read_at(at, &mut byte).expect("read");
    device.write_at(at, &[!byte[0]]).expect("write");
}

#[test]
fn wrong_checksums_of_a_block_and_of_a_file_stay_wrong_under_another_uuid() {
    let (device, _) = disk("");
    let (_, file) = place_of(&device, "/indexed/a name that takes some room 7");
    flip(&device, file + 8);
    let (_, at) = place_of(&device, "/linear");
    let mut inode = [0; 256];
    device.read_at(at, &mut inode).expect("read");
    let raw = RawInode::parse(&inode).expect("an inode");
    let Ok(ExtentNode { entries: Entries::Leaf(extents), .. }) = ExtentNode::parse(raw.i_block(), None)
    else {
        panic!("a directory of one extent")
    };
    // A letter of the first name behind `.` and `..`.
    flip(&device, extents[0].start.0 * 1024 + 24 + 8);
    new_uuid().apply(device.clone()).expect("tune");
    let fs = Mount::new().read_only(true).open_device(device.clone()).expect("mount");
    let error =
        fs.read_dir("/linear").expect("a directory").find_map(Result::err).expect("damage").to_string();
    assert!(error.contains("bad checksum"), "{error}");
    let error = fs.metadata("/indexed/a name that takes some room 7").expect_err("damage").to_string();
    assert!(error.contains("bad checksum"), "{error}");
    assert!(fs.read_dir("/indexed").is_ok());
}

#[test]
fn wrong_checksum_of_what_is_followed_is_named_and_nothing_is_rewritten() {
    let (device, _) = disk("");
    let (number, at) = place_of(&device, "/linear");
    flip(&device, at + 8);
    let before = superblock(&*device);
    let error = new_uuid().apply(device.clone()).expect_err("damage");
    assert!(
        matches!(error, Error::Corrupt { .. }) && error.to_string().contains(&format!("inode {number}")),
        "{error}"
    );
    let after = superblock(&*device);
    assert_eq!((after.s_uuid(), after.ro_compat()), (before.s_uuid(), before.ro_compat()));
}

#[test]
fn directories_that_share_a_block_are_named_and_nothing_is_rewritten() {
    let (device, _) = disk("");
    let read = |at| {
        let mut inode = [0; 256];
        device.read_at(at, &mut inode).expect("read");
        RawInode::parse(&inode).expect("an inode")
    };
    let (number, at) = place_of(&device, "/linear");
    let (_, other) = place_of(&device, "/");
    let mut inode = read(at);
    *inode.i_block_mut() = *read(other).i_block();
    let before = superblock(&*device);
    Checksums::new(&before).update_inode(InodeNumber(number), &mut inode);
    device.write_at(at, inode.as_bytes()).expect("write");
    let error = new_uuid().apply(device.clone()).expect_err("damage");
    assert!(error.to_string().contains("block in use for two things"), "{error}");
    assert_eq!(superblock(&*device).s_uuid(), before.s_uuid());
}

#[test]
fn any_wrong_checksum_is_named_before_checksums_go_off() {
    let (device, _) = disk("");
    let (number, at) = place_of(&device, "/linear/file");
    flip(&device, at + 8);
    let error = new_features("^metadata_csum").apply(device.clone()).expect_err("damage");
    assert!(error.to_string().contains(&format!("inode {number}")), "{error}");
    assert!(superblock(&*device).has_metadata_csum());
}

#[test]
fn reserved_inodes_that_were_never_written_get_checksums_too() {
    let (device, tree) = disk("^metadata_csum");
    new_features("metadata_csum").apply(device.clone()).expect("checksums");
    // The file of users becomes inode 3.
    new_features("quota").apply(device.clone()).expect("quota");
    assert_whole(&device, &tree, "quota after checksums");
}

#[test]
fn what_cannot_be_is_refused_before_anything_changes() {
    let (device, _) = disk("");
    let before = device.snapshot();
    for words in
        ["^sparse_super", "bigalloc", "uninit_bg", "sparse_super2", "^extent", "orphan_file,^has_journal"]
    {
        match new_features(words).apply(device.clone()) {
            Err(Error::Unsupported(why)) => assert!(why.contains(';') || why.contains(','), "{words}: {why}"),
            other => panic!("{words}: {other:?}"),
        }
    }
    for elsewhere in ["device=/dev/sdb", "location=1"] {
        assert!(Tune::new().journal(elsewhere).is_err());
    }
    let full = Tune::new().reserved_blocks(20_000);
    assert!(matches!(full.apply(device.clone()), Err(Error::OutOfRange { .. })));
    let stable = disk("stable_inodes").0;
    assert!(matches!(new_uuid().apply(stable), Err(Error::Unsupported(_))));
    let bytes = |device: &MemoryDevice| {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).expect("read");
        bytes
    };
    assert!(bytes(&before).get(..1024) == bytes(&device).get(..1024));
    assert_eq!(superblock(&before).ro_compat(), superblock(&*device).ro_compat());
    assert!(
        Tune::new().features("no_such").is_err() && Tune::new().default_mount_options("no_such").is_err()
    );
}

#[test]
fn full_directory_is_refused_and_not_half_changed() {
    let (device, tree) = disk("^metadata_csum,^dir_index");
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    fs.create_dir("/full").expect("mkdir");
    // `.` and `..` take 24 bytes; 1000 are 50 names of 12 letters.
    for file in 0..50 {
        fs.write(format!("/full/{file:012}"), b"").expect("write");
    }
    fs.unmount().expect("unmount");
    let error = new_features("metadata_csum").apply(device.clone()).expect_err("no room");
    assert!(error.to_string().contains("e2fsck -fD"), "{error}");
    assert!(!superblock(&*device).has_metadata_csum());
    let fs = Mount::new().read_only(true).open_device(device).expect("mount");
    assert_eq!(super::disk::tree(&fs).len(), tree.len() + 51);
}

#[test]
fn failure_of_any_request_loses_nothing_and_the_verb_again_completes() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("");
    let strides =
        [(Operation::Read, 71), (Operation::Write, 13), (Operation::Flush, 3), (Operation::WriteZeroes, 1)];
    for (operation, stride) in strides {
        for index in (0..).step_by(stride) {
            let device = Arc::new(FaultDevice::failing_once(base.snapshot(), operation, index));
            let done = new_uuid().apply(device.clone());
            let is_past = device.count(operation) <= index;
            assert_eq!(done.is_ok(), is_past, "{operation:?} {index}: {done:?}");
            let left = Arc::new(device.inner().snapshot());
            if is_past {
                break;
            }
            let when = format!("{operation:?} {index} failed");
            let left = Arc::new(without_noted_errors(&left, &when));
            assert_whole(&left, &tree, &when);
            new_uuid().apply(left.clone()).unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(superblock(&*left).has_metadata_csum() && superblock(&*left).s_uuid() == UUID, "{when}");
            assert_whole(&left, &tree, &when);
        }
    }
}

#[test]
fn change_of_checksums_that_is_called_off_is_completed_by_the_same_again() {
    if !has_e2fsprogs() {
        return;
    }
    let (base, tree) = disk("");
    for calls in [0, 1] {
        let device = Arc::new(base.snapshot());
        let mut left = calls;
        let mut seen = Vec::new();
        let done = new_uuid().apply_reporting(device.clone(), &mut |progress| {
            seen.push(progress);
            left -= 1;
            left >= 0
        });
        assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
        assert!(seen.iter().all(|progress| progress.total_groups == 8), "{seen:?}");
        assert_eq!(seen.last().map(|progress| progress.done_groups), Some(4 * calls as u64));
        assert_whole(&device, &tree, "called off");
        assert_eq!(superblock(&*device).has_metadata_csum(), calls == 0);
        new_uuid().apply(device.clone()).expect("tune");
        assert!(superblock(&*device).s_uuid() == UUID && superblock(&*device).has_metadata_csum());
        assert_whole(&device, &tree, "completed");
    }
}
