//! Disks filled from trees and archives: what goes in is what the kernel and `tar` see, and the same bytes twice.

use serde_json::Value;

use super::bench::{Bench, is_root, tool};

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
pub const LIST: &str = r"find . -mindepth 1 -not -path './lost+found*' \( -type d -printf '%P %y %m %U %G %n %T@\n' -o \
    -printf '%P %y %m %U %G %s %n %T@ %l\n' \) | sort; getfattr -Rhd -m - . 2>/dev/null | sort";

/// A bench with the tree, made richer by root; none if programs are missing.
fn tree() -> Option<Bench> {
    tool("e2fsck").and(tool("tar")).and(tool("gzip"))?;
    let bench = Bench::empty();
    bench.shell(TREE);
    if is_rich() {
        bench.shell(ROOT_TREE);
    }
    Some(bench)
}

fn is_rich() -> bool {
    is_root() && tool("setfattr").and(tool("setfacl")).is_some()
}

const PACK: &str =
    "tar --format=posix --xattrs --xattrs-include=* --acls --numeric-owner -S -C tree -cf t.tar .";

#[test]
fn a_tree_is_read_with_few_descriptors() {
    if tool("e2fsck").is_none() {
        return;
    }
    let bench = Bench::empty();
    bench.shell("for i in $(seq 8); do for j in $(seq 8); do mkdir -p wide/$i/$j; for k in $(seq 8); do echo $i$j$k > wide/$i/$j/$k; done; done; done");
    // Too few for the threads that list it.
    bench.shell(&format!("ulimit -n 10; {} mkfs -q -d wide d.img", env!("CARGO_BIN_EXE_extant")));
    bench.assert_clean("d.img");
    assert_eq!(bench.content("d.img", "/8/5/2"), b"852\n");
}

#[test]
fn a_tree_has_the_owners_and_the_types_that_fakeroot_shows() {
    if tool("fakeroot").and(tool("e2fsck")).is_none() {
        return;
    }
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/dir; echo x > tree/file; ln -s file tree/link");
    let make = "chown 7:8 tree/dir; chown 123:456 tree/file; chmod 4755 tree/file; chown -h 77:88 tree/link; mknod tree/null c 1 3";
    let extant = env!("CARGO_BIN_EXE_extant");
    bench.shell(&format!(
        "fakeroot sh -c '{make}; {extant} mkfs -q -d tree d.img; {extant} mkfs -q --from d.img -d tree e.img'"
    ));
    for image in ["d.img", "e.img"] {
        bench.assert_clean(image);
        let field = |path, name| bench.field(image, path, name);
        assert_eq!([field("/dir", "User:"), field("/dir", "Group:")], ["7", "8"], "{image}");
        assert_eq!([field("/file", "User:"), field("/file", "Mode:")], ["123", "04755"], "{image}");
        assert_eq!([field("/link", "User:"), field("/link", "Group:")], ["77", "88"], "{image}");
        assert_eq!(field("/null", "Type:"), "character", "{image}");
    }
}

