//! Owners, devices and labels that the host has not. The judges are the kernel, `setfiles` and `fsverity`.

use std::fs;

use super::bench::{Bench, DISK, is_root, tool};

/// Owners, modes, attributes of all files below a directory.
const LISTING: &str = "find . -path ./lost+found -prune -o -printf '%P %y %m %U %G\\n' | sort
    find . -path ./lost+found -prune -o -print0 | sort -z | xargs -0 getfattr -hd -m - -e hex";

/// Whether disks can be mounted by the kernel.
fn can_mount(tools: &[&str]) -> bool {
    let has_tools = tools.iter().all(|name| tool(name).is_some());
    let can = is_root() && fs::exists("/dev/loop-control").unwrap_or(false);
    if !can {
        println!("skipped: mounting needs root and loop devices");
    }
    has_tools && can
}

/// What a shell script says in the root directory of a disk that the kernel mounted.
fn mounted(bench: &Bench, image: &str, script: &str) -> String {
    fs::create_dir_all(bench.path("mnt")).expect("directory");
    bench.program("mount", &["-o", "loop,ro", image, "mnt"]);
    let run = bench.finish(bench.command("sh").args(["-ec", &format!("cd mnt\n{script}")]), b"");
    extant_testing::unmount(&bench.path("mnt"));
    assert_eq!(run.status, 0, "{script}\n{}", run.err);
    run.out
}

