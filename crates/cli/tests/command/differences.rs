//! `diff`, and `export` of what differs.

use std::fs;

use super::bench::{Bench, DISK, is_root, tool};

/// A disk and a copy of it that a guest changed.
fn changed_disk() -> Option<Bench> {
    let bench = Bench::new()?;
    bench.program("cp", &[DISK, "guest.img"]);
    fs::write(bench.path("new"), "new\n").expect("file");
    bench.ok(&["cp", "new", "guest.img:/etc/new"]);
    bench.ok(&["cp", "new", "guest.img:/etc/hostname"]);
    bench.ok(&["rm", "-r", "guest.img:/deep"]);
    bench.ok(&["chmod", "700", "guest.img:/bin/tool"]);
    Some(bench)
}

const CHANGES: &str = "\
C / (mtime)
D /deep
C /bin/tool (mode)
C /etc (mtime)
C /etc/hostname (content, mtime)
A /etc/new
";

#[test]
fn differences_are_listed_with_the_statuses_of_diff() {
    let Some(bench) = changed_disk() else { return };
    let run = bench.run(&["diff", DISK, "guest.img"]);
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (1, CHANGES, ""));
    let run = bench.run(&["diff", "--checksum", DISK, "guest.img"]);
    assert_eq!((run.status, run.out.as_str()), (1, CHANGES));
    let run = bench.run(&["diff", DISK, "guest.img", "/etc/"]);
    assert_eq!(run.out, "C /etc (mtime)\nC /etc/hostname (content, mtime)\nA /etc/new\n");
    assert_eq!(bench.run(&["diff", DISK, "guest.img", "/bin/tool"]).out, "C /bin/tool (mode)\n");
    for same in [DISK, "guest.img"] {
        bench.program("cp", &[same, "copy.img"]);
        assert_eq!(bench.ok(&["diff", same, "copy.img"]).out, "");
        assert_eq!(bench.ok(&["diff", same, same]).out, "");
    }
    assert_eq!(bench.ok(&["diff", DISK, "guest.img", "/odd"]).out, "");
    for (arguments, place) in [
        (["diff", "missing.img", "guest.img", "/"], "missing.img"),
        (["diff", DISK, "missing.img", "/"], "missing.img"),
        (["diff", DISK, "guest.img", "/deep"], "guest.img:/deep"),
        (["diff", "guest.img", DISK, "/deep"], "guest.img:/deep"),
    ] {
        let said = bench.fails(2, &arguments);
        assert!(said.contains(&format!("extant: {place}: ")), "{said}");
    }
    bench.fails(2, &["diff", DISK]);
}

