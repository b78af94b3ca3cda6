//! Disks in images of other formats, packed ones, and one on standard input.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::bench::{Bench, DISK, tool};

/// A disk and `qemu-img`, which makes images of other formats of it.
fn bench() -> Option<Bench> {
    tool("qemu-img")?;
    Bench::new()
}

fn convert(bench: &Bench, format: &str, option: &str, name: &str) {
    bench.program("qemu-img", &["convert", "-O", format, "-o", option, DISK, name]);
}

/// All that is on a disk.
fn list(bench: &Bench, image: &str) -> String {
    bench.ok(&["ls", "-lR", image]).out.replace(&format!("{image}:/"), "/")
}

/// QEMU's check finds nothing, and e2fsck finds nothing on the disk that QEMU takes out of the image.
fn assert_sound(bench: &Bench, image: &str) {
    bench.program("qemu-img", &["check", "-f", "qcow2", image]);
    bench.program("qemu-img", &["convert", "-f", "qcow2", "-O", "raw", image, "taken.img"]);
    bench.assert_clean("taken.img");
}

#[test]
fn qcow2_is_made_read_and_written_by_every_verb() {
    let Some(bench) = bench() else { return };
    fs::create_dir_all(bench.path("tree/etc")).expect("a directory");
    fs::write(bench.path("tree/etc/hostname"), "guest\n").expect("a file");
    fs::write(bench.path("large"), vec![7; 3 << 20]).expect("a file");
    bench.ok(&["mkfs", "-q", "--format", "qcow2", "-d", "tree", "a.qcow2", "64M"]);
    assert!(bench.path("a.qcow2").metadata().expect("the image").blocks() * 512 < 8 << 20);
    assert_sound(&bench, "a.qcow2");
    bench.ok(&["cp", "large", "a.qcow2:/large"]);
    bench.ok(&["mkdir", "a.qcow2:/new"]);
    bench.ok(&["mv", "a.qcow2:/large", "a.qcow2:/new/"]);
    bench.ok(&["tune", "-L", "named", "a.qcow2"]);
    assert_sound(&bench, "a.qcow2");
    assert_eq!(bench.ok(&["cat", "a.qcow2:/etc/hostname"]).out, "guest\n");
    assert_eq!(bench.ok(&["ls", "a.qcow2:/new"]).out, "large\n");
    assert_eq!(bench.ok(&["check", "a.qcow2"]).out, "a.qcow2: clean\n");
    bench.ok(&["rm", "-r", "a.qcow2:/new"]);
    let full = bench.path("a.qcow2").metadata().expect("the image").blocks();
    bench.ok(&["trim", "a.qcow2"]);
    let trimmed = bench.path("a.qcow2").metadata().expect("the image").blocks();
    assert!(trimmed + (3 << 20) / 512 <= full + 200, "{full}, then {trimmed}");
    assert_sound(&bench, "a.qcow2");
    bench.ok(&["resize", "a.qcow2", "200M"]);
    assert_sound(&bench, "a.qcow2");
    assert_eq!(bench.document("info --json a.qcow2")["size_bytes"], 200 << 20);
    let run = bench.run(&["resize", "a.qcow2", "48M"]);
    let said = run.err;
    assert!(
        run.status == 0 && said.contains("stays as long as it was; `qemu-img resize --shrink`"),
        "{said}"
    );
    assert_sound(&bench, "a.qcow2");
}

#[test]
fn other_formats_are_read_and_name_their_conversion() {
    let Some(bench) = bench() else { return };
    let listed = list(&bench, DISK);
    for (format, option) in [
        ("vhdx", "subformat=dynamic"),
        ("vpc", "subformat=dynamic,force_size=on"),
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=streamOptimized"),
        ("vmdk", "subformat=monolithicFlat"),
    ] {
        convert(&bench, format, option, "other");
        assert_eq!(list(&bench, "other"), listed, "{option}");
        assert_eq!(bench.ok(&["cat", "other:/etc/hostname"]).out, "guest\n");
        assert_eq!(bench.ok(&["check", "other"]).out, "other: clean\n");
        bench.assert_untouched("other", || {
            let said = bench.fails(1, &["mkdir", "other:/x"]);
            assert!(said.contains("read here, not written; `qemu-img convert -O qcow2 IMAGE NEW`"), "{said}");
        });
        let said = bench.fails(1, &["mkfs", "other", "16M"]);
        assert!(said.contains("use -F to overwrite it"), "{said}");
    }
}

