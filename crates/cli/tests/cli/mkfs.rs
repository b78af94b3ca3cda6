//! `mkfs`: sizes, letters, content, and the same bytes twice.

use crate::common::{Bench, bytes, has_tools, is_root, tool};

const TREE: &str = r#"
mkdir tree; cd tree
mkdir -p dir/deep many
printf hello > dir/small; : > dir/nothing
head -c 3000001 /dev/zero | tr '\0' x > dir/large
ln dir/small dir/hard; ln -s ../small dir/deep/link
ln -s "$(head -c 200 /dev/zero | tr '\0' l)" longlink
truncate -s 20000000 sparse; printf middle | dd of=sparse bs=1 seek=8000000 conv=notrunc 2>/dev/null
mkfifo pipe; chmod 4755 dir/small
for i in $(seq 600); do echo $i > many/file-number-$i; done
touch -d '2026-01-02 03:04:05.123456789 UTC' dir/large; touch -d '2010-01-01 UTC' dir many .
"#;

const ROOT_TREE: &str = r#"
cd tree; mknod null c 1 3; mknod disk b 259 1000; chown 1234:5678 dir/large
setfattr -n user.note -v 'a=b' dir/large; setfattr -n user.big -v "$(head -c 2000 /dev/zero | tr '\0' v)" dir/small
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 dir/small
setfacl -m u:7:r--,g:9:rwx dir/large; setfacl -d -m u:7:r-x dir/deep
touch -d '2010-01-01 UTC' dir .
"#;

/// Everything about the files below the current directory, but for the sizes of directories.
const LIST: &str = r"find . -mindepth 1 -not -path './lost+found*' \( -type d -printf '%P %y %m %U %G %n %T@\n' -o \
    -printf '%P %y %m %U %G %s %n %T@ %l\n' \) | sort; getfattr -Rhd -m - . 2>/dev/null | sort";

#[test]
fn sizes_are_spelled_as_mke2fs_spells_them() {
    let bench = Bench::new();
    for (arguments, bytes) in [
        ("mkfs -q 1.img 16M", 16 << 20),
        ("mkfs -q 2.img 16384", 16 << 20),
        ("mkfs -q -b 4096 3.img 4096", 16 << 20),
        ("mkfs -q 4.img 32768s", 16 << 20),
        ("mkfs -q -b 1024 5.img 8m", 8 << 20),
    ] {
        bench.run(arguments);
        let image = arguments.split(' ').find(|word| word.ends_with(".img")).unwrap();
        assert_eq!(std::fs::metadata(bench.path(image)).unwrap().len(), bytes, "{arguments}");
        bench.assert_clean(image);
    }
    bench.shell("truncate -s 24M given.img");
    bench.run("mkfs -q given.img");
    assert_eq!(bench.json("info --json given.img")["size_bytes"], 24 << 20);
}

