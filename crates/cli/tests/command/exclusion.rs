//! Disks that are in use by another process, and images that are no bare disk.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use extant_ondisk::Superblock;

use super::bench::{Bench, DISK, is_root};

/// A reader that holds the disk: an export whose output is not read.
fn reader(bench: &Bench) -> Child {
    let mut command = bench.extant();
    command.args(["export", DISK]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("spawn");
    // Once something comes, the disk is open.
    child.stdout.as_mut().expect("stdout").read_exact(&mut [0; 512]).expect("archive");
    child
}

/// A writer that holds the disk: an import whose archive has begun. Its first member is there when the disk is open.
fn writer(bench: &Bench) -> Child {
    bench.program("tar", &["-cf", "held.tar", "-C", "tree", "etc"]);
    let mut command = bench.extant();
    command.args(["import", DISK, "-"]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("spawn");
    let archive = bench.bytes("held.tar");
    child.stdin.as_mut().expect("stdin").write_all(&archive[..512]).expect("archive");
    // Not by opening the disk, which would keep the import from it.
    let fdinfo = format!("/proc/{}/fdinfo", child.id());
    let is_held = || {
        let files = std::fs::read_dir(&fdinfo).expect("fdinfo").flatten();
        files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).any(|text| text.contains("lock:"))
    };
    let wait = || std::thread::sleep(std::time::Duration::from_millis(10));
    let taken = (0..3000).any(|_| {
        wait();
        is_held()
    });
    if !taken {
        end(child);
        panic!("the import did not take the disk");
    }
    child
}

fn end(mut child: Child) {
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn two_writers_are_refused_and_the_holder_is_named() {
    let Some(bench) = Bench::new() else { return };
    let holder = writer(&bench);
    let pid = holder.id().to_string();
    let refused: Vec<String> = [
        &["mkdir", "--wait=0", "disk.img:/x"][..],
        &["ls", "--wait=0", DISK],
        &["mkfs", "--wait=0", "-F", DISK],
    ]
    .iter()
    .map(|arguments| bench.fails(1, arguments))
    .collect();
    end(holder);
    for said in refused {
        assert!(
            said.starts_with("extant: disk.img: in use by extant (process ")
                && said.contains(&pid)
                && said.contains("extant import disk.img -`; wait for it to end"),
            "{said}"
        );
    }
    // What the killed writer left is replayed or was never begun.
    assert_eq!(bench.run(&["mkdir", "disk.img:/x"]).status, 0);
    bench.assert_clean(DISK);
}

#[test]
fn readers_share_a_disk_and_keep_writers_off() {
    let Some(bench) = Bench::new() else { return };
    std::fs::write(bench.path("large"), vec![b'x'; 4 << 20]).expect("file");
    bench.ok(&["cp", "large", "disk.img:/large"]);
    let holder = reader(&bench);
    let (read, refused) =
        (bench.run(&["cat", "disk.img:/etc/hostname"]), bench.run(&["mkdir", "--wait", "0", "disk.img:/x"]));
    end(holder);
    assert_eq!((read.status, read.out.as_str()), (0, "guest\n"));
    assert!(refused.status == 1 && refused.err.contains("in use by"), "{}", refused.err);
    bench.ok(&["mkdir", "disk.img:/x"]);
}

#[test]
fn commands_at_once_wait_for_each_other() {
    let Some(bench) = Bench::new() else { return };
    let copies: Vec<Child> = (0..6)
        .map(|number| {
            let mut command = bench.extant();
            command.args(["cp", "tree/bin/tool", &format!("disk.img:/tool{number}")]).stderr(Stdio::piped());
            command.spawn().expect("spawn")
        })
        .collect();
    for copy in copies {
        let run = copy.wait_with_output().expect("wait");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    assert_eq!(bench.ok(&["ls", DISK]).out.matches("tool").count(), 6);
    bench.assert_clean(DISK);
    // One that ends later is waited for, and named meanwhile.
    let holder = writer(&bench);
    let pid = holder.id().to_string();
    let mut waiting = bench
        .extant()
        .args(["mkdir", "--wait=100", "disk.img:/x"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut said = String::new();
    let stderr = waiting.stderr.take().expect("stderr");
    BufReader::new(stderr).read_line(&mut said).expect("a line");
    assert!(said.contains("waiting up to 100 s") && said.contains(&pid), "{said}");
    end(holder);
    assert!(waiting.wait().expect("wait").success());
    bench.assert_clean(DISK);
}

#[test]
fn mount_is_not_waited_for_and_says_where_it_is() {
    let Some(bench) = Bench::new() else { return };
    std::fs::create_dir(bench.path("mnt")).expect("directory");
    let mounted = bench.run(&["mount", DISK, "mnt"]);
    if mounted.status != 0 {
        println!("skipped: {}", mounted.err);
        return;
    }
    let runs = [
        bench.run(&["ls", "--wait=1000", DISK]),
        bench.run(&["cp", "--wait=1000", "tree/bin/tool", "disk.img:/"]),
    ];
    bench.ok(&["umount", "mnt"]);
    let place = bench.path("mnt").canonicalize().expect("path").display().to_string();
    for run in runs {
        assert!(run.status == 1 && run.err.contains(&format!("mounted on {place}")), "{}", run.err);
        assert!(run.err.contains("extant umount"), "{}", run.err);
    }
}

#[test]
fn what_is_no_ext4_is_named_with_the_next_step() {
    let bench = Bench::empty();
    let marked = |name: &str, at: usize, mark: &[u8]| {
        let mut image = vec![0; 1 << 20];
        image[at..at + mark.len()].copy_from_slice(mark);
        std::fs::write(bench.path(name), image).expect("image");
    };
    marked("xfs.img", 0, b"XFSB");
    marked("luks.img", 0, b"LUKS\xba\xbe");
    for (image, what, advice) in [
        ("xfs.img", "an XFS file system", "mount it with the kernel"),
        ("luks.img", "a LUKS volume", "cryptsetup open"),
    ] {
        let place = format!("{image}:/x");
        for arguments in
            [&["ls", image][..], &["mkdir", &place], &["info", image], &["export", image, "-o", "t"]]
        {
            let said = bench.fails(1, arguments);
            assert!(said.starts_with(&format!("extant: {image}: ")), "{said}");
            assert!(said.contains(what) && said.contains(advice), "{said}");
        }
        assert!(bench.fails(1, &["mkfs", image]).contains(what));
    }
}

/// Detaches a loop device when it goes.
struct Attached<'b>(&'b Bench, String);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ = self.0.finish(self.0.command("losetup").args(["-d", &self.1]), b"");
    }
}

fn attach(bench: &Bench) -> Option<Attached<'_>> {
    if !is_root() {
        println!("skipped: not root");
        return None;
    }
    let run = bench.finish(bench.command("losetup").args(["-f", "--show", DISK]), b"");
    if run.status != 0 {
        println!("skipped: {}", run.err);
        return None;
    }
    Some(Attached(bench, run.out.trim().to_owned()))
}

#[test]
fn image_below_a_loop_device_is_not_written() {
    let Some(bench) = Bench::new() else { return };
    let Some(attached) = attach(&bench) else { return };
    let said = bench.fails(1, &["mkdir", "disk.img:/x"]);
    assert!(said.contains(&format!("attached to {}", attached.1)), "{said}");
    // The device itself can be.
    bench.ok(&["mkdir", &format!("{}:/x", attached.1)]);
    assert_eq!(bench.ok(&["ls", "-d", &format!("{}:/x", attached.1)]).out, "/x\n");
    drop(attached);
    bench.assert_clean(DISK);
}

#[test]
fn mounted_device_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let Some(attached) = attach(&bench) else { return };
    std::fs::create_dir(bench.path("mnt")).expect("directory");
    bench.program("mount", &[&attached.1, "mnt"]);
    let runs = ["mkdir", "ls"].map(|verb| bench.run(&[verb, &format!("{}:/x", attached.1)]));
    bench.program("umount", &["mnt"]);
    for run in runs {
        assert!(run.status == 1 && run.err.contains("mounted on"), "{}", run.err);
    }
}