#[test]
fn vhd_of_fixed_size_is_written_and_keeps_its_footer() {
    let Some(bench) = bench() else { return };
    convert(&bench, "vpc", "subformat=fixed,force_size=on", "fixed.vhd");
    bench.ok(&["mkdir", "fixed.vhd:/new"]);
    let bytes = bench.bytes(DISK).len();
    assert_eq!(bench.bytes("fixed.vhd").len(), bytes + 512);
    assert!(bench.fails(1, &["resize", "fixed.vhd", "+8M"]).contains("cannot be made longer here"));
    bench.ok(&["mkfs", "-q", "-F", "fixed.vhd"]);
    bench.program("qemu-img", &["convert", "-f", "vpc", "-O", "raw", "fixed.vhd", "taken.img"]);
    bench.assert_clean("taken.img");
    assert_eq!(bench.bytes("taken.img").len(), bytes);
}

#[test]
fn info_names_the_chain() {
    let Some(bench) = bench() else { return };
    convert(&bench, "qcow2", "compression_type=zstd", "base.qcow2");
    bench.program(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "base.qcow2", "top.qcow2"],
    );
    let info = bench.document("info --json top.qcow2");
    assert_eq!((&info["format"], &info["packing"]), (&"qcow2".into(), &serde_json::Value::Null));
    let layers = info["layers"].as_array().expect("layers");
    let base = bench.path("base.qcow2").canonicalize().expect("a path").display().to_string();
    assert_eq!((&layers[0]["path"], &layers[1]["path"]), (&"top.qcow2".into(), &base.clone().into()));
    assert_eq!((&layers[0]["compression"], &layers[1]["compression"]), (&"deflate".into(), &"zstd".into()));
    assert_eq!(layers[1]["size_bytes"], bench.bytes(DISK).len());
    let said = bench.ok(&["info", "top.qcow2"]).out;
    assert!(
        said.contains("clusters packed by deflate") && said.contains(&format!(", over {base} (qcow2)\n")),
        "{said}"
    );
    let raw = bench.document("info --json disk.img");
    assert_eq!((&raw["format"], &raw["layers"]), (&"raw".into(), &serde_json::json!([])));
    // A base elsewhere is opened where that is allowed.
    fs::create_dir(bench.path("other")).expect("a directory");
    bench
        .program("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", &base, "other/top.qcow2"]);
    let said = bench.fails(1, &["ls", "other/top.qcow2"]);
    assert!(said.contains(&base) && said.contains("EXTANT_BACKING_DIRS=DIR:DIR"), "{said}");
    let mut command = bench.extant();
    command.env("EXTANT_BACKING_DIRS", format!("/nowhere:{}", bench.dir().display()));
    let run = bench.finish(command.args(["cat", "other/top.qcow2:/etc/hostname"]), b"");
    assert_eq!(run.out, "guest\n", "{}", run.err);
}

