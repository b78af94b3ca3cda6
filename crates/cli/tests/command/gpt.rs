//! Disks with a GUID partition table, judged by sfdisk, sgdisk, partx, e2fsck and the kernel.

use std::fs;

use serde_json::Value;

use super::bench::{Bench, is_root, tool};

const MIB: u64 = 1 << 20;

/// A bench with a tree of a megabyte.
fn new_bench() -> Option<Bench> {
    tool("sfdisk").and(tool("e2fsck"))?;
    let bench = Bench::empty();
    fs::create_dir_all(bench.path("tree/sub")).expect("directory");
    fs::write(bench.path("tree/sub/file"), vec![7; 1_000_000]).expect("file");
    Some(bench)
}

/// A disk with a table that every program agrees about; what sfdisk says of it, and the clean file system of a partition.
fn judged(bench: &Bench, image: &str, number: usize) -> Value {
    let said = bench.program("sfdisk", &["--verify", image]).out;
    assert!(said.contains("No errors detected"), "{said}");
    let table = bench.program("sfdisk", &["--json", image]).json()["partitiontable"].clone();
    assert_eq!(table["label"], "gpt");
    if tool("sgdisk").is_some() {
        let said = bench.program("sgdisk", &["-v", image]).out;
        assert!(said.contains("No problems found"), "{said}");
    }
    let partitions = table["partitions"].as_array().expect("partitions");
    if tool("partx").is_some() {
        let said =
            bench.program("partx", &["--raw", "--noheadings", "-o", "START,SECTORS,UUID,NAME", image]).out;
        let lines = partitions.iter().map(|it| {
            let uuid = it["uuid"].as_str().expect("a UUID").to_lowercase();
            format!("{} {} {uuid} {}\n", it["start"], it["size"], it["name"].as_str().expect("a name"))
        });
        assert_eq!(said, lines.collect::<String>());
    }
    let field = |name: &str| partitions[number - 1][name].as_u64().expect("sectors") as usize * 512;
    let (start, bytes) = (field("start"), field("size"));
    assert_eq!(start as u64 % MIB, 0);
    fs::write(bench.path("part.img"), &bench.bytes(image)[start..start + bytes]).expect("image");
    bench.assert_clean("part.img");
    table
}

