//! The verbs on files and names, with right and wrong arguments.

use crate::common::Bench;

fn disk() -> Bench {
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 16M");
    bench
}

#[test]
fn files_go_in_and_come_out() {
    let bench = disk();
    bench.write("a", "hello");
    bench.shell("chmod 640 a; mkdir -p tree/sub; echo x > tree/sub/x; ln -s x tree/sub/l; touch -d 2001-01-01 tree/sub/x");
    bench.run("cp a disk.img:/b");
    bench.run("cp a disk.img:/");
    bench.run("cp -r tree disk.img:/copied");
    bench.run("cp -a tree disk.img:/kept");
    bench.run("cp -a tree/. disk.img:/");
    assert_eq!(bench.run("cat disk.img:/a disk.img:/b disk.img:/sub/x"), "hellohellox\n");
    let stat = bench
        .json("stat --json disk.img:/b disk.img:/copied/sub/x disk.img:/kept/sub/x disk.img:/kept/sub/l");
    let files = stat["files"].as_array().unwrap();
    assert_eq!(
        (&files[0]["mode"], &files[0]["uid"], &files[0]["gid"]),
        (&"0640".into(), &0.into(), &0.into())
    );
    assert!(files[1]["mtime_ns"].as_i64() > Some(1_600_000_000_000_000_000));
    assert!(files[2]["mtime_ns"].as_i64() < Some(1_000_000_000_000_000_000));
    assert_eq!(files[3]["target"], "x");

    bench.run("cp disk.img:/a out");
    bench.run("cp -r disk.img:/copied disk.img:/kept .");
    assert_eq!(
        bench.shell("cat out copied/sub/x kept/sub/l; stat -c %a out; ls -A copied/sub"),
        "hellox\nx\n640\nl\nx\n"
    );
    bench.run("cp -r disk.img:/ everything");
    bench.shell("test -d everything/kept; test ! -e everything/lost+found");
    bench.run("cp -r disk.img:/kept disk.img:/twice");
    bench.run("mkfs -q other.img 16M");
    bench.run("cp -a disk.img:/kept other.img:/");
    assert_eq!(bench.run("cat other.img:/kept/sub/x disk.img:/twice/sub/x"), "x\nx\n");
    bench.assert_clean("disk.img");
    bench.assert_clean("other.img");
}

#[test]
fn copies_that_make_no_sense_are_refused() {
    let bench = disk();
    bench.write("a", "hello");
    bench.shell("mkdir d");
    assert!(bench.fail(2, "cp a b").contains("IMAGE:/PATH"));
    assert!(bench.fail(1, "cp d disk.img:/").contains("-r"));
    assert!(bench.fail(1, "cp nothing disk.img:/").contains("nothing"));
    assert!(bench.fail(1, "cp a disk.img:/no/such/").contains("no such directory"));
    assert!(bench.fail(1, "cp a a disk.img:/x").contains("no such directory"));
    assert!(bench.fail(1, "cp a none.img:/x").contains("none.img"));
    assert!(bench.fail(1, "cp disk.img:/nothing x").contains("disk.img:/nothing"));
    assert!(bench.fail(2, "cp --chown 0:0 disk.img:/lost+found x").contains("--chown"));
    assert!(bench.fail(1, "cp --chown nobody a disk.img:/x").contains("nobody"));
    bench.fail(2, "cp --chmod 9 a disk.img:/x");
    bench.fail(2, "cp a");
    bench.run("mkdir -p disk.img:/d/e");
    assert!(bench.fail(1, "cp -r disk.img:/d disk.img:/d/e").contains("into itself"));
    bench.assert_clean("disk.img");
}

#[test]
fn owners_and_modes_are_set_by_the_disks_own_names() {
    let bench = disk();
    bench.write("passwd", "root:x:0:0::/:/bin/sh\napp:x:500:600::/:/bin/sh\n");
    bench.write("group", "root:x:0:\nstaff:x:700:\n");
    bench.run("mkdir disk.img:/etc");
    bench.run("cp passwd group disk.img:/etc");
    bench.run("cp --chown app:staff --chmod u=rw,go= passwd disk.img:/key");
    assert!(bench.run("ls -l disk.img:/key").starts_with("-rw------- 1 app staff "));
    bench.run("chown app: disk.img:/key");
    bench.run("chmod 4755 disk.img:/key");
    assert!(bench.run("ls -ln disk.img:/key").starts_with("-rwsr-xr-x 1 500 600 "));
    bench.run("chown -R 7:8 disk.img:/etc");
    bench.run("chmod -R go-rX disk.img:/etc");
    assert!(bench.run("ls -ld disk.img:/etc").starts_with("drwx------ 2 7 8 "));
    assert!(bench.run("ls -l disk.img:/etc").lines().all(|line| line.starts_with("-rw------- 1 7 8 ")));
    bench.run("ln -s key disk.img:/link");
    bench.run("chown -h 9 disk.img:/link");
    assert!(bench.run("ls -ln disk.img:/link").starts_with("lrwxrwxrwx 1 9 0 "));
    assert!(bench.fail(1, "chown stranger disk.img:/key").contains("stranger"));
    bench.fail(2, "chown : disk.img:/key");
    bench.fail(2, "chmod u+q disk.img:/key");
    assert!(bench.fail(1, "chmod 600 disk.img:/none").contains("disk.img:/none: no such file or directory"));
    bench.assert_clean("disk.img");
}