#[test]
fn other_image_formats_are_recognised() {
    let bench = Bench::empty();
    std::fs::write(bench.path("vm.qcow2"), [b"QFI\xfb\0\0\0\x03".as_slice(), &[0; 65536]].concat())
        .expect("image");
    for arguments in [&["ls", "vm.qcow2"][..], &["mkdir", "vm.qcow2:/x"]] {
        let said = bench.fails(1, arguments);
        assert!(said.starts_with("extant: vm.qcow2: damaged qcow2 image: "), "{said}");
    }
    let mut vdi = vec![0; 65536];
    vdi[0x40..0x44].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
    std::fs::write(bench.path("vm.vdi"), vdi).expect("image");
    let said = bench.fails(1, &["ls", "vm.vdi"]);
    assert!(said.contains("a VDI image") && said.contains("`qemu-img convert -O qcow2 IMAGE NEW`"), "{said}");
    std::fs::write(bench.path("empty.img"), "").expect("image");
    std::fs::write(bench.path("zeroes.img"), vec![0; 1 << 20]).expect("image");
    for image in ["empty.img", "zeroes.img"] {
        let said = bench.fails(1, &["ls", image]);
        assert!(said.contains(image) && said.contains("no ext4 file system"), "{said}");
        assert!(bench.fails(8, &["check", image]).contains(image));
    }
    assert!(bench.fails(1, &["ls", "."]).contains("neither a file nor a block device"));
}

