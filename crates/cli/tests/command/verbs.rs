//! Smaller verbs and letters: `touch`, `df`, `du`, `find`, `ls -h`, `rm -v`, `mkdir --chown`. The judges are the programs of the
//! host on the same tree.

use std::fs;

use super::bench::{Bench, DISK};

fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn find_finds_what_find_finds() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("tree/bin/large"), vec![1; 20 << 10]).expect("file");
    fs::remove_dir_all(bench.path("tree/odd")).expect("directory");
    bench.mke2fs(DISK, "16M", &["-d", "tree"]);
    bench.ok(&["rm", "-r", "disk.img:/lost+found"]);
    for tests in [
        &[][..],
        &["-name", "*o*"],
        &["-name", "[a-h]*"],
        &["-type", "f"],
        &["-type", "d", "-name", "e*"],
        &["-type", "l"],
        &["-size", "+10k"],
        &["-maxdepth", "1"],
        &["-mindepth", "2", "-maxdepth", "2"],
        &["-maxdepth", "0"],
    ] {
        let found = bench.ok(&[&["find", DISK], tests].concat()).out;
        let expected = bench.program("find", &[&["tree"], tests].concat()).out;
        let expected = expected.replace("tree/", "/").replace("tree\n", "/\n");
        assert_eq!(lines(&found), lines(&expected), "{tests:?}");
    }
    bench.ok(&["touch", "-d", "@2000000000", "disk.img:/etc/hostname"]);
    bench.ok(&["touch", "-d", "@2100000000", "disk.img:/deep/er/file"]);
    let found = bench.ok(&["find", DISK, "-newer", "disk.img:/etc/hostname"]).out;
    assert_eq!(found, "/deep/er/file\n");
    let document = bench.document("find --json disk.img:/etc --type f");
    assert_eq!(document["files"].as_array().expect("files").len(), 3);
    bench.fails(2, &["find", DISK, "-type", "x"]);
    bench.fails(1, &["find", "disk.img:/missing"]);
}

#[test]
fn du_adds_up_what_du_adds_up() {
    let Some(bench) = Bench::new() else { return };
    let bytes = |path: &str| {
        bench.document(&format!("du -s --json disk.img:{path}"))["directories"][0]["allocated_bytes"]
            .as_u64()
            .expect("bytes")
    };
    fs::write(bench.path("large"), vec![1; 1 << 20]).expect("file");
    let before = bytes("/");
    bench.ok(&["cp", "large", "disk.img:/deep/er/large"]);
    assert!(bytes("/") >= before + (1 << 20) && bytes("/") < before + (1 << 20) + (64 << 10));
    let with_one = bytes("/deep");
    bench.ok(&["ln", "disk.img:/deep/er/large", "disk.img:/deep/again"]);
    assert_eq!(bytes("/deep"), with_one);
    let said = bench.ok(&["du", "disk.img:/deep"]).out;
    let names: Vec<&str> = said.lines().filter_map(|line| Some(line.split_once('\t')?.1)).collect();
    assert_eq!(names, ["/deep/er", "/deep"]);
    assert!(bench.ok(&["du", "-sh", "disk.img:/deep"]).out.starts_with("1.1M\t"));
}

#[test]
fn df_tells_what_info_tells() {
    let Some(bench) = Bench::new() else { return };
    let (df, info) = (bench.document("df --json disk.img"), bench.document("info --json disk.img"));
    for (ours, theirs) in
        [("size_bytes", "usable_bytes"), ("free_bytes", "free_bytes"), ("free_inodes", "free_inodes")]
    {
        assert_eq!(df["disks"][0][ours], info[theirs], "{ours}");
    }
    let said = bench.ok(&["df", "-h", DISK]).out;
    assert!(said.starts_with("Image") && said.contains("disk.img") && said.contains('%'), "{said}");
    assert!(bench.ok(&["df", "-i", DISK]).out.contains("IUse%"));
}

#[test]
fn files_are_touched_and_made() {
    let Some(bench) = Bench::new() else { return };
    bench.ok(&["touch", "-c", "disk.img:/none"]);
    bench.fails(1, &["stat", "disk.img:/none"]);
    bench.ok(&["touch", "disk.img:/made", "disk.img:/etc/link"]);
    assert_eq!(
        (bench.content(DISK, "/made"), bench.field(DISK, "/made", "Mode:").as_str()),
        (vec![], "0644")
    );
    bench.ok(&["touch", "-d", "@1234567890", "disk.img:/etc/link"]);
    let times = bench.document("stat --json disk.img:/etc/hostname");
    assert_eq!(times["files"][0]["mtime_ns"], 1_234_567_890_000_000_000_i64);
    bench.fails(2, &["touch", "-d", "yesterday", "disk.img:/made"]);
    bench.assert_clean(DISK);
}

#[test]
fn letters_of_ls_rm_and_mkdir_are_those_of_coreutils() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("large"), vec![1; 1500 << 10]).expect("file");
    bench.ok(&["cp", "large", "disk.img:/large"]);
    assert!(bench.ok(&["ls", "-lh", "disk.img:/large"]).out.contains(" 1.5M "));
    assert!(bench.ok(&["ls", "--help"]).out.contains("Examples"));
    bench.ok(&["mkdir", "--chown", "web:www", "-m", "750", "disk.img:/site"]);
    assert_eq!(bench.field(DISK, "/site", "User:"), "33");
    assert_eq!(bench.field(DISK, "/site", "Mode:"), "0750");
    let said = bench.ok(&["rm", "-rv", "disk.img:/deep"]).out;
    assert_eq!(
        said,
        "removed 'disk.img:/deep/er/file'\nremoved directory 'disk.img:/deep/er'\nremoved directory 'disk.img:/deep'\n"
    );
    assert_eq!(bench.ok(&["rm", "-v", "disk.img:/large"]).out, "removed 'disk.img:/large'\n");
    bench.assert_clean(DISK);
}
