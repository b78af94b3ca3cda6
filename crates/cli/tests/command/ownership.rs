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
