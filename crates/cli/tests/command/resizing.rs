//! Disks that become larger and smaller.

use super::bench::{Bench, DISK, tool};

#[test]
fn an_image_grows_with_its_file_system_and_is_clean() {
    let Some(bench) = Bench::new() else { return };
    let bytes = |bench: &Bench| std::fs::metadata(bench.path(DISK)).expect("the image").len();
    let before = bytes(&bench);
    let document = bench.ok(&["resize", "--json", DISK, "+300M"]).json();
    assert_eq!(document["from_bytes"], before);
    assert_eq!(document["to_bytes"], before + (300 << 20));
    assert_eq!(document["transactions"], 1);
    assert_eq!(bytes(&bench), before + (300 << 20));
    bench.program("e2fsck", &["-fn", DISK]);
    assert_eq!(bench.ok(&["cat", "disk.img:/etc/hostname"]).out, "guest\n");
    let said = bench.ok(&["resize", DISK]).out;
    assert!(said.contains("already"), "{said}");
    let said = bench.ok(&["resize", DISK, "2G"]).out;
    assert!(said.contains("grew from") && said.contains("to 2 GiB"), "{said}");
    bench.program("e2fsck", &["-fn", DISK]);
}

#[test]
fn an_image_shrinks_with_its_file_system_and_is_clean() {
    let Some(bench) = Bench::new() else { return };
    let bytes = |bench: &Bench| std::fs::metadata(bench.path(DISK)).expect("the image").len();
    bench.ok(&["resize", DISK, "2G"]);
    let document = bench.ok(&["resize", "--json", DISK, "-1G"]).json();
    assert_eq!(
        (&document["from_bytes"], &document["to_bytes"]),
        (&(2_u64 << 30).into(), &(1_u64 << 30).into())
    );
    assert_eq!(bytes(&bench), 1 << 30);
    bench.program("e2fsck", &["-fn", DISK]);
    let plan = bench.ok(&["resize", "--json", "--dry-run", DISK, "min"]).json();
    assert_eq!(bytes(&bench), 1 << 30);
    let document = bench.ok(&["resize", "--json", DISK, "min"]).json();
    assert_eq!(document["to_bytes"], plan["min_bytes"]);
    assert_eq!(plan["to_bytes"], plan["min_bytes"]);
    assert_eq!(bytes(&bench), document["to_bytes"].as_u64().expect("bytes"));
    bench.program("e2fsck", &["-fn", DISK]);
    assert_eq!(bench.ok(&["cat", "disk.img:/etc/hostname"]).out, "guest\n");
    let said = bench.ok(&["resize", "--dry-run", DISK, "min"]).out;
    assert!(said.contains("would shrink") && said.contains("the minimum is"), "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    bench.assert_untouched(DISK, || {
        let said = bench.fails(1, &["resize", DISK, "100K"]);
        assert!(said.contains("bytes) at least; `min`"), "{}", said);
        let said = bench.fails(1, &["resize", "--json", DISK, "0"]);
        assert!(said.contains("\"out_of_range\""), "{}", said);
        bench.fails(2, &["resize", DISK, "many"]);
        assert!(bench.fails(2, &["resize", ".", "+1G"]).contains("how large it is to be"));
        let said = bench.fails(1, &["resize", "/proc", "1G"]);
        assert!(said.contains("cannot be made larger"), "{said}");
        bench.fails(2, &["resize", "--dry-run", DISK, "+1G"]);
        bench.fails(2, &["resize", "--dry-run", ".", "1G"]);
    });
}

#[test]
fn the_minimum_is_that_of_a_disk_made_anew_from_the_same_tree() {
    let Some(bench) = Bench::new() else { return };
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../extant/src");
    let small = bench.path("small");
    let large = bench.path("large");
    for tree in [&small, &large] {
        std::fs::create_dir(tree).expect("a folder");
    }
    for number in 0..2000 {
        std::fs::write(small.join(number.to_string()), number.to_string()).expect("a file");
    }
    std::fs::write(large.join("file"), vec![7; 30_000_000]).expect("a file");
    let bytes = |name: &str| std::fs::metadata(bench.path(name)).expect("the image").len();
    for tree in [&sources, &small, &large] {
        let tree = tree.to_str().expect("a path");
        bench.ok(&["mkfs", "-d", tree, "made.img"]);
        let made = bytes("made.img");
        bench.ok(&["resize", "made.img", "+200M"]);
        // What is written last lies far behind; what was before it goes.
        bench.ok(&["cp", "-r", tree, "made.img:/again"]);
        bench.ok(&["rm", "-r", "made.img:/again"]);
        bench.ok(&["resize", "made.img", "min"]);
        bench.program("e2fsck", &["-fn", "made.img"]);
        let least = bytes("made.img");
        assert!(least * 100 <= made * 102, "{tree}: {least} bytes, {made} when it was made");
        std::fs::remove_file(bench.path("made.img")).expect("the image");
    }
}

#[test]
fn a_partition_changes_with_its_file_system() {
    let Some(bench) = Bench::new() else { return };
    if tool("sfdisk").is_none() {
        println!("skipped: no sfdisk");
        return;
    }
    for label in ["dos", "gpt"] {
        bench.shell(&format!(
            "rm -f vm.img; truncate -s 100M vm.img
             printf 'label: {label}\\nstart=1MiB, size=32MiB\\nstart=40MiB, size=20MiB\\n' | sfdisk -q vm.img"
        ));
        let part = |number, size: &str| {
            let mut arguments = vec!["resize", "--resize-partition", "--partition", number, "vm.img"];
            arguments.extend((!size.is_empty()).then_some(size));
            arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let resize = |number, size: &str| {
            let arguments = part(number, size);
            bench.ok(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).out
        };
        let judge = |number, start: u32| {
            let said = bench.shell("sfdisk --verify vm.img && sfdisk --dump vm.img");
            assert!(said.contains("No errors detected"), "{said}");
            let line =
                said.lines().find(|line| line.starts_with(&format!("vm.img{number} "))).expect("a line");
            let size = line.split("size=").nth(1).and_then(|size| size.split(',').next()).expect("a size");
            let size: u64 = size.trim().parse().expect("a size");
            bench.shell(&format!("rm -f part.img; dd if=vm.img of=part.img bs=1M skip={start} status=none"));
            bench.shell(&format!("truncate -s {} part.img && e2fsck -fn part.img", size * 512));
            size * 512
        };
        for number in ["1", "2"] {
            bench.ok(&["mkfs", "-q", "--partition", number, "vm.img"]);
        }
        let said = resize("1", "");
        assert!(said.contains("from 32 MiB to 39 MiB"), "{said}");
        assert_eq!(judge("1", 1), 39 << 20);
        // The next one is in the way.
        let arguments = part("1", "+1M");
        let said = bench.fails(1, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(said.contains("has room for 39 MiB"), "{said}");
        // The image becomes longer.
        resize("2", "300M");
        assert_eq!(judge("2", 40), 300 << 20);
        let said = resize("2", "min");
        assert!(said.contains("shrank from 300 MiB"), "{said}");
        assert!(judge("2", 40) < 30 << 20);
        assert_eq!(judge("1", 1), 39 << 20);
        resize("2", "+20M");
        judge("2", 40);
    }
    let said = bench.fails(1, &["resize", "--partition", "1", "--resize-partition", DISK, "+1G"]);
    assert!(said.contains("no partition table"), "{said}");
    bench.fails(2, &["resize", "--resize-partition", "vm.img", "+1G"]);
}