#[test]
fn differences_are_a_document() {
    let Some(bench) = changed_disk() else { return };
    let run = bench.run(&["diff", "--json", DISK, "guest.img"]);
    assert_eq!((run.status, run.err.as_str()), (1, ""));
    let document = run.json();
    assert_eq!((&document["base"], &document["image"]), (&DISK.into(), &"guest.img".into()));
    let lines: Vec<_> =
        document["changes"].as_array().expect("list").iter().map(ToString::to_string).collect();
    let expected = [
        r#"{"change":"changed","differs_in":["mtime"],"path":"/"}"#,
        r#"{"change":"deleted","path":"/deep"}"#,
        r#"{"change":"changed","differs_in":["mode"],"path":"/bin/tool"}"#,
        r#"{"change":"changed","differs_in":["mtime"],"path":"/etc"}"#,
        r#"{"change":"changed","differs_in":["content","mtime"],"path":"/etc/hostname"}"#,
        r#"{"change":"added","path":"/etc/new"}"#,
    ];
    assert_eq!(lines, expected);
    let same = bench.ok(&["diff", "--json", DISK, DISK]).json();
    assert_eq!(same["changes"], serde_json::json!([]));
    let run = bench.run(&["diff", "--json", DISK, "missing.img"]);
    assert_eq!(run.status, 2);
    assert!(run.err.contains(r#""kind":"not_found""#), "{}", run.err);
}

#[test]
fn layer_has_what_differs_and_whiteouts() {
    let (Some(bench), Some(_)) = (changed_disk(), tool("tar").and(tool("gzip"))) else { return };
    let layer = ["export", "--layer", "--base", DISK, "guest.img", "-o"];
    bench.ok(&[&layer[..], &["layer.tar"]].concat());
    let names = bench.program("tar", &["-tf", "layer.tar"]).out;
    assert_eq!(names, "./\n.wh.deep\nbin/\nbin/tool\netc/\netc/hostname\netc/new\n");
    let document = bench.ok(&[&layer[..], &["layer.tar.gz", "--json"]].concat()).json();
    let digest = |name: &str| format!("sha256:{}", &bench.program("sha256sum", &[name]).out[..64]);
    assert_eq!(document["diff_id"], digest("layer.tar"));
    assert_eq!(document["digest"], digest("layer.tar.gz"));
    assert_eq!((&document["entries"], &document["sockets_left_out"]), (&7.into(), &0.into()));
    assert!(bench.ok(&["export", "--layer", "--base", DISK, "guest.img"]).stdout == bench.bytes("layer.tar"));
    assert!(bench.program("gzip", &["-dc", "layer.tar.gz"]).stdout == bench.bytes("layer.tar"));
    let packed = bench.ok(&["export", "--layer", "--compress", "gzip", "--base", DISK, "guest.img"]).stdout;
    assert!(packed == bench.bytes("layer.tar.gz"));
    let read = bench.ok(&["export", "--layer", "--checksum", "--base", DISK, "guest.img"]).stdout;
    assert!(read == bench.bytes("layer.tar"));
    for wrong in [
        &["export", "--layer", "--checksum", "guest.img"][..],
        &["export", "--base", DISK, "guest.img"],
        &["export", "--compress", "gzip", "guest.img"],
        &["export", "--layer", "--oci", "images", "guest.img"],
        &["export", "--oci", "images", "--image", "base", "guest.img"],
        &["export", "--oci", "images:", "guest.img"],
        &["export", "--layer", "--base", DISK, "guest.img", "-o", DISK],
    ] {
        bench.fails(2, wrong);
    }
    assert!(!bench.path("images").exists());
}

#[test]
fn image_goes_over_the_one_its_base_was_made_of() {
    let Some(bench) = changed_disk() else { return };
    bench.ok(&["export", "--oci", "images:base", DISK]);
    let first = bench.ok(&["export", "--json", "--oci", "images:guest", "--base", DISK, "guest.img"]).json();
    // Now there are two.
    let said = bench.fails(1, &["export", "--oci", "images:other", "--base", DISK, "guest.img"]);
    assert!(said.contains("--image") && said.contains("base, guest"), "{said}");
    let add = ["export", "--json", "--oci", "images", "--image", "base", "--base", DISK, "guest.img"];
    let again = bench.ok(&add).json();
    assert_eq!(again["manifest"], first["manifest"], "the same bytes in another run");
    let run = bench.finish(bench.extant().args(add).env("SOURCE_DATE_EPOCH", "1700000000"), b"");
    assert_ne!(run.json()["manifest"], first["manifest"]);
    assert_eq!(run.json()["digest"], first["digest"]);
    let index: serde_json::Value = serde_json::from_slice(&bench.bytes("images/index.json")).expect("index");
    let names: Vec<_> = index["manifests"]
        .as_array()
        .expect("list")
        .iter()
        .map(|one| one["annotations"].to_string())
        .collect();
    let named = |name: &str| format!(r#"{{"org.opencontainers.image.ref.name":"{name}"}}"#);
    assert_eq!(names, [named("base"), named("guest"), named("latest")]);
    if tool("skopeo").is_some() {
        let seen = bench.program("skopeo", &["inspect", "oci:images:latest"]).out;
        assert!(seen.contains("\"Created\": \"2023-11-14T22:13:20Z\""), "{seen}");
    }
}

/// The disk of a guest that was killed: its journal is not replayed, and nothing is written to it.
#[test]
fn crashed_disk_is_compared_and_packed_as_replayed_without_a_write() {
    let Some(bench) = changed_disk() else { return };
    if !is_root() || !fs::exists("/dev/fuse").unwrap_or(false) {
        println!("skipped: mounting needs root and /dev/fuse");
        return;
    }
    bench.program("cp", &["guest.img", "crashed.img"]);
    fs::create_dir(bench.path("mnt")).expect("directory");
    let mut server = bench.extant().args(["mount", "-f", "crashed.img", "mnt"]).spawn().expect("server");
    let begun = std::time::Instant::now();
    while !bench.path("mnt/etc/new").exists() {
        assert!(begun.elapsed().as_secs() < 30, "not mounted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::write(bench.path("mnt/etc/synced"), "synced\n").expect("file");
    fs::File::open(bench.path("mnt/etc/synced")).and_then(|file| file.sync_all()).expect("sync");
    fs::write(bench.path("mnt/etc/hostname"), "half").expect("file");
    server.kill().expect("kill");
    server.wait().expect("end");
    bench.run(&["umount", "--lazy", "mnt"]);
    assert!(bench.debugfs("crashed.img", "features").contains("needs_recovery"));
    for image in [DISK, "crashed.img"] {
        bench.assert_untouched(image, || {
            let run = bench.run(&["diff", DISK, "crashed.img"]);
            assert_eq!((run.status, run.err.as_str()), (1, ""));
            assert!(run.out.contains("A /etc/synced\n") && run.out.contains("D /deep\n"), "{}", run.out);
            bench.ok(&["export", "--layer", "--base", DISK, "crashed.img", "-o", "layer.tar"]);
            bench.ok(&["export", "--oci", "images", "crashed.img"]);
        });
    }
    let names = bench.program("tar", &["-tf", "layer.tar"]).out;
    assert!(names.contains("etc/synced\n") && names.contains(".wh.deep\n"), "{names}");
}

#[test]
fn damaged_disk_fails_by_path_and_leaves_nothing() {
    let Some(bench) = changed_disk() else { return };
    bench.program("cp", &["guest.img", "bad.img"]);
    // The map of a file that is new is none.
    bench.debugfs_write("bad.img", "set_inode_field /etc/new block[0] 0\nset_inode_field /etc/new size 7\n");
    fs::write(bench.path("old.tar"), "old").expect("file");
    let said = bench.fails(1, &["export", "--layer", "--base", DISK, "bad.img", "-o", "old.tar"]);
    assert!(said.contains("bad.img:/etc/new: "), "{said}");
    assert_eq!(bench.bytes("old.tar"), b"old");
    bench.ok(&["export", "--oci", "images:base", DISK]);
    let index = bench.bytes("images/index.json");
    let said = bench.fails(1, &["export", "--oci", "images:guest", "--base", DISK, "bad.img"]);
    assert!(said.contains("bad.img:/etc/new: "), "{said}");
    assert!(bench.bytes("images/index.json") == index);
    let left = |dir: &str| fs::read_dir(bench.path(dir)).expect("directory").count();
    assert_eq!((left("images"), left("images/blobs/sha256")), (3, 3));
    // The base is named where it is the one that is damaged.
    bench.program("cp", &[DISK, "bad.img"]);
    bench.debugfs_write("bad.img", "set_inode_field /bin/tool block[0] 0\n");
    let said = bench.fails(2, &["diff", "bad.img", "guest.img"]);
    assert!(said.contains("bad.img:/bin/tool: "), "{said}");
}

/// What the kernel changed, on a disk that was unmounted and on one that was copied while it was mounted.
#[test]
fn layers_of_what_the_kernel_changed_unpack_to_its_tree() {
    let tools = ["umoci", "setfattr", "setfacl", "setcap", "mount"].map(tool);
    let (Some(bench), true) = (changed_disk(), tools.iter().all(Option::is_some)) else { return };
    if !is_root() || !fs::exists("/dev/loop-control").unwrap_or(false) {
        println!("skipped: mounting needs root and loop devices");
        return;
    }
    fs::create_dir(bench.path("mnt")).expect("directory");
    let mount = |image: &str, options: &str| {
        bench.program("mount", &["-o", options, image, "mnt"]);
    };
    let tree = |root: &str| {
        bench.shell(&format!(
            "cd {root}
            find . -path ./lost+found -prune -o -printf '%P %y %m %U %G %T@ %l ' -type d -printf '\\n' -o -printf '%n\\n' | sort
            find . -type f -print0 | sort -z | xargs -0 sha256sum
            find . -path ./lost+found -prune -o -print0 | sort -z | xargs -0 getfattr -hd -m -"
        ))
    };
    bench.ok(&["export", "--oci", "images:base", DISK]);
    mount("guest.img", "loop");
    bench.shell(
        "cd mnt
        ln etc/passwd etc/hard; mv etc/group etc/moved; rm -r odd; mkdir -m 1777 odd; ln -s nowhere odd/link
        mknod null c 1 3; mkfifo pipe; chown 5:6 bin/tool; setcap cap_net_raw+ep bin/tool; setfacl -m u:7:r etc/moved
        setfattr -n user.note -v text etc/moved; truncate -s 5M sparse; touch -h -d 2001-02-03 odd/link conf",
    );
    bench.shell("sync -f mnt; echo more >>mnt/etc/passwd; cp guest.img copied.img");
    extant_testing::unmount(&bench.path("mnt"));
    for image in ["guest.img", "copied.img"] {
        bench.assert_untouched(image, || {
            let name = format!("images:{image}");
            bench.ok(&["export", "--oci", &name, "--image", "base", "--base", DISK, image]);
        });
        bench
            .program("umoci", &["unpack", "--image", &format!("images:{image}"), &format!("{image}.bundle")]);
        mount(image, "loop");
        let expected = tree("mnt");
        extant_testing::unmount(&bench.path("mnt"));
        assert!(expected.contains("user.note") && expected.contains("security.capability"), "{expected}");
        assert_eq!(tree(&format!("{image}.bundle/rootfs")), expected, "{image}");
    }
}
