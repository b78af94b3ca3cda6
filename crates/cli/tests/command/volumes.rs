//! Disks with logical volumes of LVM: linear ones are worked on, others are named. LVM itself judges where its tools are.

#[path = "../../../block/tests/common/lvm_image.rs"]
mod lvm_image;

use std::fs;

use super::bench::{Bench, DISK, is_root, tool};
use lvm_image::{linear, metadata, volume, write_physical_volume};

const WHOLE: &str = "whole.img";
const MIB: usize = 1 << 20;
const UUIDS: [&str; 2] = ["FirstF-aaaa-bbbb-cccc-dddd-eeee-ffffff", "Second-aaaa-bbbb-cccc-dddd-eeee-ffffff"];
/// The partitions with physical volumes: where they begin and end, in MiB. The first MiB of each is the metadata.
const PLACES: [(usize, usize); 2] = [(2, 19), (20, 29)];
const EXTENTS: [u64; 2] = [16, 8];
const WRITABLE: &str = "\"READ\", \"WRITE\", \"VISIBLE\"";

/// The disk of a bench, on extents of both physical volumes: those of `root`, in order, as places in MiB.
fn root_extents() -> Vec<usize> {
    (PLACES[1].0 + 3..PLACES[1].0 + 7).chain(PLACES[0].0 + 1..PLACES[0].0 + 13).collect()
}

/// The volume `root` of 16 MiB, and others.
fn group(others: &str) -> String {
    let root =
        volume("root", WRITABLE, &[("striped", 0, 4, &linear(1, 2)), ("striped", 4, 12, &linear(0, 0))]);
    metadata("vg", UUIDS, EXTENTS, &(root + others))
}

/// A disk with three partitions, of which two are the group's; what the disk of the bench holds is on `root`.
fn with_volumes(bench: &Bench, text: &str) {
    let disk = bench.bytes(DISK);
    let mut whole = vec![0; 30 * MIB];
    for (slot, (from, to)) in [(1, 2), PLACES[0], PLACES[1]].into_iter().enumerate() {
        let entry = &mut whole[446 + slot * 16..][..16];
        entry[4] = 0x8e;
        entry[8..12].copy_from_slice(&(from as u32 * 2048).to_le_bytes());
        entry[12..16].copy_from_slice(&((to - from) as u32 * 2048).to_le_bytes());
    }
    whole[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (uuid, (from, to)) in UUIDS.iter().zip(PLACES) {
        write_physical_volume(&mut whole[from * MIB..to * MIB], uuid, text, 512);
    }
    for (extent, place) in root_extents().into_iter().enumerate() {
        whole[place * MIB..][..MIB].copy_from_slice(&disk[extent * MIB..][..MIB]);
    }
    fs::write(bench.path(WHOLE), whole).expect("image");
}

/// The volume `root` alone, as its metadata says.
fn cut_out(bench: &Bench, name: &str) {
    let whole = bench.bytes(WHOLE);
    let extents = root_extents().into_iter().flat_map(|place| &whole[place * MIB..][..MIB]).copied();
    fs::write(bench.path(name), extents.collect::<Vec<_>>()).expect("image");
}

const NOTE: &str = "extant: whole.img: logical volume vg/root is the only ext4 file system on 3 partitions and 1 logical volume\n";

#[test]
fn a_linear_volume_is_read_and_written() {
    let Some(bench) = Bench::new() else { return };
    with_volumes(&bench, &group(""));
    let before = bench.bytes(WHOLE);
    for place in [&["--volume", "vg/root"][..], &[]] {
        fs::write(bench.path(WHOLE), &before).expect("image");
        let note = if place.is_empty() { NOTE } else { "" };
        let run = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            let run = bench.run(&[&words[..1], place, &words[1..]].concat());
            assert_eq!((run.status, run.err.as_str()), (0, note), "{words:?}");
            run.out
        };
        assert_eq!(run("cat whole.img:/etc/hostname"), "guest\n");
        assert_eq!(run("check whole.img"), "whole.img: clean\n");
        let info: serde_json::Value = serde_json::from_str(&run("info --json whole.img")).expect("JSON");
        assert_eq!((info["volume"].as_str(), info["partition"].is_null()), (Some("vg/root"), true));
        assert!(run("info whole.img").starts_with("volume             vg/root\n"));
        run("mkdir whole.img:/new");
        run("cp tree/bin/tool whole.img:/new/tool");
        run("tune -L named whole.img");
        run("resize whole.img 12M");
        run("resize whole.img");
        cut_out(&bench, "root.img");
        bench.assert_clean("root.img");
        assert_eq!(bench.content("root.img", "/new/tool"), b"#!/bin/sh\necho tool\n");
        assert_eq!(bench.document("info --json root.img")["size_bytes"], 16 * MIB as u64);
        // Nothing beside the volume was written.
        let (after, extents) = (bench.bytes(WHOLE), root_extents());
        for index in (0..30).filter(|index| !extents.contains(index)) {
            assert!(before[index * MIB..][..MIB] == after[index * MIB..][..MIB], "MiB {index}");
        }
    }
    // A volume keeps its length, and so does the disk.
    let said = bench.fails(1, &["resize", "--volume", "vg/root", WHOLE, "100M"]);
    assert!(said.contains("size in bytes is from 16777216 to 16777216"), "{said}");
    assert_eq!(bench.bytes(WHOLE).len(), before.len());
    cut_out(&bench, "root.img");
    bench.assert_clean("root.img");
    bench.ok(&["mkfs", "-q", "-F", "-d", "tree/etc", "--volume", "vg/root", WHOLE]);
    cut_out(&bench, "root.img");
    bench.assert_clean("root.img");
    assert_eq!(bench.content("root.img", "/hostname"), b"guest\n");
    if is_root() && std::path::Path::new("/dev/fuse").exists() {
        for options in ["--volume=vg/root", "-ovolume=vg/root"] {
            assert_eq!(bench.ok(&["exec", options, WHOLE, "--", "cat", "hostname"]).out, "guest\n");
        }
    }
}