#[test]
fn content_from_a_directory_is_what_the_kernel_sees() {
    let Some(bench) = tree() else { return };
    bench.words("mkfs -q -d tree d.img");
    bench.assert_clean("d.img");
    assert_eq!(bench.words("check d.img"), "d.img: clean\n");
    let (size, free) =
        (std::fs::metadata(bench.path("d.img")).unwrap().len(), bench.document("info --json d.img"));
    let free = free["free_bytes"].as_u64().unwrap();
    assert!(free * 20 < size, "{free} free of {size}: not the smallest");
    bench.words("mkfs -q -d tree --free 32M f.img");
    assert!(bench.document("info --json f.img")["available_bytes"].as_u64() >= Some(32 << 20));
    bench.assert_clean("f.img");
    bench.shell("chmod -R u+rwX tree");
    bench.words("mkfs -q -d tree r.img 64M");
    bench.assert_clean("r.img");
    if !is_root() || tool("getfattr").is_none() {
        println!("skipped: not root");
        return;
    }
    bench.shell("mkdir mnt");
    let mount = bench.finish(bench.command("mount").args(["-o", "ro,loop", "r.img", "mnt"]), b"");
    if mount.status != 0 {
        println!("skipped: {}", mount.err);
        return;
    }
    let compare = format!(
        "(cd tree; {LIST}) > before; (cd mnt; {LIST}) > after; diff before after && \
         diff -r --no-dereference -x pipe -x null -x disk -x lost+found tree mnt && test $(du -k mnt/sparse | cut -f1) = 4"
    );
    let compared = bench.finish(bench.command("sh").args(["-c", &compare]), b"");
    bench.shell("umount mnt");
    assert_eq!(compared.status, 0, "{}{}", compared.out, compared.err);
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    let Some(bench) = tree() else { return };
    bench.shell("tar -C tree -cf t.tar .");
    let make = |arguments: &str| {
        let mut command = bench.extant();
        command.args(arguments.split(' ')).env("SOURCE_DATE_EPOCH", "1700000000");
        let run = bench.finish(&mut command, b"");
        assert_eq!((run.status, run.err.as_str()), (0, ""));
    };
    make("mkfs -q -d tree a.img");
    bench.shell("sleep 1; cat tree/dir/large > /dev/null; touch -a tree/dir/large");
    make("mkfs -q -d tree b.img");
    assert!(bench.bytes("a.img") == bench.bytes("b.img"), "from a directory");
    make("mkfs -q -d t.tar c.img 64M");
    make("mkfs -q -d t.tar d.img 64M");
    assert!(bench.bytes("c.img") == bench.bytes("d.img"), "from an archive");
    assert!(bench.bytes("a.img") != bench.bytes("c.img"));
    let newest = bench.document("stat --json a.img:/dir/large");
    assert_eq!(newest["files"][0]["mtime_ns"], 1_700_000_000_000_000_000_u64, "no file is newer");
    std::fs::write(bench.path("tree/dir/small"), "other").expect("file");
    make("mkfs -q -U random -d tree e.img");
    bench.assert_clean("e.img");
}

#[test]
fn image_inside_its_content_leaves_itself_out() {
    let bench = Bench::empty();
    std::fs::write(bench.path("f"), "x").expect("file");
    for _ in 0..2 {
        bench.words("mkfs -q -F -d . disk.img");
        assert_eq!(bench.words("ls disk.img"), "f\nlost+found\n");
        bench.assert_clean("disk.img");
    }
}

#[test]
fn archives_fill_disks_from_files_and_pipes() {
    let Some(bench) = tree() else { return };
    bench.shell("tar --format=posix -S -C tree -cf t.tar .; gzip -k t.tar");
    let mut archives = vec!["t.tar", "t.tar.gz"];
    if tool("zstd").is_some() {
        bench.shell("zstd -q t.tar");
        archives.push("t.tar.zst");
    }
    for archive in archives {
        bench.words(&format!("mkfs -q -F -d {archive} d.img"));
        bench.assert_clean("d.img");
        assert_eq!(bench.words("cat d.img:/many/file-number-77"), "77\n", "{archive}");
    }
    let feed = |image: &str, input: &[u8]| {
        bench.finish(bench.extant().args(["mkfs", "-q", "-d", "-", image]), input)
    };
    let run = feed("p.img", &bench.bytes("t.tar.gz"));
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    bench.assert_clean("p.img");
    let names =
        std::fs::read_dir(bench.dir()).expect("directory").map(|entry| entry.expect("entry").file_name());
    assert_eq!(
        names
            .filter(|name| !["tree", "d.img", "p.img"].iter().any(|n| name == n)
                && !name.to_string_lossy().starts_with("t.tar"))
            .count(),
        0
    );
    for (input, word) in [(&b""[..], "empty"), (b"nonsense", "cut off"), (&[b'x'; 600], "not a tar archive")]
    {
        let run = feed("bad.img", input);
        assert!(run.status == 1 && run.err.contains(word), "{}", run.err);
        assert!(!bench.path("bad.img").exists(), "nothing is left behind");
    }
    bench.fails(1, &["mkfs", "-q", "-d", "t.tar", "x.img", "8M"]);
    assert!(!bench.path("x.img").exists(), "a disk that is too small is not left half full");
}

#[test]
fn what_an_ordinary_user_builds_is_what_root_builds() {
    let (Some(bench), Some(setpriv)) = (tree(), tool("setpriv")) else { return };
    if !is_rich() {
        println!("skipped: not root");
        return;
    }
    bench.shell(PACK);
    bench.words("mkfs -q -d t.tar root.img 32M");
    bench.words("export root.img -o root.tar");
    bench.shell("chmod 755 .; mkdir -m 777 w");
    bench.install();
    let script = "cd w; cp ../t.tar .; ../extant mkfs -q -d t.tar user.img 32M; ../extant export user.img -o user.tar; \
                  ../extant cp --chown 0:0 --chmod 755 t.tar user.img:/bin-t; ../extant check user.img";
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-ec", script];
    let run = bench.finish(bench.command(setpriv).args(user), b"");
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(bench.bytes("w/user.tar") == bench.bytes("root.tar"), "owners, devices and attributes are kept");
    bench.assert_clean("w/user.img");
    bench.words("mkfs -q -d tree --chown 0:0 owned.img");
    assert!(bench.words("ls -ln owned.img:/dir/large").contains(" 0 0 "));
}