#[test]
fn packed_disks_and_disks_on_standard_input_are_read() {
    let Some(bench) = Bench::new() else { return };
    let listed = list(&bench, DISK);
    for (program, name) in
        [("gzip", "packed.gz"), ("xz", "packed.xz"), ("bzip2", "packed.bz2"), ("zstd", "packed.zst")]
    {
        if tool(program).is_none() {
            continue;
        }
        bench.shell(&format!("{program} -c {DISK} >{name}"));
        assert_eq!(list(&bench, name), listed, "{name}");
        assert_eq!(bench.document(&format!("info --json {name}"))["packing"], program);
        let said = bench.fails(1, &["mkdir", &format!("{name}:/x")]);
        assert!(said.contains(&format!("packed by {program}, and read here, not written")), "{said}");
        let piped = bench.finish(bench.extant().args(["ls", "-lR", "-"]), &bench.bytes(name));
        assert_eq!(piped.out.replace("-:/", "/"), listed, "{}", piped.err);
    }
    let piped = bench.finish(bench.extant().args(["cat", "/dev/stdin:/etc/hostname"]), &bench.bytes(DISK));
    assert_eq!(piped.out, "guest\n", "{}", piped.err);
    let piped = bench.finish(bench.extant().args(["mkdir", "--", "-:/x"]), &bench.bytes(DISK));
    assert!(piped.status == 2 && piped.err.contains("can only be read"), "{}", piped.err);
    let run = bench.finish(bench.extant().env("EXTANT_SCRATCH_BYTES", "64K").args(["ls", "packed.gz"]), b"");
    assert!(run.status == 1 && run.err.contains("packed by gzip: more than 65536 bytes"), "{}", run.err);
    let mut damaged = bench.bytes("packed.gz");
    damaged.truncate(damaged.len() / 2);
    fs::write(bench.path("cut.gz"), damaged).expect("a file");
    let said = bench.fails(1, &["ls", "cut.gz"]);
    assert!(said.contains("packed by gzip: "), "{said}");
}

#[test]
fn mkfs_keeps_a_qcow2_image_unless_another_format_is_named() {
    let Some(bench) = bench() else { return };
    bench.program("qemu-img", &["create", "-q", "-f", "qcow2", "a.qcow2", "32M"]);
    bench.ok(&["mkfs", "-q", "a.qcow2"]);
    assert_sound(&bench, "a.qcow2");
    assert_eq!(bench.document("info --json a.qcow2")["size_bytes"], 32 << 20);
    assert!(bench.fails(1, &["mkfs", "a.qcow2"]).contains("contains an ext4 file system"));
    let said = bench.fails(1, &["mkfs", "--format", "qcow2", "a.qcow2"]);
    assert!(said.contains("contains a qcow2 image; use -F to overwrite it"), "{said}");
    bench.ok(&["mkfs", "-q", "-F", "--format", "qcow2", "a.qcow2"]);
    assert_eq!(bench.document("info --json a.qcow2")["size_bytes"], 32 << 20);
    assert_sound(&bench, "a.qcow2");
    bench.ok(&["mkfs", "-q", "-F", "--format", "raw", "a.qcow2", "16M"]);
    assert_eq!(bench.document("info --json a.qcow2")["format"], "raw");
    bench.assert_clean("a.qcow2");
    let said = bench.fails(1, &["mkfs", "--from", DISK, "-F", "--json", "missing/x"]);
    assert!(said.contains("missing"), "{said}");
    convert(&bench, "qcow2", "compat=1.1", "base.qcow2");
    let said = bench.fails(1, &["mkfs", "--from", "base.qcow2", "new.img"]);
    assert!(said.contains("--from takes raw image files and block devices only"), "{said}");
}

#[test]
fn offsets_and_partitions_are_those_of_the_disk_in_the_image() {
    let Some(bench) = bench() else { return };
    fs::write(bench.path("whole.img"), [vec![0; 1 << 20], bench.bytes(DISK)].concat()).expect("an image");
    bench.program("qemu-img", &["convert", "-O", "qcow2", "whole.img", "whole.qcow2"]);
    assert_eq!(bench.ok(&["cat", "--offset", "1M", "whole.qcow2:/etc/hostname"]).out, "guest\n");
    bench.ok(&["mkdir", "--offset", "1M", "whole.qcow2:/x"]);
    assert_eq!(bench.ok(&["check", "--offset", "1M", "whole.qcow2"]).out, "whole.qcow2: clean\n");
    bench.program("qemu-img", &["check", "-f", "qcow2", "whole.qcow2"]);
}
