//! Reading verbs: they write no byte, see through a dirty journal, and give documents of a known shape.

use crate::common::{Bench, bytes, has_tools, is_root};
use serde_json::Value;

const READING: [&str; 12] = [
    "ls disk.img",
    "ls -laR disk.img",
    "ls --json disk.img:/dir",
    "cat disk.img:/dir/file",
    "cat --json disk.img:/dir/file",
    "stat disk.img:/dir disk.img:/link",
    "stat --json disk.img:/dir/file",
    "info disk.img",
    "info --json disk.img",
    "check disk.img",
    "check --json disk.img",
    "export disk.img -o out.tar",
];

fn disk() -> Bench {
    let bench = Bench::new();
    bench.shell("mkdir -p tree/dir; echo content > tree/dir/file; ln -s dir tree/link; mkfifo tree/pipe");
    bench.run("mkfs -q -L box -d tree disk.img 16M");
    bench
}

#[test]
fn nothing_is_written() {
    let bench = disk();
    let before = bytes(bench.path("disk.img"));
    for arguments in READING {
        bench.run(arguments);
        assert!(bytes(bench.path("disk.img")) == before, "{arguments}");
    }
    bench.shell("chmod 444 disk.img");
    bench.run("cat disk.img:/dir/file");
}

/// The kernel makes the dirty disk: a copy taken while it is mounted.
#[test]
fn a_dirty_journal_is_replayed_in_memory_only() {
    if !is_root() || !has_tools(&["mount", "umount", "losetup"]) {
        return;
    }
    let bench = disk();
    bench.shell(
        "mkdir mnt; mount -o loop disk.img mnt; echo late > mnt/late; sync mnt/late mnt; cp disk.img dirty.img; umount mnt",
    );
    let before = bytes(bench.path("dirty.img"));
    assert_eq!(bench.run("cat dirty.img:/late"), "late\n");
    assert!(bench.json("info --json dirty.img")["journal_replay_blocks"].as_u64() > Some(0));
    assert_eq!(bench.run("check dirty.img"), "dirty.img: clean\n");
    assert!(!bench.run("ls --norecovery dirty.img").contains("late"));
    assert!(bytes(bench.path("dirty.img")) == before);

    let out = bench.try_run("mkdir dirty.img:/new");
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("dirty.img: replayed the journal"),
        "writing says so"
    );
    bench.assert_clean("dirty.img");
    assert_eq!(bench.run("ls dirty.img"), "dir\nlate\nlink\nlost+found\nnew\npipe\n");

    bench.write("dirty.img", &before);
    assert!(bench.try_run("replay dirty.img").status.success());
    bench.assert_clean("dirty.img");
    assert!(bench.json("info --json dirty.img")["is_clean"].as_bool().unwrap());
}

#[test]
fn listings_and_files_have_their_shape() {
    let bench = disk();
    let listing = bench.json("ls --json disk.img");
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
    let cat = bench.json("cat --json disk.img:/dir/file");
    assert_eq!(
        (&cat["files"][0]["content"], &cat["files"][0]["size_bytes"]),
        (&"content\n".into(), &8.into())
    );
    let stat = bench.json("stat --json disk.img:/dir/file");
    assert_eq!(stat["files"][0]["xattrs"], Value::Array(Vec::new()));
    let info = bench.json("info --json disk.img");
    assert_eq!((&info["label"], &info["size_bytes"]), (&"box".into(), &(16 << 20).into()));
    for key in ["free_bytes", "available_bytes", "usable_bytes", "blocks", "inodes", "free_inodes", "made_s"]
    {
        assert!(info[key].is_u64(), "{key}");
    }
    let export = bench.json("export --json disk.img -o out.tar");
    assert_eq!((&export["entries"], &export["content_bytes"]), (&5.into(), &8.into()));
    let check = bench.json("check --json disk.img");
    assert_eq!((&check["is_clean"], check["findings"].as_array().unwrap().len()), (&true.into(), 0));
}

#[test]
fn failures_are_documents_with_json() {
    let bench = disk();
    let said = bench.fail(1, "cat --json disk.img:/none");
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["error"]["kind"], "not_found");
    assert_eq!(document["error"]["where"], "disk.img:/none");
    assert_eq!(document["error"]["message"], "no such file or directory");
    let said = bench.fail(2, "ls --json --nonsense disk.img");
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["error"]["kind"], "usage");
    let said = bench.fail(1, "info --json none.img");
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["error"]["where"], "none.img");
}

#[test]
fn check_exits_as_fsck_does() {
    let bench = disk();
    bench.fail(16, "check");
    bench.fail(16, "check --nonsense disk.img");
    bench.fail(8, "check none.img");
    bench.write("zero.img", vec![0; 1 << 20]);
    bench.fail(8, "check zero.img");
    // The free block count of the first group, which nothing else agrees with.
    let mut damaged = bytes(bench.path("disk.img"));
    let bitmap = u32::from_le_bytes(damaged[4096..4100].try_into().unwrap()) as usize * 4096;
    damaged[bitmap] ^= 0x10;
    bench.write("damaged.img", &damaged);
    let out = bench.try_run("check damaged.img");
    assert_eq!(out.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("damaged.img: group 0, block bitmap"));
    let out = bench.try_run("check --json damaged.img");
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(document["is_clean"], false);
    assert_eq!(document["findings"][0]["group"], 0);
    assert!(document["findings"][0]["what"].is_string());
    let mut headless = bytes(bench.path("disk.img"));
    headless[1024 + 4] ^= 1;
    bench.write("headless.img", &headless);
    assert_eq!(bench.try_run("check headless.img").status.code(), Some(4));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure_to_tell_of() {
    let bench = disk();
    bench.shell("head -c 4000000 /dev/zero > big");
    bench.run("cp big disk.img:/big");
    let image = bench.path("disk.img");
    let script = format!(
        "'{}' cat {}:/big 2>err | head -c 1; test ! -s err",
        env!("CARGO_BIN_EXE_extant"),
        image.display()
    );
    bench.shell(&script);
}

#[test]
fn help_has_examples_and_succeeds() {
    let bench = Bench::new();
    for verb in [
        "mkfs", "import", "export", "cp", "ls", "cat", "stat", "rm", "mkdir", "mv", "ln", "chmod", "chown",
        "info", "check", "replay",
    ] {
        let help = bench.run(&format!("{verb} --help"));
        assert!(help.contains("Examples:") && help.contains(&format!("extant {verb}")), "{verb}");
    }
    bench.fail(2, "");
    bench.fail(2, "frobnicate disk.img");
    assert!(bench.run("--version").starts_with("extant "));
}