#[test]
fn volumes_that_are_not_read_are_named_with_the_next_step() {
    let Some(bench) = Bench::new() else { return };
    let others = [
        volume("copy", WRITABLE, &[("striped", 0, 2, &linear(1, 0))]),
        volume("fixed", "\"READ\", \"VISIBLE\"", &[("striped", 0, 2, &linear(1, 6))]),
        volume("swap", WRITABLE, &[("striped", 0, 1, &linear(0, 13))]),
        volume("none", WRITABLE, &[("striped", 0, 1, &linear(0, 14))]),
        volume(
            "wide",
            WRITABLE,
            &[("striped", 0, 2, "stripe_count = 2 stripe_size = 128 stripes = [\"pv0\", 15, \"pv1\", 6]")],
        ),
        volume("thin", WRITABLE, &[("thin", 0, 9, "thin_pool = \"pool\" transaction_id = 0 device_id = 1")]),
        volume("long", WRITABLE, &[("striped", 0, 1, &linear(0, 16))]),
    ];
    with_volumes(&bench, &group(&others.concat()));
    bench.ok(&["mkfs", "-q", "--volume", "vg/copy", WHOLE]);
    let said = bench.fails(1, &["ls", WHOLE]);
    assert_eq!(
        said,
        "extant: whole.img: 2 logical volumes have ext4 file systems; choose one with --volume VG/LV (mount: -o volume=VG/LV): \
         vg/copy (2 MiB, ext4), vg/root (16 MiB, ext4)\n"
    );
    for (name, expected) in [
        (
            "vg/other",
            "has no logical volume vg/other; there are vg/copy, vg/fixed, vg/long, vg/none, vg/root, vg/swap, vg/thin, vg/wide",
        ),
        (
            "vg/wide",
            "logical volume vg/wide is of the type striped, and only linear ones are read; activate it with `vgchange -ay vg` and use /dev/vg/wide",
        ),
        ("vg/thin", "of the type thin"),
        ("vg/long", "logical volume vg/long is damaged in the metadata of its group; `vgck vg` checks that"),
        ("vg/none", "no ext4 file system"),
    ] {
        let said = bench.fails(1, &["ls", "--volume", name, WHOLE]);
        assert!(said.contains(expected), "{name}: {said}");
    }
    assert!(
        bench
            .fails(2, &["ls", "--volume", "root", WHOLE])
            .contains("a logical volume is named as VG/LV, not 'root'")
    );
    bench.fails(2, &["ls", "--volume", "vg/root", "--partition", "2", WHOLE]);
    assert!(bench.fails(1, &["ls", "--volume", "vg/root", DISK]).contains("has no logical volumes"));
    // A partition that is named is not looked into, but its volumes are listed.
    let said = bench.fails(1, &["ls", "--partition", "3", WHOLE]);
    assert!(said.contains("an LVM physical volume, not an ext4 file system; choose one with --volume: vg/copy (2 MiB, ext4), "), "{said}");
    assert!(said.contains("vg/root (16 MiB, partly on another disk)"), "{said}");
    // A volume that its metadata protects is read, and not written.
    let mut whole = bench.bytes(WHOLE);
    let copy = whole[(PLACES[1].0 + 1) * MIB..][..2 * MIB].to_vec();
    whole[(PLACES[1].0 + 7) * MIB..][..2 * MIB].copy_from_slice(&copy);
    fs::write(bench.path(WHOLE), whole).expect("image");
    bench.assert_untouched(WHOLE, || {
        assert_eq!(bench.ok(&["ls", "--volume", "vg/fixed", WHOLE]).out, "lost+found\n");
        let said = bench.fails(1, &["mkdir", "--volume", "vg/fixed", "whole.img:/x"]);
        assert!(
            said.contains(
                "logical volume vg/fixed is write-protected; `lvchange -prw vg/fixed` changes that"
            ),
            "{said}"
        );
    });
}

