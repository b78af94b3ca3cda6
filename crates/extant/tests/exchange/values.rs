//! Values of attributes that the kernel puts into inodes of their own, and what becomes of these.

use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

use extant::{Error, Filesystem, Mount, XattrMode};

use crate::ops::Op;
use crate::{assert_clean, format, kernel};

const LARGE: usize = 9000;
/// After a value of so many bytes an inode has room for no other entry.
const FILL: usize = 60;

fn attribute(file: usize, name: &str, byte: u8, bytes: usize) -> Op {
    Op::SetXattr { path: format!("f{file}"), name: format!("user.{name}"), value: vec![byte; bytes] }
}

/// Files of which 0 to 5 have the same value in one inode, whose entries are in a block that they share, and 6 to 9 have one
/// each.
fn make(scratch: &Path, options: &[&str]) -> std::path::PathBuf {
    let (image, dirty) = format(scratch, options);
    let mut ops = Vec::new();
    for file in 0..10 {
        ops.push(Op::Write { path: format!("f{file}"), offset: 0, bytes: 1, fill: 1 });
    }
    for file in 0..6 {
        ops.push(attribute(file, "fill", b'f', FILL));
        ops.extend([attribute(file, "small", b's', 300), attribute(file, "large", b'l', LARGE)]);
    }
    ops.extend((6..10).map(|file| attribute(file, "large", b'0' + file as u8, LARGE)));
    kernel::turn(&image, scratch, ops.into_iter(), dirty);
    image
}

fn free(fs: &Filesystem) -> (u32, u64) {
    fs.sync().expect("sync");
    let statistics = fs.statistics();
    (statistics.free_inodes, statistics.free_blocks)
}

#[test]
fn the_inode_of_a_value_goes_with_its_last_entry() {
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    for options in [&["-b", "1024", "-O", "ea_inode"], &["-b", "4096", "-O", "ea_inode,^metadata_csum"]] {
        let image = make(scratch.path(), options);
        let fs = Mount::new().background(false).open(&image).expect("a disk");
        let file = |number: usize| fs.lookup(format!("/f{number}")).expect("a file");
        let large = |number| file(number).xattr(b"user.large").expect("a value");
        let value_blocks = (LARGE as u64).div_ceil(u64::from(fs.statistics().block_size));
        assert!((0..6).all(|number| large(number) == vec![b'l'; LARGE]));
        assert!((6..10).all(|number| large(number) == vec![b'0' + number as u8; LARGE]));

        let (inodes, _) = free(&fs);
        let blocks_512 = file(0).metadata().blocks_512;
        file(0).remove_xattr(b"user.large").expect("an attribute");
        let fewer = blocks_512 - file(0).metadata().blocks_512;
        assert_eq!(fewer * 512, value_blocks * u64::from(fs.statistics().block_size));
        file(1).set_xattr(b"user.large", b"now small", XattrMode::default()).expect("room");
        file(2).set_xattr(b"user.more", b"of one's own", XattrMode::default()).expect("room");
        (2..5).for_each(|number| fs.remove_file(format!("/f{number}")).expect("a file"));
        assert_eq!(free(&fs).0, inodes + 3, "the fifth file still has the value");
        assert_eq!(large(5), vec![b'l'; LARGE]);
        let (_, blocks) = free(&fs);
        fs.remove_file("/f5").expect("a file");
        let after = free(&fs);
        assert_eq!(after.0, inodes + 5, "the last one goes with its value");
        assert!(after.1 >= blocks + value_blocks);

        file(6).remove_xattr(b"user.large").expect("an attribute");
        assert_eq!(free(&fs).0, inodes + 6);
        // A file that is open keeps its own.
        let held = file(7);
        fs.remove_file("/f7").expect("a file");
        assert_eq!(held.xattr(b"user.large").expect("a value"), vec![b'7'; LARGE]);
        assert_eq!(free(&fs).0, inodes + 6);
        drop(held);
        assert_eq!(free(&fs).0, inodes + 8);
        let refused = file(8).set_xattr(b"user.new", &[b'n'; LARGE], XattrMode::default());
        assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
        fs.set_mode("/f8", 0o600).expect("a file");
        assert_eq!(large(8), vec![b'8'; LARGE]);
        drop(fs);
        assert_clean(&image, scratch.path(), "values");
        let fs = Mount::new().read_only(true).open(&image).expect("a disk");
        assert_eq!(fs.check(&mut |_| {}).expect("a check"), []);
    }
}