#[test]
fn another_host_that_holds_a_disk_is_named_by_every_verb() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["mkfs", "-O", "mmp,^metadata_csum", "held.img", "16M"]);
    bench.ok(&["mkdir", "held.img:/x"]);
    assert_eq!(bench.document("info --json held.img")["in_use"], serde_json::Value::Null);
    let said = bench.program("dumpe2fs", &["-h", "held.img"]).out;
    let block = said.lines().find_map(|line| line.strip_prefix("MMP block number:")).expect("a block");
    let at = block.trim().parse::<u64>().expect("a number") * 4096;
    // The mark of e2fsck, and its host.
    let image = std::fs::File::options().write(true).open(bench.path("held.img")).expect("image");
    let write =
        |bytes: &[u8], at| std::os::unix::fs::FileExt::write_all_at(&image, bytes, at).expect("write");
    write(&0xE24D_4D50_u32.to_le_bytes(), at + 4);
    write(b"far", at + 16);
    drop(image);
    let held = "in use by e2fsck on host far, as ?, which said so last";
    let refused = bench.fails(1, &["rm", "-r", "held.img:/x"]);
    assert!(refused.contains(held) && refused.contains("tune2fs -f -E clear_mmp"), "{refused}");
    assert!(bench.ok(&["info", "held.img"]).out.contains(held));
    assert_eq!(bench.document("info --json held.img")["in_use"]["node"], "far");
    let checked = bench.run(&["check", "held.img"]);
    assert_eq!((checked.status, checked.out.as_str()), (0, "held.img: clean\n"));
    assert!(checked.err.contains(held), "{}", checked.err);
    bench.program("tune2fs", &["-f", "-E", "clear_mmp", "held.img"]);
    bench.ok(&["rm", "-r", "held.img:/x"]);
    bench.assert_clean("held.img");
}

#[test]
fn who_waits_for_another_host_says_so_while_waiting() {
    let Some(bench) = Bench::new() else { return };
    let options = ["-b", "1024", "-O", "mmp,^metadata_csum", "-E", "mmp_update_interval=1"];
    bench.mke2fs("shared.img", "16M", &options);
    let mut bytes = bench.bytes("shared.img");
    let superblock = Superblock::parse(&bytes[1024..]).expect("a superblock");
    // Its sequence number, which no longer says that the disk is unused.
    let sequence_offset = superblock.s_mmp_block() as usize * 1024 + 4;
    bytes[sequence_offset..][..4].copy_from_slice(&7_u32.to_le_bytes());
    std::fs::write(bench.path("shared.img"), bytes).expect("an image");
    let mut command = bench.extant();
    command.args(["mkdir", "shared.img:/x"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let start = std::time::Instant::now();
    let mut child = command.spawn().expect("spawn");
    let mut said = String::new();
    BufReader::new(child.stderr.take().expect("stderr")).read_line(&mut said).expect("a line");
    let took = start.elapsed();
    end(child);
    let expected = "waiting 11 s to see whether another host uses shared.img (multi-mount protection)";
    assert_eq!(said, format!("extant: {expected}\n"));
    assert!(took.as_secs() < 11, "said after {took:?}");
}