#[test]
fn groups_without_ext4_and_without_some_disks_are_explained() {
    let Some(bench) = Bench::new() else { return };
    let thin = volume("thin", WRITABLE, &[("thin", 0, 9, "thin_pool = \"pool\"")]);
    with_volumes(&bench, &group(&thin));
    let whole = bench.bytes(WHOLE);
    fs::write(bench.path("second.img"), &whole[PLACES[1].0 * MIB..PLACES[1].1 * MIB]).expect("image");
    let said = bench.fails(1, &["info", "second.img"]);
    assert_eq!(
        said,
        "extant: second.img: an LVM physical volume, not an ext4 file system; none of its logical volumes is one: vg/root (16 MiB, \
         partly on another disk), vg/thin (9 MiB, thin); `vgchange -ay vg` activates those that are not read here\n"
    );
    let said = bench.fails(1, &["info", "--volume", "vg/root", "second.img"]);
    assert!(
        said.contains(&format!(
            "logical volume vg/root is partly on the physical volume {}, which is not in this image; attach all disks, \
             activate it with `vgchange -ay vg`",
            UUIDS[0]
        )),
        "{said}"
    );
    // Of a disk with partitions too.
    let mut damaged = whole.clone();
    for place in root_extents() {
        damaged[place * MIB..][..MIB].fill(0);
    }
    fs::write(bench.path(WHOLE), &damaged).expect("image");
    let said = bench.fails(1, &["info", WHOLE]);
    assert!(said.contains("an LVM physical volume: none of its logical volumes is one: vg/root (16 MiB, no known format), vg/thin"), "{said}");
    // A whole disk may be a physical volume.
    let only = volume("only", WRITABLE, &[("striped", 0, 16, &linear(0, 0))]);
    let mut disk = vec![0; 17 * MIB];
    write_physical_volume(&mut disk, UUIDS[0], &metadata("vg", UUIDS, EXTENTS, &only), 512);
    disk[MIB..].copy_from_slice(&bench.bytes(DISK));
    fs::write(bench.path("pv.img"), disk).expect("image");
    let run = bench.run(&["cat", "pv.img:/etc/hostname"]);
    let note = "extant: pv.img: logical volume vg/only is the only ext4 file system on 1 logical volume\n";
    assert_eq!((run.out.as_str(), run.err.as_str()), ("guest\n", note));
}

/// LVM writes the metadata, and says where the volume's extents are.
#[test]
fn lvm_agrees_about_its_volumes() {
    let Some(bench) = Bench::new() else { return };
    if !is_root() || tool("lvm").is_none() {
        println!("skipped: root and lvm are needed");
        return;
    }
    let wide = volume(
        "wide",
        WRITABLE,
        &[("striped", 0, 2, "stripe_count = 2 stripe_size = 128 stripes = [\"pv0\", 15, \"pv1\", 6]")],
    );
    fs::write(bench.path("group.txt"), group(&wide).trim_end_matches('\0')).expect("text");
    // The device mapper is not needed: no volume is activated.
    let said = bench.shell(&format!(
        "truncate -s 17M first; truncate -s 9M second
         first=$(losetup -f --show first); second=$(losetup -f --show second)
         trap 'losetup -d $first $second' EXIT
         config=\"devices {{ use_devicesfile = 0 filter = [ \\\"a|^$first\\$|\\\", \\\"a|^$second\\$|\\\", \\\"r|.*|\\\" ] }} backup {{ backup = 0 archive = 0 }}\"
         exec 2>log
         lvm pvcreate -q --config \"$config\" --norestorefile -u {} $first >&2
         lvm pvcreate -q --config \"$config\" --norestorefile -u {} $second >&2
         lvm vgcfgrestore --config \"$config\" -f group.txt vg >&2
         lvm lvs --config \"$config\" --segments --noheadings -o lv_name,segtype,seg_pe_ranges | sed \"s,$first,first,; s,$second,second,\"",
        UUIDS[0], UUIDS[1]
    ));
    let lines: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["root", "linear", "second:2-5"]);
    assert_eq!(lines[1], ["root", "linear", "first:0-11"]);
    assert_eq!(lines[2][..2], ["wide", "striped"]);
    with_volumes(&bench, "");
    let mut whole = bench.bytes(WHOLE);
    for (name, (from, to)) in ["first", "second"].iter().zip(PLACES) {
        let physical = bench.bytes(name);
        assert_eq!(physical.len(), (to - from) * MIB);
        // Label and metadata.
        whole[from * MIB..][..MIB].copy_from_slice(&physical[..MIB]);
    }
    fs::write(bench.path(WHOLE), whole).expect("image");
    let run = bench.run(&["cat", "whole.img:/etc/hostname"]);
    assert_eq!(
        (run.out.as_str(), run.err.as_str()),
        ("guest\n", NOTE.replace("1 logical volume", "2 logical volumes").as_str())
    );
    bench.ok(&["check", "--volume", "vg/root", WHOLE]);
    assert!(bench.fails(1, &["ls", "--volume", "vg/wide", WHOLE]).contains("of the type striped"));
}
