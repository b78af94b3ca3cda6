//! Limits: exact among threads, durable, and those that debugfs reads.

use extant::{Credentials, Error, Filesystem, Mount, QuotaGrace, QuotaType, Result, SetQuota};

use crate::disk::{Image, run, text};

const USER: u32 = 1000;
const HARD_BYTES: u64 = 8 << 20;

fn open(image: &Image, pages: u64) -> Filesystem {
    let how = Mount::new().page_cache_bytes(pages).background(false).enforce_quotas(&[QuotaType::User]);
    how.open(&image.path).expect("mount")
}

fn user(uid: u32) -> Credentials {
    Credentials { uid, gid: uid, groups: Vec::new() }
}

/// Appends to a file until that is refused: how many bytes were accepted.
fn fill(fs: &Filesystem, name: &str) -> Result<u64> {
    let file = fs.options().write(true).create(true).open(name)?;
    let mut written = 0;
    loop {
        match file.write_at(&[7; 12_288], written) {
            Ok(bytes) => written += bytes as u64,
            Err(Error::QuotaExceeded) => return Ok(written),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn threads_use_a_limit_up_and_no_accepted_write_is_lost() {
    if !extant_testing::has_threads() {
        return;
    }
    let options = ["-b", "4096", "-O", "quota", "-E", "quotatype=usrquota:grpquota"];
    for pages in [0, 64 << 20, 256 << 10] {
        let Some(image) = Image::made(64, &options) else { return };
        let fs = open(&image, pages);
        fs.create_dir("/open").and_then(|()| fs.set_mode("/open", 0o777)).expect("a directory");
        let set = SetQuota { space_hard_bytes: Some(HARD_BYTES), ..SetQuota::default() };
        fs.set_quota(QuotaType::User, USER, &set).expect("a limit");
        let view = fs.as_user(user(USER));
        let filled: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|index| {
                    let view = view.clone();
                    scope.spawn(move || fill(&view, &format!("/open/{index}")).expect("a full quota"))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        fs.sync().expect("what was accepted is written");
        for (index, bytes) in filled.iter().enumerate() {
            let content = fs.read(format!("/open/{index}")).expect("content");
            assert!(content.len() as u64 == *bytes && content.iter().all(|byte| *byte == 7), "{index}");
        }
        let used = fs.quota(QuotaType::User, USER).expect("usage");
        // Blocks of extent trees are not refused.
        let of_trees = used.space_bytes.checked_sub(HARD_BYTES).expect("the limit is used up");
        assert!(of_trees <= 8 * 5 * 4096, "{pages}: {used:?}");
        // What goes can be used again, and root is refused nothing.
        fs.remove_file("/open/0").expect("removed");
        assert!(fill(&view, "/open/again").expect("a full quota") + 40 * 4096 >= filled[0], "{pages}");
        fs.write("/open/of root", vec![1; 1 << 20]).expect("written");
        drop(view);
        fs.unmount().expect("unmount");
        image.assert_clean("full");
    }
}

#[test]
fn limits_are_durable_and_read_by_debugfs() {
    let options = ["-b", "1024", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"];
    let Some(image) = Image::made(16, &options) else { return };
    let fs = open(&image, 0);
    let set = SetQuota {
        space_soft_bytes: Some(10_000),
        space_hard_bytes: Some(20 << 20),
        inodes_soft: Some(3),
        inodes_hard: Some(5),
        ..SetQuota::default()
    };
    let grace = QuotaGrace { space_seconds: 90, inode_seconds: 3600 };
    for quota_type in QuotaType::ALL {
        fs.set_quota(quota_type, 70_000, &set).expect("limits");
        fs.set_quota_grace(quota_type, grace).expect("grace");
    }
    let too_large = SetQuota { inodes_hard: Some(u64::MAX), ..SetQuota::default() };
    assert!(matches!(fs.set_quota(QuotaType::User, 1, &too_large), Err(Error::OutOfRange { .. })));
    // As after a crash: what was set is durable.
    fs.force_shutdown(false).expect("a crash");
    drop(fs);
    let fs = Mount::new().read_only(true).open(&image.path).expect("mount");
    for quota_type in QuotaType::ALL {
        let limits = fs.quota(quota_type, 70_000).expect("limits").limits;
        assert_eq!((limits.space_soft_bytes, limits.space_hard_bytes), (10 << 10, 20 << 20));
        assert_eq!((limits.inodes_soft, limits.inodes_hard), (3, 5));
        assert_eq!(fs.quota_grace(quota_type).expect("grace"), grace);
    }
    drop(fs);
    Mount::new().background(false).open(&image.path).and_then(Filesystem::unmount).expect("replayed");
    image.assert_clean("limits");
    let said = run("debugfs", &["-R", "get_quota user 70000", text(&image.path)]).expect("debugfs");
    let words: Vec<&str> = said.lines().flat_map(str::split_whitespace).collect();
    for limit in ["10", "20480", "3", "5"] {
        assert!(words.contains(&limit), "{limit}: {said}");
    }
    let without = Image::made(16, &["-O", "^quota"]).expect("a disk");
    let refused = Mount::new().enforce_quotas(&[QuotaType::Group]).open(&without.path);
    assert!(matches!(refused, Err(Error::Unsupported(_))));
}