/// Each sees that the other uses the block too, and one of them is the last.
#[test]
fn two_who_leave_a_shared_block_at_once_leave_no_value() {
    const PAIRS: usize = 400;
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    let (image, dirty) = format(scratch.path(), &["-b", "1024", "-N", "4096", "-O", "ea_inode"]);
    let mut ops = Vec::new();
    for file in 0..2 * PAIRS {
        ops.push(Op::Write { path: format!("f{file}"), offset: 0, bytes: 1, fill: 1 });
        let mut value = vec![b'l'; 1500];
        value[..2].copy_from_slice(&(file as u16 / 2).to_le_bytes());
        ops.push(attribute(file, "fill", b'f', FILL));
        ops.push(attribute(file, "small", (file / 2) as u8, 300));
        ops.push(Op::SetXattr { path: format!("f{file}"), name: "user.large".to_owned(), value });
    }
    kernel::turn(&image, scratch.path(), ops.into_iter(), dirty);
    let fs = Mount::new().background(false).open(&image).expect("a disk");
    let (inodes, _) = free(&fs);
    for pair in 0..PAIRS {
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            for file in [2 * pair, 2 * pair + 1] {
                let file = fs.lookup(format!("/f{file}")).expect("a file");
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    file.remove_xattr(b"user.large").expect("an attribute");
                });
            }
        });
    }
    assert_eq!(free(&fs).0, inodes + PAIRS as u32);
    fs.unmount().expect("unmount");
    assert_clean(&image, scratch.path(), "pairs");
}

fn debugfs(image: &Path, request: &str) -> String {
    let output = Command::new("debugfs").args(["-w", "-R", request]).arg(image).output().expect("debugfs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_value_that_is_not_what_its_entry_says_is_damage_and_can_be_removed() {
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    let damages: [(&str, &[&str]); 6] = [
        ("is not as long", &["sif VALUE size 8999"]),
        ("holds another value", &["sif VALUE atime 0x4711"]),
        ("not marked so", &["sif VALUE flags 0x80000"]),
        ("nothing names it", &["sif VALUE version 0", "sif VALUE ctime 0"]),
        ("has attributes", &["ea_set VALUE user.x y"]),
        ("but free", &["sif VALUE links_count 0", "sif VALUE dtime 5"]),
    ];
    for (said, requests) in damages {
        let image = make(scratch.path(), &["-b", "1024", "-O", "ea_inode"]);
        Mount::new().background(false).open(&image).and_then(Filesystem::unmount).expect("a replay");
        let number = (12..100)
            .find(|number| debugfs(&image, &format!("stat <{number}>")).contains("Flags: 0x280000"))
            .expect("an inode of a value");
        for request in requests {
            debugfs(&image, &request.replace("VALUE", &format!("<{number}>")));
        }
        let fs = Mount::new().background(false).open(&image).expect("a disk");
        let findings = fs.check(&mut |_| {}).expect("a check");
        let mut damaged = 0;
        for path in (0..10).map(|file| format!("/f{file}")) {
            let file = fs.lookup(&path).expect("a file");
            match file.xattr(b"user.large") {
                Ok(value) => assert_eq!(value.len(), LARGE),
                Err(error @ Error::Corrupt { .. }) => {
                    damaged += 1;
                    assert!(error.to_string().contains(said), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
            file.remove_xattr(b"user.large").expect("can be removed");
            assert!(matches!(file.xattr(b"user.large"), Err(Error::NoAttribute)));
            fs.remove_file(&path).expect("can be removed");
        }
        assert!(damaged > 0, "{said}: nothing was damaged");
        assert!(!findings.is_empty() || said == "has attributes", "{said}: the check finds nothing");
    }
}
