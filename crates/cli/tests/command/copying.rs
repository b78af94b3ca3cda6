//! `cp`: into a disk, out of it, between disks and inside one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::bench::{Bench, DISK};

#[test]
fn copies_into_a_disk_belong_to_root_and_have_their_sources_mode() {
    let Some(bench) = Bench::new() else { return };
    fs::set_permissions(bench.path("tree/etc/hostname"), fs::Permissions::from_mode(0o640)).expect("mode");
    bench.ok(&["cp", "tree/etc/hostname", "tree/bin/tool", "disk.img:/deep"]);
    bench.ok(&["cp", "tree/etc/hostname", "disk.img:/deep/other"]);
    assert_eq!(bench.ok(&["ls", "disk.img:/deep"]).out, "er\nhostname\nother\ntool\n");
    assert_eq!(bench.content(DISK, "/deep/other"), b"guest\n");
    assert_eq!(bench.field(DISK, "/deep/other", "Mode:"), "0640");
    assert_eq!(bench.field(DISK, "/deep/other", "User:"), "0");
    bench.assert_clean(DISK);
    bench.ok(&["cp", "--chown", "web:www", "--chmod", "u=rw,go=", "tree/bin/tool", "disk.img:/deep/secret"]);
    assert_eq!(bench.field(DISK, "/deep/secret", "Mode:"), "0600");
    assert_eq!(bench.field(DISK, "/deep/secret", "User:"), "33");
    assert_eq!(bench.field(DISK, "/deep/secret", "Group:"), "35");
    bench.assert_clean(DISK);
}

#[test]
fn file_that_exists_keeps_what_is_its_own() {
    let Some(bench) = Bench::new() else { return };
    let before = bench.field(DISK, "/etc/hostname", "Inode:");
    bench.ok(&["ln", "disk.img:/etc/hostname", "disk.img:/kept"]);
    bench.ok(&["chmod", "640", "disk.img:/etc/hostname"]);
    bench.ok(&["chown", "web:www", "disk.img:/etc/hostname"]);
    fs::write(bench.path("new"), "new\n").expect("file");
    bench.ok(&["cp", "new", "disk.img:/etc/link"]);
    assert_eq!(bench.field(DISK, "/etc/hostname", "Inode:"), before);
    assert_eq!(bench.field(DISK, "/etc/hostname", "Mode:"), "0640");
    assert_eq!(bench.field(DISK, "/etc/hostname", "User:"), "33");
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"new\n");
    assert_eq!(bench.content(DISK, "/kept"), b"new\n");
    assert_eq!(bench.ok(&["ls", "-a", "disk.img:/etc"]).out, ".\n..\ngroup\nhostname\nlink\npasswd\n");
    bench.assert_clean(DISK);
    // The requested attributes change, and no others.
    bench.ok(&["cp", "--chown", "0", "new", "disk.img:/kept"]);
    assert_eq!(bench.field(DISK, "/etc/hostname", "User:"), "0");
    assert_eq!(bench.field(DISK, "/etc/hostname", "Group:"), "35");
    assert_eq!(bench.field(DISK, "/etc/hostname", "Mode:"), "0640");
    bench.ok(&["cp", "--chmod", "604", "new", "disk.img:/kept"]);
    assert_eq!(bench.field(DISK, "/etc/hostname", "Mode:"), "0604");
    assert_eq!(bench.field(DISK, "/etc/hostname", "Group:"), "35");
    bench.ok(&["cp", "--remove-destination", "new", "disk.img:/kept"]);
    assert_ne!(bench.field(DISK, "/kept", "Inode:"), before);
    assert_eq!(bench.field(DISK, "/etc/hostname", "Links:"), "1");
    bench.assert_clean(DISK);
}

#[test]
fn streams_go_in_and_out() {
    let Some(bench) = Bench::new() else { return };
    let run = bench.finish(bench.extant().args(["cp", "-", "disk.img:/typed"]), b"typed\n");
    assert_eq!((run.status, bench.ok(&["cp", "disk.img:/typed", "-"]).out.as_str()), (0, "typed\n"));
    bench.ok(&["cp", "/dev/null", "disk.img:/empty"]);
    assert_eq!(bench.content(DISK, "/empty"), b"");
    // The device stays what it is.
    let before = fs::metadata("/dev/null").expect("device").mode();
    bench.ok(&["cp", "disk.img:/typed", "/dev/null"]);
    assert_eq!(fs::metadata("/dev/null").expect("device").mode(), before);
    assert_eq!(bench.ok(&["cp", "disk.img:/typed", "/dev/stdout"]).out, "typed\n");
    bench.fails(2, &["cp", "disk.img:/typed", "disk.img:/empty", "-"]);
    bench.fails(1, &["cp", "-r", "disk.img:/etc", "-"]);
    let said = bench.finish(bench.extant().args(["cp", "-", "disk.img:/etc"]), b"x").err;
    assert!(said.contains("no name"), "{said}");
    bench.assert_clean(DISK);
}