#[test]
fn names_are_made_moved_and_removed() {
    let bench = disk();
    bench.write("a", "hello");
    bench.run("mkdir -p disk.img:/x/y/z disk.img:/x");
    bench.run("mkdir -m 1777 disk.img:/tmp");
    assert!(bench.run("ls -ld disk.img:/tmp").starts_with("drwxrwxrwt"));
    assert!(bench.fail(1, "mkdir disk.img:/x").contains("file exists"));
    assert!(bench.fail(1, "mkdir disk.img:/no/such").contains("no such file"));
    bench.run("cp a disk.img:/a");
    bench.run("ln disk.img:/a disk.img:/hard");
    bench.run("ln -s ../a disk.img:/x/soft");
    bench.run("ln -sf /a disk.img:/x/soft");
    assert!(bench.fail(1, "ln -s b disk.img:/x/soft").contains("file exists"));
    assert!(bench.fail(2, "ln a disk.img:/y").contains("on one disk"));
    assert_eq!(bench.run("cat disk.img:/hard disk.img:/x/soft"), "hellohello");
    bench.run("mv disk.img:/a disk.img:/hard disk.img:/x/y");
    bench.run("mv disk.img:/x/y disk.img:/moved");
    assert_eq!(bench.run("ls disk.img:/moved"), "a\nhard\nz\n");
    assert!(bench.fail(1, "mv disk.img:/moved disk.img:/moved/z/in").contains("disk.img:/moved"));
    assert!(bench.fail(1, "mv disk.img:/moved/a disk.img:/moved/a").contains("same file"));
    assert!(bench.fail(2, "mv disk.img:/x other.img:/x").contains("different disks"));
    assert!(bench.fail(1, "rm disk.img:/moved").contains("is a directory"));
    assert!(bench.fail(1, "rm -d disk.img:/moved").contains("not empty"));
    assert!(bench.fail(1, "rm disk.img:/none").contains("no such file"));
    bench.run("rm -f disk.img:/none");
    bench.run("rm -r disk.img:/moved disk.img:/x");
    bench.run("rm -d disk.img:/tmp");
    assert_eq!(bench.run("ls disk.img"), "lost+found\n");
    assert!(bench.fail(2, "rm -r disk.img").contains("whole disk"));
    assert!(bench.fail(2, "rm -r disk.img:/").contains("whole disk"));
    bench.assert_clean("disk.img");
}

#[test]
fn one_failure_does_not_stop_the_others() {
    let bench = disk();
    bench.write("a", "A");
    bench.run("cp a disk.img:/a");
    let out = bench.try_run("cat disk.img:/none disk.img:/a");
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(1), &b"A"[..]));
    bench.fail(1, "rm disk.img:/none disk.img:/a");
    assert_eq!(bench.run("ls disk.img"), "lost+found\n");
}

#[test]
fn an_argument_that_exists_is_local() {
    let bench = disk();
    bench.shell("mkdir 'disk.img:'; echo local > disk.img:/f");
    bench.run("mkdir -p disk.img:/d");
    bench.run("cp disk.img:/f disk.img:/d");
    assert_eq!(bench.run("cat disk.img:/d/f"), "local\n");
}

#[test]
fn strange_names_survive_and_are_escaped_for_programs() {
    let bench = disk();
    bench.shell("mkdir odd; touch \"odd/$(printf 'new\\nline')\" \"odd/$(printf 'no\\377utf8')\"");
    bench.run("cp -r odd disk.img:/");
    let out = bench.try_run("ls disk.img:/odd");
    assert_eq!(out.stdout, b"new\nline\nno\xffutf8\n");
    let listing = bench.json("ls --json disk.img:/odd");
    let entries = listing["listings"][0]["entries"].as_array().unwrap();
    assert_eq!(entries[0]["name"], "new\nline");
    assert_eq!(entries[1]["name_b64"], "bm//dXRmOA==");
    assert!(entries[1].get("name").is_none());
}