/// A tree as a container's build leaves it, and what the kernel shows of it in the user namespace of the container.
#[test]
fn owners_are_mapped_as_the_kernel_shows_them_in_a_user_namespace() {
    if !can_mount(&["setfacl", "setcap", "getfattr", "unshare", "nsenter", "tar"]) {
        return;
    }
    let bench = Bench::empty();
    bench.shell(
        "mkdir -p tree/bin tree/srv; cp /bin/true tree/bin/ping; cp /bin/true tree/bin/own; echo text >tree/srv/text
        ln -s text tree/srv/link; ln tree/srv/text tree/srv/hard; mkfifo tree/srv/pipe
        chown -hR 100000:200000 tree; chown 165535:200007 tree/srv/text; chown -h 3000:200001 tree/srv/link
        setfacl -m u:100009:r,g:200001:rw tree/srv/text; setfacl -m d:u:3000:rwx tree/srv
        setcap -n 100000 cap_net_raw+ep tree/bin/ping; setcap -n 100005 cap_chown+ei tree/bin/own
        chmod u+s tree/bin/ping",
    );
    let expected = bench.shell(&format!(
        "unshare -U sleep 60 & child=$!
        trap 'kill $child' EXIT
        until [ \"$(readlink /proc/$child/ns/user)\" != \"$(readlink /proc/self/ns/user)\" ]; do sleep 0.01; done
        printf '0 100000 65536\\n70000 3000 1\\n' >/proc/$child/uid_map; echo 0 200000 65536 >/proc/$child/gid_map
        cd tree; nsenter -U -t $child --preserve-credentials sh -ec \"{}\"",
        LISTING.replace('\\', "\\\\")
    ));
    assert!(expected.contains("70000") && expected.contains("security.capability"), "{expected}");
    let maps = "--uid-map 0:100000:65536 --uid-map 70000:3000 --gid-map 0:200000:65536";
    bench.words(&format!("mkfs -q -d tree {maps} --free 4M {DISK}"));
    bench.assert_clean(DISK);
    assert_eq!(mounted(&bench, DISK, LISTING), expected);
    bench.shell("tar --xattrs --xattrs-include='*' --acls --numeric-owner -C tree -cf tree.tar .");
    bench.words("mkfs -q other.img 16M");
    bench.words(&format!("import {maps} other.img tree.tar"));
    bench.assert_clean("other.img");
    assert_eq!(mounted(&bench, "other.img", LISTING), expected);
    // An id that is in no range: of a user, of a group, in a list, of a capability.
    for (options, place, id) in [
        ("--uid-map 0:100000:65535 --uid-map 70000:3000", "/srv/hard", "its user, 165535"),
        ("--gid-map 0:200000:7", "/srv/hard", "its group, 200007"),
        ("--uid-map 1:100000:6 --uid-map 8:165535 --uid-map 70000:3000", "/srv/hard", "list, 100009"),
        ("--uid-map 1:100000:5 --uid-map 8:165535 --uid-map 70000:3000", "/bin/own", "capabilities, 100005"),
    ] {
        let words = format!("mkfs -q -F -d tree {options} refused.img");
        let said = bench.fails(1, &words.split(' ').collect::<Vec<_>>());
        assert!(said.contains(&format!("tree:{place}: ")) && said.contains(id), "{options}: {said}");
        assert!(!bench.path("refused.img").exists());
    }
}

#[test]
fn maps_that_cannot_be_meant_are_refused() {
    let bench = Bench::empty();
    fs::create_dir(bench.path("tree")).expect("directory");
    for options in [
        "--uid-map 0:1000:10 --uid-map 5:2000:10",
        "--gid-map 0:1000:10 --gid-map 50:1009",
        "--uid-map 0",
        "--uid-map 0:0:4294967295 --chown 0:0",
    ] {
        let words = format!("mkfs -d tree {options} {DISK}");
        bench.fails(2, &words.split(' ').collect::<Vec<_>>());
    }
    bench.fails(2, &["mkfs", "--uid-map", "0:1:1", DISK, "8M"]);
    assert!(!bench.path(DISK).exists());
}

const TABLE: &str = "# name type mode uid gid major minor start inc count
/dev d 755 0 0 - - - - -
/dev/console c 600 0 5 5 1 - - -   # the first
/dev/sda b 640 0 6 8 0 0 0 0

/dev/ttyS c 660 0 20 4 64 0 1 4
/dev/initctl p 600 3 4
/bin/tool f 4755 7 8
/etc d 700 9 10 - - - - -
";

/// A tree with a file and a directory of a table.
fn table_bench(table: &str) -> Bench {
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/bin tree/etc; echo tool >tree/bin/tool; echo text >tree/etc/text");
    fs::write(bench.path("table"), table).expect("table");
    bench
}

/// What `debugfs` says of files.
fn told(bench: &Bench, image: &str, paths: &[&str]) -> Vec<String> {
    let stat = |path: &&str| {
        let said = bench.debugfs(image, &format!("stat {path}"));
        let fields = ["Type: ", "Mode: ", "User: ", "Group: ", "major/minor number: "];
        let field = |name: &&str| {
            let after = said.split_once(*name).map_or("none", |(_, after)| after.trim_start());
            after.split_whitespace().next().unwrap_or_default().to_owned()
        };
        format!("{path} {}", fields.iter().map(field).collect::<Vec<_>>().join(" "))
    };
    paths.iter().map(stat).collect()
}

#[test]
fn a_device_table_gives_the_disk_that_genext2fs_makes() {
    if tool("debugfs").and(tool("e2fsck")).and(tool("genext2fs")).is_none() {
        return;
    }
    let bench = table_bench(TABLE);
    bench.program("genext2fs", &["-b", "2048", "-d", "tree", "-D", "table", "expected.img"]);
    bench.words(&format!("mkfs -q -d tree --device-table table {DISK}"));
    bench.assert_clean(DISK);
    let paths = [
        "/dev",
        "/dev/console",
        "/dev/sda",
        "/dev/ttyS",
        "/dev/ttyS0",
        "/dev/ttyS3",
        "/dev/ttyS4",
        "/dev/initctl",
        "/bin/tool",
        "/etc",
    ];
    let expected = told(&bench, "expected.img", &paths);
    assert!(expected[1].ends_with("05:01"), "{expected:?}");
    assert_eq!(told(&bench, DISK, &paths), expected);
}

#[test]
fn a_device_table_alone_makes_a_disk_and_the_same_one_each_time() {
    if tool("debugfs").and(tool("e2fsck")).is_none() {
        return;
    }
    let bench = table_bench("/dev/pts d 755 0 0\n/dev/null c 666 0 0 1 3\n/dev/hda b 640 0 6 3 1 1 2 3\n");
    let make = |image: &str| {
        let mut command = bench.extant();
        command.env("SOURCE_DATE_EPOCH", "1000000000").args(["mkfs", "-q", "--device-table", "table", image]);
        let run = bench.finish(&mut command, b"");
        assert_eq!(run.status, 0, "{}", run.err);
    };
    make(DISK);
    make("second.img");
    assert_eq!(bench.bytes(DISK), bench.bytes("second.img"));
    bench.assert_clean(DISK);
    let paths = ["/dev", "/dev/pts", "/dev/null", "/dev/hda1", "/dev/hda3", "/dev/hda4"];
    let expected = [
        "/dev directory 0755 0 0 none",
        "/dev/pts directory 0755 0 0 none",
        "/dev/null character 0666 0 0 01:03",
        "/dev/hda1 block 0640 0 6 03:01",
        "/dev/hda3 block 0640 0 6 03:05",
        "/dev/hda4 none none none none none",
    ];
    assert_eq!(told(&bench, DISK, &paths), expected);
    assert_eq!(bench.field(DISK, "/dev/null", "mtime: "), bench.field(DISK, "/dev", "ctime: "));
    bench.words("mkfs -q --device-table table sized.img 8M");
    assert_eq!(told(&bench, "sized.img", &paths), expected);
}

#[test]
fn names_in_a_device_table_are_those_of_the_tree() {
    let Some(_) = tool("debugfs") else { return };
    let bench = table_bench(
        "/bin/tool f 755 web www\n/etc r -1 web 5\n/etc/text f 600 0 www\n |xattr cap_net_raw+ep\n",
    );
    bench.shell("echo web:x:33:34::/:/bin/sh >tree/etc/passwd; echo www:x:35: >tree/etc/group; chmod 640 tree/etc/group");
    bench.shell("tar -C tree -cf tree.tar .");
    for content in ["tree", "tree.tar"] {
        bench.words(&format!("mkfs -q -F -d {content} --device-table table {DISK}"));
        let expected = [
            "/bin/tool regular 0755 33 35 none",
            "/etc directory 0755 33 5 none",
            "/etc/group regular 0640 33 5 none",
            "/etc/text regular 0600 0 35 none",
        ];
        assert_eq!(
            told(&bench, DISK, &["/bin/tool", "/etc", "/etc/group", "/etc/text"]),
            expected,
            "{content}"
        );
        let said = bench.debugfs(DISK, "ea_get -x /etc/text security.capability");
        assert!(said.contains("01 00 00 02 00 20 00 00 00 00 00 00 00 00 00 00 00 00 00 00"), "{said}");
    }
}

#[test]
fn a_line_that_cannot_be_followed_is_named() {
    for (lines, line, reason) in [
        ("/dev d 755\n", 1, "fewer than 5 fields"),
        ("#\n\n/dev x 755 0 0\n", 3, "type 'x'"),
        ("/dev d 855 0 0\n", 1, "mode '855'"),
        ("/dev d 10000 0 0\n", 1, "mode '10000'"),
        ("/dev d 755 nobody 0\n", 1, "uid 'nobody'"),
        ("/dev d 755 0 4294967295\n", 1, "gid '4294967295'"),
        ("/dev/null c 666 0 0 1 -\n", 1, "without a major and a minor"),
        ("/null c 666 0 0 4096 0\n", 1, "major"),
        ("/null c 666 0 0 1 1048570 0 5 4\n", 1, "minor grows"),
        ("/null c 666 0 0 1 1 0 - 4\n", 1, "inc"),
        ("/null c 666 0 0 1 1 0 1 1048575\n/one c 666 0 0 1 1 0 1 2\n", 2, "more than"),
        ("/null c 666 0 0 1 3 0 0 0 0\n", 1, "field '0'"),
        ("/../null c 666 0 0 1 3\n", 1, "unsafe name"),
        ("/dev/null c 666 0 0 1 3\n", 1, "no directory /dev"),
        ("/bin d 755 0 0\n/bin/none f 755 0 0\n", 2, "there is no /bin/none"),
        ("/none r 755 0 0\n", 1, "there is no /none"),
        ("/bin/tool c 666 0 0 1 3\n", 1, "/bin/tool exists as a regular file"),
        ("/null c 666 0 0 1 3\n/null c 666 0 0 1 5\n", 2, "/null exists as the character device 1:3"),
        ("/link/null c 666 0 0 1 3\n", 1, "/link is no directory"),
        ("/hard f 755 7 7\n", 1, "names of one file"),
        (" |xattr cap_net_raw+ep\n", 1, "|xattr follows"),
        ("/bin/tool f 755 0 0\n|xattr cap_none+ep\n", 2, "unknown capability"),
        ("/bin d 755 0 0\n|xattr cap_chown+ep\n", 1, "no regular file"),
    ] {
        let bench = table_bench(lines);
        bench.shell("ln -s dev tree/link; ln tree/bin/tool tree/hard; touch tree/optional");
        let said = bench.fails(1, &["mkfs", "-q", "-d", "tree", "--device-table", "table", DISK]);
        assert!(said.contains(&format!("table:{line}: ")) && said.contains(reason), "{lines}: {said}");
        assert!(!bench.path(DISK).exists());
    }
    let bench = table_bench("/none F 755 0 0\n/bin/tool f 755 7 7\n/hard f 755 7 7\n");
    bench.shell("ln tree/bin/tool tree/hard");
    bench.words(&format!("mkfs -q -d tree --device-table table {DISK}"));
}
