//! Disks that Extant's own mkfs made with quota files, and that tune gave or took some.

use extant::mkfs::Mkfs;
use extant::{Error, Mount, Tune};
use extant_block::{DeviceAccess, FileDevice};
use extant_ondisk::QuotaType;
use extant_rt::Arc;
use extant_testing::{Random, has_e2fsprogs};

use crate::disk::{Image, run, text};
use crate::usage::work;

fn made(block_size: u32, features: &str, extended: &str) -> Image {
    let image = Image::blank(48 << 20);
    let device = FileDevice::open(&image.path, DeviceAccess::read_write()).expect("the image");
    let mkfs = Mkfs::new()
        .block_size(block_size)
        .features(features)
        .expect("features")
        .extended(extended)
        .expect("options");
    mkfs.format(&device).expect("a file system");
    image
}

fn tune(image: &Image, words: &str) -> extant::Result<()> {
    let device = Arc::new(FileDevice::open(&image.path, DeviceAccess::read_write())?);
    Tune::new().features(words)?.apply(device).map(drop)
}

/// The inodes of the quota files.
fn inodes(image: &Image) -> [u32; 3] {
    let fs = Mount::new().read_only(true).open(&image.path).expect("mount");
    let superblock = fs.superblock();
    [superblock.s_usr_quota_inum(), superblock.s_grp_quota_inum(), superblock.s_prj_quota_inum()]
}

#[test]
fn quota_files_of_mkfs_count_what_is_there() {
    if !has_e2fsprogs() {
        return;
    }
    for (block_size, features, extended, expected) in [
        (4096, "quota", "root_owner=7:8", [3, 4, 0]),
        (1024, "quota,project,orphan_file", "", [3, 4, 12]),
        (1024, "quota,^extent,^64bit,^metadata_csum", "quotatype=grpquota", [0, 4, 0]),
        (65536, "quota,project,^has_journal", "quotatype=usr:prj", [3, 0, 12]),
    ] {
        let image = made(block_size, features, extended);
        let case = format!("{block_size}, {features}, {extended}");
        image.assert_clean(&case);
        assert_eq!(inodes(&image), expected, "{case}");
        let owners = if extended.contains("root_owner") { (1, 1) } else { (2, 0) };
        let used = |quota_type, id| image.usage(quota_type, id).map(|(_, inodes)| inodes);
        let of_users = if expected[0] == 0 { QuotaType::Group } else { QuotaType::User };
        assert_eq!((used(of_users, 0), used(of_users, 7)), (Some(owners.0), Some(owners.1)), "{case}");
        work(&image, &case, 300, &mut Random::new(u64::from(block_size)));
    }
    assert!(Mkfs::new().features("quota,ea_inode").expect("names").plan(Some(48 << 20)).is_err());
    assert!(
        Mkfs::new()
            .features("quota")
            .and_then(|mkfs| mkfs.extended("quotatype=prj"))
            .is_ok_and(|mkfs| mkfs.plan(Some(48 << 20)).is_err())
    );
}

#[test]
fn tuning_makes_and_deletes_quota_files() {
    if !has_e2fsprogs() {
        return;
    }
    for (block_size, features) in [(4096, ""), (1024, "orphan_file,inline_data"), (2048, "^has_journal")] {
        let image = made(block_size, features, "");
        let mut random = Random::new(u64::from(block_size));
        let mut step = |words: &str, expected: [bool; 3]| {
            let case = format!("{block_size}, {features}, then {words}");
            work(&image, &case, 400, &mut random);
            tune(&image, words).expect(&case);
            image.assert_clean(&case);
            assert_eq!(inodes(&image).map(|inode| inode != 0), expected, "{case}");
        };
        step("quota", [true, true, false]);
        step("project", [true, true, true]);
        step("quota,project", [true, true, true]);
        step("^project", [true, true, false]);
        step("^quota", [false; 3]);
        step("project,quota", [true; 3]);
        step("^quota", [false; 3]);
        work(&image, "at last", 100, &mut random);
    }
    let without_extents = made(1024, "^extent,^64bit,^metadata_csum", "");
    tune(&without_extents, "quota").expect("quota files of block maps");
    work(&without_extents, "block maps", 400, &mut Random::new(5));
    if let Err(error) = tune(&without_extents, "^quota") {
        assert!(error.to_string().contains("tune2fs -O"), "{error}");
        without_extents.assert_clean("refused");
    }
    let values = made(1024, "ea_inode", "");
    assert!(matches!(tune(&values, "quota"), Err(Error::Unsupported(_))));
}

/// mke2fs ends a quota file inside one of the file system's blocks, which has room for more of the tree.
#[test]
fn a_quota_file_that_grows_inside_its_last_block_has_its_size() {
    let Some(image) = Image::made(16, &["-b", "4096", "-O", "quota"]) else { return };
    let fs = Mount::new().background(false).open(&image.path).expect("mount");
    fs.write("/f", [1; 3000]).and_then(|()| fs.set_owner("/f", 70_000, 7)).expect("written");
    fs.unmount().expect("unmount");
    image.assert_clean("one more user and group");
}

/// debugfs changes owners and projects without counting them.
#[test]
fn usage_that_is_wrong_is_found_by_id() {
    let options = ["-b", "1024", "-O", "quota,project"];
    let Some(image) = Image::made(16, &options) else { return };
    let fs = Mount::new().background(false).open(&image.path).expect("mount");
    fs.write("/f", [1; 3000]).expect("written");
    fs.unmount().expect("unmount");
    image.assert_clean("counted");
    for (field, quota_type, id) in [("uid", "user", 5), ("gid", "group", 6), ("projid", "project", 7)] {
        let request = format!("sif /f {field} {id}");
        run("debugfs", &["-w", "-R", &request, text(&image.path)]).expect("debugfs");
        let fs = Mount::new().read_only(true).open(&image.path).expect("mount");
        let found: Vec<String> =
            fs.check(&mut |_| ()).expect("a check").iter().map(ToString::to_string).collect();
        let names = |id: u32, words: &str| {
            found.iter().any(|finding| finding.contains(&format!("of {quota_type} {id} it says {words}")))
        };
        assert!(names(id, "0 bytes and 0 inodes, but 3072 bytes and 1 inodes"), "{field}: {found:?}");
        assert!(names(0, "16384 bytes and 3 inodes, but 13312 bytes and 2 inodes"), "{field}: {found:?}");
        assert!(run("e2fsck", &["-fn", text(&image.path)]).is_err(), "{field}");
    }
    // Such a disk is written all the same, and what changes is counted; usage does not fall below zero.
    let fs = Mount::new().background(false).open(&image.path).expect("mount");
    fs.remove_file("/f").expect("removed");
    fs.unmount().expect("unmount");
    let left = [(QuotaType::User, 5), (QuotaType::Group, 6), (QuotaType::Project, 7)];
    assert!(left.iter().all(|(quota_type, id)| image.usage(*quota_type, *id) == Some((0, 0))));
}