#[test]
fn letters_mean_what_they_mean_to_mke2fs() {
    let bench = Bench::new();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    bench.run(&format!(
        "mkfs -q -t ext4 -b 2048 -I 512 -N 500 -m 1 -L name -U {uuid} -O ^has_journal,metadata_csum_seed -E root_owner=5:6,lazy_itable_init=0 d.img 32M"
    ));
    let info = bench.json("info --json d.img");
    assert_eq!((&info["label"], &info["uuid"]), (&"name".into(), &uuid.into()));
    assert_eq!((&info["block_size_bytes"], &info["inode_size_bytes"]), (&2048.into(), &512.into()));
    let features: Vec<_> =
        info["features"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(!features.contains(&"has_journal") && features.contains(&"metadata_csum_seed"));
    assert!(bench.run("ls -ld d.img").starts_with("drwxr-xr-x 3 5 6 "));
    bench.assert_clean("d.img");
    bench.run("mkfs -q -J size=8 -T small -i 8192 j.img 64M");
    bench.assert_clean("j.img");
    for (arguments, word) in [
        ("mkfs -O fancy x.img 16M", "'fancy'"),
        ("mkfs -O bigalloc x.img 16M", "'bigalloc'"),
        ("mkfs -E quotatype=usr x.img 16M", "'quotatype'"),
        ("mkfs -J device=/dev/sdb x.img 16M", "'device=/dev/sdb'"),
        ("mkfs -U nonsense x.img 16M", "nonsense"),
        ("mkfs -T nonsense x.img 16M", "nonsense"),
        ("mkfs -t xfs x.img 16M", "xfs"),
        ("mkfs -b 5000 x.img 16M", "5000"),
        ("mkfs x.img 16X", "16X"),
        ("mkfs x.img", "does not exist"),
        ("mkfs --free 1M x.img 16M", "--content"),
    ] {
        let said = bench.fail(2, arguments);
        assert!(said.contains(word) || arguments.contains("--free"), "{arguments}: {said}");
        assert!(!bench.path("x.img").exists(), "{arguments}");
    }
    bench.fail(1, "mkfs x.img 8k");
    assert!(!bench.path("x.img").exists());
}

#[test]
fn what_is_dear_is_overwritten_only_when_forced() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    let before = bytes(bench.path("d.img"));
    assert!(bench.fail(1, "mkfs d.img 16M").contains("-F"));
    let planned = bench.run("mkfs -n d.img 16M");
    assert!(planned.contains("16 MiB") && planned.contains("would"), "{planned}");
    assert!(bytes(bench.path("d.img")) == before);
    bench.run("mkfs -q -F d.img 16M");
    assert!(bytes(bench.path("d.img")) != before);
    let made = bench.run("mkfs -n new.img 16M");
    assert!(made.contains("4096 inodes") || made.contains("inodes"), "{made}");
    assert!(!bench.path("new.img").exists());
}

