//! Fast commits of Extant after a crash: Extant, Linux and e2fsck recover the same tree.

use std::fs;
use std::path::{Path, PathBuf};

use extant::{Fallocate, Filesystem, Mount};
use extant_testing::{Random, assert_clean, crash_scale, run, scratch, text};

use crate::disk::make;
use crate::mounted::{Mounted, Tree, differences, tree};

/// As many sequences for each kind of disk, and [`crash_scale`].
const SEQUENCES: u64 = 25;

/// One operation, perhaps with a sync of what it changed. What fails, as the removal of what is not there, changes nothing.
fn operate(fs: &Filesystem, random: &mut Random) -> extant::Result<()> {
    let any = |random: &mut Random| {
        let dir = if random.below(3) == 0 { "/d" } else { "" };
        format!("{dir}/f{}", random.below(12))
    };
    let (path, other) = (any(random), any(random));
    let open = |path: &str| fs.options().read(true).write(true).create(true).open(path);
    let changed = match random.below(16) {
        0..=3 => {
            let file = open(&path)?;
            let len = 1 + random.below(30_000) as usize;
            let bytes = random.bytes(len);
            file.write_all_at(&bytes, random.below(120_000))?;
            path
        }
        4 | 5 => {
            let file = open(&path)?;
            let len = 1 + random.below(9000) as usize;
            let bytes = random.bytes(len);
            file.write_all_at(&bytes, file.metadata().size)?;
            path
        }
        6 => {
            open(&path)?.set_len(random.below(60_000))?;
            path
        }
        7 => {
            open(&path)?.allocate(Fallocate::PunchHole, random.below(60_000), 1 + random.below(40_000))?;
            path
        }
        8 => {
            let keep_size = random.below(2) == 0;
            let what = match random.below(2) {
                0 => Fallocate::Allocate { keep_size },
                _ => Fallocate::ZeroRange { keep_size },
            };
            open(&path)?.allocate(what, random.below(90_000), 1 + random.below(40_000))?;
            path
        }
        9 => fs.hard_link(&path, &other).map(|()| other)?,
        10 | 11 => fs.remove_file(&path).map(|()| other)?,
        12 | 13 => fs.rename(&path, &other).map(|()| other)?,
        14 => {
            fs.set_mode(&path, 0o600 + random.below(0o100) as u16)?;
            path
        }
        _ => match random.below(4) {
            0 => fs.symlink("target", format!("/s{}", random.below(40))).map(|()| other)?,
            1 => fs
                .rename(format!("/s{}", random.below(40)), format!("/s{}", random.below(40)))
                .map(|()| other)?,
            2 => {
                fs.set_mode("/d", 0o700 + random.below(0o100) as u16)?;
                "/d".to_owned()
            }
            _ => {
                open(&path)?.set_xattr(b"user.name", &random.bytes(20), extant::XattrMode::default())?;
                path
            }
        },
    };
    match random.below(4) {
        0 => Ok(()),
        1 => fs.lookup(&changed)?.sync_data(),
        _ => fs.lookup(&changed)?.sync_all(),
    }
}

/// What Linux shows of a disk that was recovered.
fn shown(image: &Path, what: &str) -> Tree {
    let mounted = Mounted::new(image, "noatime").unwrap_or_else(|e| panic!("{what}: {e}"));
    tree(&mounted.point)
}

/// The disk after a crash as each recovers it. How many fast commits there were.
fn compare(image: &Path, what: &str) -> u32 {
    let copy = |name: &str| -> PathBuf {
        let copy = image.with_file_name(name);
        fs::copy(image, &copy).expect("copy");
        copy
    };
    let (ours, linux, e2fsck) = (copy("ours"), copy("linux"), copy("e2fsck"));
    let fs = Mount::new().open(&ours).unwrap_or_else(|e| panic!("{what}: {e}"));
    let fast_commits = fs.mounted().replayed_fast_commits;
    fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = shown(&ours, what);
    let is_same = |theirs: &Tree, who: &str| {
        assert!(found == *theirs, "{what}: Extant, then {who}: {:#?}", differences(&found, theirs));
    };
    is_same(&shown(&linux, what), "Linux");
    for recovered in [&ours, &linux] {
        assert_clean(recovered, &format!("{what}, {recovered:?}"));
    }
    // It exits with 1 where it corrected something.
    let said = run("e2fsck", &["-fy", text(&e2fsck)]).unwrap_or_else(|said| said);
    assert_clean(&e2fsck, &format!("{what}, e2fsck"));
    let mut theirs = shown(&e2fsck, what);
    // The last name of a file that goes by a fast commit leaves the file to e2fsck, which puts it there.
    theirs.retain(|path, _| path.parent() != Some(Path::new("lost+found")));
    is_same(&theirs, &format!("e2fsck, which said {said}"));
    fast_commits
}

#[test]
fn extant_linux_and_e2fsck_recover_the_same_tree() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let mut replayed = 0;
    for (block_size, features) in [(4096, "metadata_csum"), (1024, "metadata_csum"), (4096, "^metadata_csum")]
    {
        for seed in 0..SEQUENCES * crash_scale() {
            let what = format!("{block_size}, {features}, seed {seed}");
            let Some(()) = make(&image, block_size, features) else { return };
            let fs = Mount::new().background(false).open(&image).expect("mount");
            let mut random = Random::new(seed);
            fs.create_dir("/d").expect("mkdir");
            for _ in 0..random.below(20) {
                let _ = operate(&fs, &mut random);
            }
            if random.below(2) == 0 {
                fs.sync().expect("sync");
            }
            for _ in 0..1 + random.below(20) {
                let _ = operate(&fs, &mut random);
            }
            replayed += compare(&image, &what);
            fs.unmount().expect("unmount");
        }
    }
    println!("replayed: {replayed} fast commits");
    assert!(u64::from(replayed) > 70 * crash_scale(), "{replayed} fast commits");
}