#[test]
fn copies_are_told_and_one_does_not_take_the_place_of_another() {
    let Some(bench) = Bench::new() else { return };
    let said = bench.ok(&["cp", "-v", "-r", "tree/deep", "disk.img:/new"]).out;
    assert_eq!(
        said,
        "'tree/deep' -> 'disk.img:/new'\n'tree/deep/er' -> 'disk.img:/new/er'\n'tree/deep/er/file' -> 'disk.img:/new/er/file'\n"
    );
    assert_eq!(bench.ok(&["cp", "-v", "-n", "tree/etc/hostname", "disk.img:/etc/"]).out, "");
    fs::create_dir(bench.path("other")).expect("directory");
    fs::write(bench.path("other/tool"), "another").expect("file");
    let said = bench.fails(1, &["cp", "tree/bin/tool", "other/tool", "disk.img:/new"]);
    assert!(said.contains("just copied"), "{said}");
    let said = bench.fails(1, &["cp", "disk.img:/etc/link", "disk.img:/etc/hostname"]);
    assert!(said.contains("same file"), "{said}");
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"guest\n");
    bench.assert_clean(DISK);
}

#[test]
fn trees_go_in_and_come_out_as_they_were() {
    let Some(bench) = Bench::new() else { return };
    fs::hard_link(bench.path("tree/bin/tool"), bench.path("tree/bin/hard")).expect("link");
    bench.ok(&["cp", "-a", "tree", "disk.img:/copy"]);
    bench.ok(&["cp", "-a", "tree/.", "disk.img:/"]);
    bench.assert_clean(DISK);
    assert_eq!(bench.field(DISK, "/copy/bin/hard", "Links:"), "2");
    assert_eq!(bench.field(DISK, "/bin/hard", "Links:"), "2");
    bench.ok(&["cp", "-a", "disk.img:/copy", "back"]);
    bench.program("diff", &["-r", "--no-dereference", "tree", "back"]);
    let (old, new) = (
        fs::metadata(bench.path("tree/bin/tool")).expect("old"),
        fs::metadata(bench.path("back/bin/tool")).expect("new"),
    );
    assert_eq!((old.mode(), old.mtime(), old.mtime_nsec()), (new.mode(), new.mtime(), new.mtime_nsec()));
    assert_eq!(new.nlink(), 2);
    // Without -a they are new files: links stay links, times are of now.
    bench.ok(&["cp", "-r", "tree/etc", "disk.img:/plain"]);
    assert!(bench.debugfs(DISK, "stat /plain/link").contains("\"hostname\""));
    bench.assert_clean(DISK);
}

#[test]
fn disks_copy_to_each_other_and_to_themselves() {
    let Some(bench) = Bench::new() else { return };
    bench.mke2fs("other.img", "8M", &[]);
    bench.ok(&["chown", "-R", "33:35", "disk.img:/deep"]);
    bench.ok(&["cp", "-a", "disk.img:/deep", "disk.img:/etc", "other.img:/"]);
    assert_eq!(bench.field("other.img", "/deep/er/file", "User:"), "33");
    bench.ok(&["cp", "-r", "disk.img:/deep", "other.img:/plain"]);
    assert_eq!(bench.field("other.img", "/plain/er/file", "User:"), "0");
    bench.ok(&["cp", "-a", "disk.img:/deep", "disk.img:/deeper"]);
    assert_eq!(bench.content(DISK, "/deeper/er/file"), b"deep\n");
    bench.ok(&["cp", "-a", "other.img:/.", "disk.img:/odd"]);
    assert_eq!(bench.content(DISK, "/odd/etc/hostname"), b"guest\n");
    bench.assert_clean(DISK);
    bench.assert_clean("other.img");
    let said = bench.fails(1, &["cp", "-r", "disk.img:/deep", "disk.img:/deep/er"]);
    assert!(said.contains("into itself"), "{said}");
    bench.assert_clean(DISK);
}

#[test]
fn sparse_files_stay_sparse_both_ways() {
    let Some(bench) = Bench::new() else { return };
    let file = fs::File::create(bench.path("sparse")).expect("file");
    file.set_len(1 << 30).expect("length");
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", (1 << 30) - 3).expect("write");
    bench.ok(&["cp", "sparse", "disk.img:/sparse"]);
    bench.assert_clean(DISK);
    let blocks: u64 = bench.field(DISK, "/sparse", "Blockcount:").parse().expect("number");
    assert!(blocks <= 64, "{blocks}");
    bench.ok(&["cp", "disk.img:/sparse", "back"]);
    let back = fs::metadata(bench.path("back")).expect("file");
    assert!(back.len() == 1 << 30 && back.blocks() < 1000, "{} {}", back.len(), back.blocks());
}