#[test]
fn a_disk_is_made_of_a_tree_and_every_program_agrees_about_its_table() {
    let Some(bench) = new_bench() else { return };
    for (arguments, kind, number) in [
        ("--gpt", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", 1),
        ("--gpt=x86-64 --esp 30000K", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", 2),
        ("--gpt=arm64 -L system", "B921B045-1DF0-41C3-AF44-4C6F280D3FAE", 1),
        ("--gpt=amd64", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", 1),
        ("--gpt=linux", "0FC63DAF-8483-4772-8E79-3D69D8477DE4", 1),
    ] {
        let made = bench.document(&format!("mkfs --json -F {arguments} -d tree --free 3M disk.img"));
        let table = judged(&bench, "disk.img", number);
        let partitions = table["partitions"].as_array().expect("partitions");
        let told = &made["gpt"];
        assert_eq!(told["partitions"].as_array().map(Vec::len), Some(number));
        assert_eq!(table["id"].as_str().map(str::to_lowercase).as_deref(), told["uuid"].as_str());
        for (found, told) in partitions.iter().zip(told["partitions"].as_array().expect("partitions")) {
            assert_eq!(found["type"].as_str().map(str::to_lowercase).as_deref(), told["type"].as_str());
            assert_eq!(found["uuid"].as_str().map(str::to_lowercase).as_deref(), told["uuid"].as_str());
            assert_eq!(found["start"].as_u64().map(|it| it * 512), told["offset_bytes"].as_u64());
        }
        let root = &partitions[number - 1];
        assert_eq!(
            (&root["type"], &made["size_bytes"]),
            (&kind.into(), &told["partitions"][number - 1]["size_bytes"])
        );
        assert_eq!(root["name"], if arguments.contains("-L") { "system" } else { "root" });
        if number == 2 {
            assert_eq!(partitions[0]["type"], "C12A7328-F81F-11D2-BA4B-00A0C93EC93B");
            assert_eq!(partitions[0]["size"], 30 * 2048);
        }
        assert_eq!(bench.bytes("disk.img").len() as u64 % MIB, 0);
        assert_eq!(bench.content("part.img", "/sub/file"), vec![7; 1_000_000]);
        let found = bench.run(&["ls", "disk.img:/sub"]);
        assert_eq!((found.status, found.out.as_str()), (0, "file\n"));
    }
    // The file system is the one that is made without a table.
    bench.ok(&["mkfs", "-q", "-F", "-d", "tree", "--free", "3M", "bare.img"]);
    assert_eq!(bench.bytes("bare.img").len(), bench.bytes("part.img").len());
}

#[test]
fn a_disk_has_the_size_that_is_asked_for() {
    let Some(bench) = new_bench() else { return };
    for (arguments, bytes) in
        [("20M", 20 * MIB), ("--esp 4M 33333K", 33_333 << 10), ("-d tree 40000000B", 40_000_000)]
    {
        bench.words(&format!("mkfs -q -F --gpt {arguments}").replace("mkfs", "mkfs disk.img"));
        assert_eq!(bench.bytes("disk.img").len() as u64, bytes, "{arguments}");
        judged(&bench, "disk.img", if arguments.contains("--esp") { 2 } else { 1 });
        // It fills what the table leaves.
        let size = fs::metadata(bench.path("part.img")).expect("image").len();
        let esp = if arguments.contains("--esp") { 4 * MIB } else { 0 };
        assert!(size + esp + MIB + (40 << 10) > bytes, "{arguments}: {size}");
    }
    // What is there is kept in its size, and overwritten with force only.
    let said = bench.fails(1, &["mkfs", "-q", "--gpt", "disk.img"]);
    assert!(said.contains("contains a partition table; use -F"), "{said}");
    bench.ok(&["mkfs", "-q", "-F", "--gpt", "disk.img"]);
    assert_eq!(bench.bytes("disk.img").len(), 40_000_000);
    judged(&bench, "disk.img", 1);
    let would = bench.document("mkfs --json -n -F --gpt=riscv64 --esp 1M disk.img 64M");
    assert_eq!(would["gpt"]["partitions"][1]["offset_bytes"], 2 * MIB);
    assert_eq!(bench.bytes("disk.img").len(), 40_000_000);
    let said = bench.ok(&["mkfs", "-n", "-F", "--gpt=riscv64", "--esp", "1M", "disk.img", "64M"]).out;
    assert!(
        said.ends_with("partition 1: EFI system, 1 MiB at byte 1048576\npartition 2: Linux root (riscv64), 62.0 MiB at byte 2097152\n"),
        "{said}"
    );
}

#[test]
fn equal_content_makes_equal_disks() {
    let Some(bench) = new_bench() else { return };
    let make = |image: &str, arguments: &str| {
        let mut command = bench.extant();
        let words = format!("mkfs --json --gpt=arm64 --esp 2M {arguments} {image}");
        command.env("SOURCE_DATE_EPOCH", "1700000000").args(words.split_whitespace());
        let run = bench.finish(&mut command, b"");
        assert_eq!(run.status, 0, "{}", run.err);
        (bench.bytes(image), run.json()["gpt"].clone())
    };
    let (first, table) = make("one.img", "-d tree --free 1M");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(first == make("two.img", "-d tree --free 1M").0, "two runs differ");
    fs::write(bench.path("tree/other"), "x").expect("file");
    let (_, other) = make("three.img", "-d tree --free 1M");
    let uuids = |table: &Value| {
        let partitions = table["partitions"].as_array().expect("partitions").iter();
        let mut uuids: Vec<_> =
            partitions.map(|it| it["uuid"].clone()).chain([table["uuid"].clone()]).collect();
        uuids.dedup();
        assert_eq!(uuids.len(), 3, "{table}");
        uuids
    };
    assert!(
        uuids(&table).iter().all(|uuid| !uuids(&other).contains(uuid)),
        "other content has the same UUIDs"
    );
    // A file system without a UUID has partitions with some.
    fs::File::create(bench.path("four.img")).and_then(|file| file.set_len(8 * MIB)).expect("image");
    assert!(uuids(&make("four.img", "-U clear").1).iter().all(|uuid| !uuids(&table).contains(uuid)));
    // Without a fixed clock they are random.
    let random =
        |image: &str| bench.document(&format!("mkfs --json --gpt {image} 8M"))["gpt"]["uuid"].clone();
    assert_ne!(random("five.img"), random("six.img"));
}

#[test]
fn the_kernel_mounts_the_partition() {
    let Some(bench) = new_bench() else { return };
    if !is_root() {
        println!("skipped: loop devices need root");
        return;
    }
    bench.ok(&["mkfs", "-q", "--gpt", "--esp", "1M", "-d", "tree", "--free", "1M", "disk.img"]);
    fs::create_dir(bench.path("mnt")).expect("directory");
    // A kernel built without this kind of table takes the partitions from partx, and a container has no udev to make nodes.
    bench.shell(
        "loop=$(losetup -f --show -P disk.img)
         trap 'umount -q mnt || true; losetup -d $loop' EXIT
         part=/sys/class/block/${loop#/dev/}/${loop#/dev/}p2
         [ -e $part ] || partx -a $loop
         mknod node b $(tr : ' ' <$part/dev)
         mount node mnt
         cp mnt/sub/file copy
         printf 'by the kernel' >mnt/new",
    );
    assert!(bench.bytes("copy") == vec![7; 1_000_000]);
    judged(&bench, "disk.img", 2);
    assert_eq!(bench.content("part.img", "/new"), b"by the kernel");
}

#[test]
fn the_root_partition_of_a_container_image_has_its_architecture() {
    let Some(bench) = new_bench() else { return };
    bench.ok(&["mkfs", "-q", "-d", "tree", "disk.img"]);
    bench.ok(&["export", "disk.img", "--oci", "layout:v1"]);
    let made = bench.document("mkfs --json -F --gpt -d layout whole.img");
    judged(&bench, "whole.img", 1);
    let kind = match std::env::consts::ARCH {
        "x86_64" => "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
        "aarch64" => "b921b045-1df0-41c3-af44-4c6f280d3fae",
        other => panic!("the root partition of {other} is to be added here"),
    };
    assert_eq!(made["gpt"]["partitions"][0]["type"], kind);
    let made = bench.document("mkfs --json -F --gpt=linux -d layout whole.img");
    assert_eq!(made["gpt"]["partitions"][0]["type"], "0fc63daf-8483-4772-8e79-3d69d8477de4");
}

/// The names of types are those that sfdisk has for the same GUIDs.
#[test]
fn types_are_those_that_sfdisk_knows() {
    let Some(bench) = new_bench() else { return };
    let list = bench.program("sfdisk", &["--list-types", "-X", "gpt"]).out.to_lowercase();
    for (architecture, name) in [
        ("x86-64", "linux root (x86-64)"),
        ("x86", "linux root (x86)"),
        ("arm64", "linux root (arm-64)"),
        ("arm", "linux root (arm)"),
        ("riscv64", "linux root (risc-v-64)"),
        ("s390x", "linux root (s390x)"),
        ("ppc64-le", "linux root (ppc64le)"),
        ("ppc64", "linux root (ppc64)"),
        ("loongarch64", "linux root (loongarch-64)"),
        ("mips64-le", "linux root (mips-64 le)"),
        ("mips-le", "linux root (mips-32 le)"),
        ("linux", "linux filesystem"),
    ] {
        let would = bench.document(&format!("mkfs --json -n --gpt={architecture} --esp 1M disk.img 16M"));
        let kind =
            |number: usize| would["gpt"]["partitions"][number]["type"].as_str().expect("a type").to_owned();
        for (kind, name) in [(kind(1), name), (kind(0), "efi system")] {
            let line = list.lines().find(|line| line.starts_with(&kind)).unwrap_or_else(|| panic!("{kind}"));
            assert_eq!(line[kind.len()..].trim(), name);
        }
    }
    let said = bench.fails(2, &["mkfs", "--gpt=vax", "disk.img", "16M"]);
    assert!(
        said.contains("no root partition has the type of 'vax'; there are linux, x86-64, x86, arm64"),
        "{said}"
    );
}

#[test]
fn what_cannot_have_a_table_is_refused() {
    let Some(bench) = new_bench() else { return };
    for (status, words, message) in [
        (1, "mkfs --gpt disk.img 1M", "1 MiB has no room for a root partition, which begins at 1 MiB"),
        (
            1,
            "mkfs --gpt --esp 16M disk.img 16M",
            "16 MiB has no room for a root partition, which begins at 17 MiB",
        ),
        (1, "mkfs --gpt --esp 16777215T disk.img 16M", "no room for a root partition"),
        (2, "mkfs --gpt disk.img", "disk.img does not exist; say how large it is to be"),
        (2, "mkfs --esp 16M disk.img 64M", "--gpt"),
        (2, "mkfs --gpt --partition 1 disk.img 64M", "cannot be used with"),
        (2, "mkfs --gpt --offset 1M disk.img 64M", "cannot be used with"),
        (2, "mkfs --gpt --verity disk.img 64M", "cannot be used with"),
        (2, "mkfs --gpt --from other.img disk.img", "cannot be used with"),
    ] {
        let said = bench.fails(status, &words.split(' ').collect::<Vec<_>>());
        assert!(said.contains(message), "{words}: {said}");
        assert!(!bench.path("disk.img").exists(), "{words}");
    }
    if is_root() {
        let said = bench.shell(
            "truncate -s 16M raw; loop=$(losetup -f --show raw); $EXTANT mkfs --gpt $loop 2>&1 || true; losetup -d $loop"
                .replace("$EXTANT", env!("CARGO_BIN_EXE_extant"))
                .as_str(),
        );
        assert!(said.contains("--gpt makes image files; dd writes one to a device"), "{said}");
    }
}
