//! `import` and `export` against GNU tar.

use crate::common::{Bench, bytes, has_tools, is_root};

const TREE: &str = r#"
mkdir tree; cd tree; mkdir -p usr/bin etc
echo bin > usr/bin/tool; ln -s usr/bin bin; ln usr/bin/tool usr/bin/again; mkfifo pipe
truncate -s 3000000 hole; printf x >> hole
touch -d '2020-02-02 02:02:02.020202020 UTC' usr/bin/tool
"#;

#[test]
fn a_disk_packed_is_the_tree_unpacked() {
    if !has_tools(&["tar"]) {
        return;
    }
    let bench = Bench::new();
    bench.shell(TREE);
    if is_root() && has_tools(&["setfattr", "setfacl"]) {
        bench.shell(
            "cd tree; mknod null c 1 3; chown 12:34 etc; setfattr -n user.k -v v etc; setfacl -m u:5:rwx usr/bin/tool; \
             setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 hole",
        );
    }
    bench.shell(
        "tar --format=posix --xattrs --xattrs-include=* --acls --numeric-owner -S -C tree -cf t.tar .",
    );
    bench.run("mkfs -q disk.img 16M");
    bench.run("import disk.img t.tar");
    bench.assert_clean("disk.img");
    bench.run("export disk.img -o out.tar");
    let said = bench.shell("tar --xattrs --acls --numeric-owner -S -C tree -df out.tar 2>&1 || true");
    assert_eq!(said, "", "tar --compare");
    let names = |archive: &str| bench.shell(&format!("tar -tf {archive} | sed 's,^\\./,,' | sort"));
    assert_eq!(names("t.tar"), names("out.tar").replace("./\n", "\n"));
    assert!(std::fs::metadata(bench.path("out.tar")).unwrap().len() < 100_000, "holes are not packed");
    bench.run("mkfs -q again.img 16M");
    bench.run("import again.img out.tar");
    bench.run("export again.img -o again.tar");
    assert!(bytes(bench.path("again.tar")) == bytes(bench.path("out.tar")));
}

#[test]
fn directories_on_a_disk_are_targets_and_sources() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.shell("tar -C tree -cf t.tar usr bin etc; gzip -k t.tar");
    bench.run("mkfs -q disk.img 16M");
    bench.run("mkdir disk.img:/srv");
    bench.run("import disk.img:/srv t.tar.gz");
    assert_eq!(bench.run("cat disk.img:/srv/bin/tool"), "bin\n");
    let out = bench.try_run("export disk.img:/srv/usr");
    bench.write("usr.tar", out.stdout);
    assert_eq!(bench.shell("tar -tf usr.tar"), "./\nbin/\nbin/again\nbin/tool\n");
    let out = bench.feed("import disk.img:/srv -", &bytes(bench.path("t.tar")));
    assert!(out.status.success());
    bench.assert_clean("disk.img");
}

#[test]
fn what_cannot_be_unpacked_is_told_and_leaves_a_clean_disk() {
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 16M");
    bench.write("f", "x");
    bench.shell("tar -cPf up.tar --transform='s,^,../,' f; head -c 700 up.tar > cut.tar; xz -k up.tar 2>/dev/null || true");
    assert!(bench.fail(1, "import disk.img up.tar").contains("unsafe name"));
    bench.fail(1, "import disk.img cut.tar");
    assert!(bench.fail(1, "import disk.img f").contains("f: "));
    assert!(bench.fail(1, "import disk.img none.tar").contains("none.tar"));
    assert!(bench.fail(1, "import disk.img:/none up.tar").contains("disk.img:/none"));
    assert!(bench.fail(1, "export disk.img:/none -o x.tar").contains("disk.img:/none"));
    if bench.path("up.tar.xz").exists() {
        assert!(bench.fail(1, "import disk.img up.tar.xz").contains("xz -dc"));
    }
    bench.shell("head -c 20000000 /dev/zero > big; tar -cf big.tar big");
    assert!(bench.fail(1, "import disk.img big.tar").contains("no space left"));
    bench.assert_clean("disk.img");
    assert!(bench.fail(2, "export --json disk.img").contains("-o"));
    bench.fail(2, "import disk.img");
}