#[test]
fn content_from_a_directory_is_what_the_kernel_sees() {
    let bench = Bench::new();
    bench.shell(TREE);
    let root = is_root();
    if root && has_tools(&["setfattr", "setfacl"]) {
        bench.shell(ROOT_TREE);
    }
    bench.run("mkfs -q -d tree d.img");
    bench.assert_clean("d.img");
    assert_eq!(bench.run("check d.img"), "d.img: clean\n");
    let (size, free) =
        (std::fs::metadata(bench.path("d.img")).unwrap().len(), bench.json("info --json d.img"));
    let free = free["free_bytes"].as_u64().unwrap();
    assert!(free * 20 < size, "{free} free of {size}: not the smallest");
    bench.run("mkfs -q -d tree --free 32M f.img");
    assert!(bench.json("info --json f.img")["available_bytes"].as_u64() >= Some(32 << 20));
    bench.assert_clean("f.img");
    bench.shell("chmod -R u+rwX tree");
    bench.run("mkfs -q -d tree r.img 64M");
    bench.assert_clean("r.img");
    if !root || !has_tools(&["mount", "umount", "losetup", "getfattr"]) {
        return;
    }
    bench.shell("mkdir mnt; mount -o ro,loop r.img mnt");
    let compare = format!(
        "(cd tree; {LIST}) > before; (cd mnt; {LIST}) > after; diff before after && \
         diff -r --no-dereference -x pipe -x null -x disk -x lost+found tree mnt && test $(du -k mnt/sparse | cut -f1) = 4"
    );
    let compared =
        std::process::Command::new("sh").arg("-c").arg(compare).current_dir(bench.path("")).output();
    bench.shell("umount mnt");
    let compared = compared.unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.shell("tar -C tree -cf t.tar .");
    let make = |arguments: &str| {
        let out = bench.command(arguments).env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    make("mkfs -q -d tree a.img");
    bench.shell("sleep 1; cat tree/dir/large > /dev/null; touch -a tree/dir/large");
    make("mkfs -q -d tree b.img");
    assert!(bytes(bench.path("a.img")) == bytes(bench.path("b.img")), "from a directory");
    make("mkfs -q -d t.tar c.img 64M");
    make("mkfs -q -d t.tar d.img 64M");
    assert!(bytes(bench.path("c.img")) == bytes(bench.path("d.img")), "from an archive");
    assert!(bytes(bench.path("a.img")) != bytes(bench.path("c.img")));
    let newest = bench.json("stat --json a.img:/dir/large");
    assert_eq!(newest["files"][0]["mtime_ns"], 1_700_000_000_000_000_000_u64, "no file is newer");
    bench.write("tree/dir/small", "other");
    make("mkfs -q -U random -d tree e.img");
    bench.assert_clean("e.img");
    let out = bench.command("mkfs -q x.img 16M").env("SOURCE_DATE_EPOCH", "soon").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn archives_fill_disks_from_files_and_pipes() {
    let bench = Bench::new();
    bench.shell(TREE);
    bench.shell("tar --format=posix -S -C tree -cf t.tar .; gzip -k t.tar; zstd -q t.tar");
    for archive in ["t.tar", "t.tar.gz", "t.tar.zst"] {
        bench.run(&format!("mkfs -q -F -d {archive} d.img"));
        bench.assert_clean("d.img");
        assert_eq!(bench.run("cat d.img:/many/file-number-77"), "77\n", "{archive}");
    }
    let out = bench.feed("mkfs -q -d - p.img", &bytes(bench.path("t.tar.gz")));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    bench.assert_clean("p.img");
    bench.shell("test -z \"$(ls -A | grep spool || true)\"");
    for (input, word) in [(&b""[..], "empty"), (b"nonsense", "cut off"), (&[b'x'; 600], "not a tar archive")]
    {
        let out = bench.feed("mkfs -q -d - bad.img", input);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(1) && said.contains(word), "{said}");
        assert!(!bench.path("bad.img").exists(), "nothing is left behind");
    }
    bench.fail(1, "mkfs -q -d nothing x.img");
    bench.fail(1, "mkfs -q -d t.tar x.img 8M");
    assert!(!bench.path("x.img").exists(), "a disk that is too small is not left half full");
}

#[test]
fn an_image_inside_its_content_leaves_itself_out() {
    let bench = Bench::new();
    bench.write("f", "x");
    for _ in 0..2 {
        bench.run("mkfs -q -F -d . disk.img");
        assert_eq!(bench.run("ls disk.img"), "f\nlost+found\n");
        bench.assert_clean("disk.img");
    }
}

#[test]
fn an_ordinary_user_makes_and_edits_disks() {
    if !is_root() || !has_tools(&["setpriv", "tar"]) {
        return;
    }
    let bench = Bench::new();
    bench.shell(TREE);
    bench.shell(ROOT_TREE);
    bench.shell(
        "tar --format=posix --xattrs --xattrs-include=* --acls --numeric-owner -S -C tree -cf t.tar .",
    );
    bench.run("mkfs -q -d t.tar root.img 32M");
    bench.run("export root.img -o root.tar");
    bench.shell("chmod 755 .; mkdir -m 777 w");
    let script = "cd w; E=\"$1\"; cp ../t.tar .; \"$E\" mkfs -q -d t.tar user.img 32M; \"$E\" export user.img -o user.tar; \
                  \"$E\" cp --chown 0:0 --chmod 755 t.tar user.img:/bin-t; \"$E\" check user.img";
    let setpriv = tool("setpriv").unwrap();
    let out = std::process::Command::new(setpriv)
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-ec", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_extant"))
        .current_dir(bench.path(""))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(
        bytes(bench.path("w/user.tar")) == bytes(bench.path("root.tar")),
        "owners, devices and attributes are kept"
    );
    bench.assert_clean("w/user.img");
    bench.run("mkfs -q -d tree --chown 0:0 owned.img");
    assert!(bench.run("ls -l owned.img:/dir/large").contains(" 0 0 "));
}