#[test]
fn disk_packed_is_the_tree_unpacked() {
    let Some(bench) = tree() else { return };
    bench.shell(PACK);
    bench.words("mkfs -q disk.img 32M");
    bench.words("import disk.img t.tar");
    bench.assert_clean("disk.img");
    bench.words("export disk.img -o out.tar");
    let said = bench.shell("tar --xattrs --acls --numeric-owner -S -C tree -df out.tar 2>&1 || true");
    assert_eq!(said, "", "tar --compare");
    let names = |archive: &str| bench.shell(&format!("tar -tf {archive} | sed 's,^\\./,,' | sort"));
    assert_eq!(names("t.tar"), names("out.tar").replace("./\n", "\n"));
    let large = "3,000,001 bytes, beside which the 20,000,000 of the sparse file are nothing";
    assert!(bench.bytes("out.tar").len() < 4_500_000, "{large}");
    bench.words("mkfs -q again.img 32M");
    bench.words("import again.img out.tar");
    bench.words("export again.img -o again.tar");
    assert!(bench.bytes("again.tar") == bench.bytes("out.tar"));
}

#[test]
fn listings_and_files_have_their_shape() {
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/dir; echo content > tree/dir/file; ln -s dir tree/link; mkfifo tree/pipe");
    bench.words("mkfs -q -L box -d tree disk.img 16M");
    let listing = bench.document("ls --json disk.img");
    let entries = listing["listings"][0]["entries"].as_array().unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dir", "link", "lost+found", "pipe"]);
    let kinds: Vec<_> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["directory", "symlink", "directory", "fifo"]);
    for entry in entries {
        for key in [
            "inode",
            "links",
            "uid",
            "gid",
            "size_bytes",
            "allocated_bytes",
            "mtime_ns",
            "atime_ns",
            "ctime_ns",
        ] {
            assert!(entry[key].is_u64(), "{key}: {entry}");
        }
        assert_eq!(entry["mode"].as_str().unwrap().len(), 4);
    }
    assert_eq!(entries[1]["target"], "dir");
    let cat = bench.document("cat --json disk.img:/dir/file");
    assert_eq!(
        (&cat["files"][0]["content"], &cat["files"][0]["size_bytes"]),
        (&"content\n".into(), &8.into())
    );
    let stat = bench.document("stat --json disk.img:/dir/file");
    assert_eq!(stat["files"][0]["xattrs"], Value::Array(Vec::new()));
    let info = bench.document("info --json disk.img");
    assert_eq!((&info["label"], &info["size_bytes"]), (&"box".into(), &(16 << 20).into()));
    for key in ["free_bytes", "available_bytes", "usable_bytes", "blocks", "inodes", "free_inodes", "made_s"]
    {
        assert!(info[key].is_u64(), "{key}");
    }
    let export = bench.document("export --json disk.img -o out.tar");
    assert_eq!((&export["entries"], &export["content_bytes"]), (&5.into(), &8.into()));
    let check = bench.document("check --json disk.img");
    assert_eq!((&check["is_clean"], check["findings"].as_array().unwrap().len()), (&true.into(), 0));
}

#[test]
fn check_exits_as_fsck_does() {
    let bench = Bench::empty();
    bench.words("mkfs -q disk.img 16M");
    // A bit of the first group's block bitmap, with which nothing else agrees.
    let mut damaged = bench.bytes("disk.img");
    let bitmap = u32::from_le_bytes(damaged[4096..4100].try_into().expect("four bytes")) as usize * 4096;
    damaged[bitmap] ^= 0x10;
    std::fs::write(bench.path("damaged.img"), &damaged).expect("image");
    let run = bench.finish(bench.extant().args(["check", "damaged.img"]), b"");
    assert!(run.status == 4 && run.out.starts_with("damaged.img: group 0, block bitmap"), "{}", run.out);
    let run = bench.finish(bench.extant().args(["check", "--json", "damaged.img"]), b"");
    assert_eq!((run.status, run.json()["findings"][0]["group"].as_u64()), (4, Some(0)));
}
