//! Fast commits on a disk that counts usage: Extant writes none, and counts what those that Linux left change.

use extant::mkfs::Mkfs;
use extant::{Mount, New, NewKind};
use extant_block::{BlockDevice, DeviceAccess, FileDevice, MemoryDevice};
use extant_rt::Arc;

use crate::disk::{Image, run};

/// The byte of `s_feature_ro_compat` with `quota`, and its bit.
const QUOTA: (u64, u8) = (1024 + 0x65, 1);

fn set_quota(device: &MemoryDevice, is_on: bool) {
    let mut byte = [0];
    device.read_at(QUOTA.0, &mut byte).expect("read");
    byte[0] = byte[0] & !QUOTA.1 | if is_on { QUOTA.1 } else { 0 };
    device.write_at(QUOTA.0, &byte).expect("write");
}

#[test]
fn what_fast_commits_change_is_counted() {
    if let Err(why) = run("e2fsck", &["-V"]) {
        return println!("skipped: {why}");
    }
    let device = Arc::new(MemoryDevice::new(48 << 20));
    // Without checksums, which a superblock with another bit would not have.
    Mkfs::new()
        .features("quota,project,fast_commit,^metadata_csum")
        .expect("features")
        .format(&*device)
        .expect("a disk");
    // Linux writes fast commits there; Extant does if it does not know that usage counts.
    set_quota(&device, false);
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    let root = fs.root().expect("the root");
    for uid in [0, 1000, 70_000, u32::MAX - 1] {
        let new = New { kind: NewKind::File, mode: 0o644, uid, gid: 7, times: None, xattrs: &[] };
        let file = root.create(format!("of {uid}").as_bytes(), &new).expect("a file");
        file.write_all_at(&[1; 9000], 0).expect("written");
        file.sync_all().expect("synced");
    }
    let crashed = Arc::new(device.snapshot());
    drop((root, fs));
    set_quota(&crashed, true);
    let fs = Mount::new().background(false).open_device(crashed.clone()).expect("mount");
    assert!(fs.mounted().replayed_fast_commits > 0, "{:?}", fs.mounted());
    fs.write("/more", [2; 5000]).expect("written");
    let file = fs.open("/more").expect("the file");
    file.sync_all().expect("synced");
    drop(file);
    let again = Mount::new().read_only(true).open_device(Arc::new(crashed.snapshot())).expect("mount");
    assert_eq!(again.mounted().replayed_fast_commits, 0, "a fast commit on a disk that counts usage");
    fs.unmount().expect("unmount");
    let image = Image::blank(crashed.size());
    let file = FileDevice::open(&image.path, DeviceAccess::read_write()).expect("the image");
    let mut bytes = vec![0; crashed.size() as usize];
    crashed.read_at(0, &mut bytes).expect("read");
    file.write_at(0, &bytes).expect("write");
    drop(file);
    image.assert_clean("replayed");
}