#[test]
fn refusals_name_what_is_wrong() {
    let Some(bench) = Bench::new() else { return };
    for (arguments, words) in [
        (&["cp", "missing", "disk.img:/"][..], "extant: missing: "),
        (&["cp", "tree", "disk.img:/"], "is a directory"),
        (&["cp", "disk.img:/etc", "out"], "is a directory"),
        (&["cp", "disk.img:/missing", "out"], "disk.img:/missing: no such file"),
        (&["cp", "tree/etc/hostname", "disk.img:/missing/x"], "disk.img:/missing"),
        (&["cp", "tree/etc/hostname", "tree/bin/tool", "disk.img:/etc/passwd"], "no such directory"),
        (&["cp", "tree/etc/hostname", "disk.img:/missing/"], "no such directory"),
        (&["cp", "disk.img:/etc/hostname", "missing/x"], "missing"),
        (&["cp", "--chown", "nobody", "tree/bin/tool", "disk.img:/"], "'nobody'"),
    ] {
        let said = bench.fails(1, arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!bench.path("out").exists());
    bench.assert_clean(DISK);
    // The other sources are copied all the same.
    bench.fails(1, &["cp", "missing", "tree/bin/tool", "disk.img:/deep"]);
    assert_eq!(bench.ok(&["ls", "disk.img:/deep"]).out, "er\ntool\n");
}

#[test]
fn disk_does_not_take_its_own_place() {
    let Some(bench) = Bench::new() else { return };
    symlink(DISK, bench.path("alias.img")).expect("link");
    bench.assert_untouched(DISK, || {
        bench.fails(2, &["export", DISK, "-o", DISK]);
        bench.fails(2, &["export", DISK, "-o", "alias.img"]);
        bench.fails(1, &["cp", "disk.img:/etc/hostname", DISK]);
        bench.fails(1, &["cp", "alias.img:/etc/hostname", DISK]);
    });
    let said = bench.fails(1, &["cp", "alias.img", "disk.img:/copy"]);
    assert!(said.contains("into itself"), "{said}");
    // A directory that holds the image is copied without it.
    bench.ok(&["cp", "-r", ".", "disk.img:/all"]);
    assert_eq!(bench.ok(&["ls", "disk.img:/all"]).out, "alias.img\ntree\n");
    bench.assert_clean(DISK);
}

#[test]
fn full_disk_fails_and_stays_clean() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["chmod", "600", "disk.img:/etc/hostname"]);
    fs::write(bench.path("large"), vec![7; 32 << 20]).expect("file");
    let said = bench.fails(1, &["cp", "large", "disk.img:/etc/hostname"]);
    assert!(said.contains("disk.img:/etc/hostname: no space left"), "{said}");
    bench.assert_clean(DISK);
    // The old file is still there, and nothing half-written beside it.
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"guest\n");
    assert_eq!(bench.ok(&["ls", "-a", "disk.img:/etc"]).out, ".\n..\ngroup\nhostname\nlink\npasswd\n");
    let free = bench.ok(&["info", "--json", DISK]).json()["free_bytes"].as_u64().expect("count");
    assert!(free > 8 << 20, "{free}");
}

#[test]
fn links_of_a_disk_do_not_lead_to_the_host() {
    let Some(bench) = Bench::new() else { return };
    let outside = bench.path("outside");
    fs::create_dir(&outside).expect("directory");
    bench.ok(&["ln", "-s", outside.to_str().expect("path"), "disk.img:/out"]);
    bench.fails(1, &["cp", "tree/bin/tool", "disk.img:/out/tool"]);
    assert_eq!(fs::read_dir(&outside).expect("directory").count(), 0);
    // An extracted tree does not follow links that it contains.
    bench.ok(&["mkdir", "disk.img:/t"]);
    bench.ok(&["ln", "-s", outside.to_str().expect("path"), "disk.img:/t/sub"]);
    fs::create_dir(bench.path("back")).expect("directory");
    symlink(&outside, bench.path("back/sub")).expect("link");
    bench.ok(&["mkdir", "disk.img:/u", "disk.img:/u/sub"]);
    bench.ok(&["cp", "tree/bin/tool", "disk.img:/u/sub/tool"]);
    bench.fails(1, &["cp", "-r", "disk.img:/u/.", "back"]);
    assert_eq!(fs::read_dir(&outside).expect("directory").count(), 0);
}

#[test]
fn a_file_of_a_disk_goes_through_a_pipe_into_the_same_disk() {
    let Some(bench) = Bench::new() else { return };
    let extant = env!("CARGO_BIN_EXE_extant");
    // More than stays in memory.
    fs::write(bench.path("large"), vec![b'a'; 20 << 20]).expect("file");
    bench.mke2fs("large.img", "64M", &[]);
    bench.ok(&["cp", "large", "large.img:/a"]);
    for (image, from, to) in [(DISK, "/etc/hostname", "/etc/hostname.new"), ("large.img", "/a", "/b")] {
        // The writer is there before the reader opens the disk.
        let pipeline = format!(
            "(sleep 1; {extant} cp --wait 3 {image}:{from} -) | tr a-y b-z | {extant} cp --wait 3 - {image}:{to}"
        );
        bench.shell(&pipeline);
        let expected = bench.run(&["cat", &format!("{image}:{from}")]).stdout;
        let expected: Vec<u8> =
            expected.iter().map(|byte| if (b'a'..=b'y').contains(byte) { byte + 1 } else { *byte }).collect();
        assert!(bench.run(&["cat", &format!("{image}:{to}")]).stdout == expected, "{image}");
        bench.assert_clean(image);
    }
}
