//! Random operations, and the ends of each kind of inode.

use extant::{
    Dir, Error, Fallocate, File, Filesystem, InodeFlags, Mount, New, NewKind, RenameFlags, Result,
    SetAttributes, XattrMode,
};
use extant_ondisk::QuotaType;
use extant_testing::Random;

use crate::disk::{Image, run, text};

/// Options of mke2fs, each once per round.
const DISKS: &[&[&str]] = &[
    &["-b", "4096", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-b", "1024", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
    &["-b", "1024", "-O", "quota,^extent,^64bit,^metadata_csum", "-E", "quotatype=usrquota"],
    &["-b", "2048", "-O", "quota,project,inline_data,fast_commit,orphan_file"],
    &["-b", "4096", "-O", "quota,^has_journal", "-E", "quotatype=grpquota"],
];
const ROUNDS: u64 = 6;
const OPERATIONS_PER_ROUND: usize = 700;

fn new(kind: NewKind<'_>, uid: u32, gid: u32) -> New<'_> {
    New { kind, mode: 0o755, uid, gid, times: None, xattrs: &[] }
}

/// Few ids mostly, so that they meet, and now and then one that is new.
fn id(random: &mut Random) -> u32 {
    match random.below(12) {
        0 => random.below(1 << 32) as u32,
        1 => 0,
        _ => 1000 + random.below(4) as u32,
    }
}

fn name(random: &mut Random) -> Vec<u8> {
    format!("n{}", random.below(24)).into_bytes()
}

fn dir(fs: &Filesystem, random: &mut Random) -> Result<Dir> {
    let root = fs.root()?;
    match random.below(3) {
        0 => Ok(root),
        _ => root.dir(&name(random)),
    }
}

/// One operation. Files that stay open go into `held`.
fn operate(fs: &Filesystem, random: &mut Random, held: &mut Vec<File>) -> Result<()> {
    let parent = dir(fs, random)?;
    let name = name(random);
    let (uid, gid) = (id(random), id(random));
    let (at, bytes) = (random.below(1 << 19), random.below(1 << 17));
    match random.below(20) {
        0 | 1 => drop(parent.create_dir(&name, &new(NewKind::Directory, uid, gid))?),
        2..=4 => {
            let file = parent.create(&name, &new(NewKind::File, uid, gid))?;
            file.write_all_at(&vec![7; bytes as usize], 0)?;
        }
        5 => {
            let target = vec![b'x'; 1 + random.below(200) as usize];
            parent.create(&name, &new(NewKind::Symlink(&target), uid, gid))?;
        }
        6 => {
            let file = parent.create_tmpfile(&new(NewKind::File, uid, gid))?;
            file.write_all_at(&vec![8; bytes as usize], at)?;
            held.push(file);
        }
        7 | 8 => parent.lookup(&name)?.write_all_at(&vec![9; bytes as usize], at)?,
        9 => parent.lookup(&name)?.set_len(at)?,
        10 => parent.lookup(&name)?.allocate(Fallocate::Allocate { keep_size: true }, at, bytes + 1)?,
        11 => parent.lookup(&name)?.allocate(Fallocate::PunchHole, at, bytes + 1)?,
        12 => {
            let set = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
            parent.lookup(&name)?.set_attributes(&set)?;
        }
        13 => {
            let set = SetAttributes { project: Some(id(random)), ..SetAttributes::default() };
            parent.lookup(&name)?.set_attributes(&set)?;
        }
        14 => {
            let directory = parent.lookup(&name)?;
            directory.set_flags(directory.flags() ^ InodeFlags::PROJINHERIT)?;
        }
        15 => {
            let value = vec![3; random.below(900) as usize];
            parent.lookup(&name)?.set_xattr(b"user.a", &value, XattrMode::default())?;
        }
        16 => {
            let file = parent.lookup(&name)?;
            if !file.is_dir() {
                held.push(file);
            }
            parent.unlink(&name)?;
        }
        17 => {
            let to = dir(fs, random)?;
            let flags = RenameFlags {
                exchange: random.below(3) == 0,
                whiteout: random.below(9) == 0,
                ..RenameFlags::default()
            };
            parent.rename(&name, &to, &crate::usage::name(random), flags)?;
        }
        18 => {
            parent.link(&parent.lookup(&name)?, &crate::usage::name(random))?;
        }
        _ => match random.below(3) {
            0 => held.clear(),
            1 => fs.root()?.dir(&name)?.remove_all()?,
            _ => parent.lookup(&name)?.sync_all()?,
        },
    }
    Ok(())
}

fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::NotEmpty
            | Error::NotPermitted
            | Error::CrossProject
            | Error::InvalidArgument(_)
            | Error::Unsupported(_)
            | Error::NoSpace
    )
}

/// Works at random, unmounts, and asserts that e2fsck and Extant's own check find nothing; how many operations did something.
pub fn work(image: &Image, case: &str, operations: usize, random: &mut Random) -> usize {
    let pages = [0, 16 << 20, 64 << 10][random.below(3) as usize];
    let fs = Mount::new().page_cache_bytes(pages).background(false).open(&image.path).expect(case);
    let mut held = Vec::new();
    let mut worked = 0;
    for _ in 0..operations {
        match operate(&fs, random, &mut held) {
            Ok(()) => worked += 1,
            Err(error) => assert!(is_expected(&error), "{case}: {error}"),
        }
    }
    held.clear();
    fs.unmount().expect(case);
    image.assert_clean(case);
    let fs = Mount::new().read_only(true).open(&image.path).expect(case);
    assert_eq!(fs.check(&mut |_| ()).expect(case), [], "{case}");
    worked
}

#[test]
fn usage_is_what_e2fsck_counts_after_random_operations() {
    for (index, options) in DISKS.iter().enumerate() {
        let Some(image) = Image::made(48, options) else { return };
        let mut random = Random::new(index as u64);
        let worked: usize = (0..ROUNDS)
            .map(|round| {
                work(&image, &format!("{options:?}, round {round}"), OPERATIONS_PER_ROUND, &mut random)
            })
            .sum();
        assert!(worked > OPERATIONS_PER_ROUND, "{options:?}: {worked} operations did something");
        println!("{options:?}: {worked} operations, and usage is what e2fsck counts");
    }
}

#[test]
fn many_ids_are_what_debugfs_shows() {
    let Some(image) = Image::made(32, &["-b", "1024", "-O", "quota", "-E", "quotatype=usrquota:grpquota"])
    else {
        return;
    };
    let fs = Mount::new().background(false).open(&image.path).expect("mount");
    for id in 0..300_u32 {
        let root = fs.root().expect("the root");
        let uid = id.wrapping_mul(0x0101_0101);
        let file = root.create(format!("f{id}").as_bytes(), &new(NewKind::File, uid, 5)).expect("a file");
        file.write_all_at(&vec![1; 1024 * (id as usize % 4)], 0).expect("written");
    }
    fs.unmount().expect("unmount");
    image.assert_clean("300 ids");
    for id in (1..300_u32).step_by(37) {
        let used = image.usage(QuotaType::User, id.wrapping_mul(0x0101_0101));
        assert_eq!(used, Some((u64::from(id % 4) * 1024, 1)), "user {id}");
    }
    let said = run("debugfs", &["-R", "list_quota user", text(&image.path)]).expect("debugfs");
    assert!(said.lines().count() >= 300, "{said}");
}
