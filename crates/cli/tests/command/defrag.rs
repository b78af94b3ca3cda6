//! `defrag`: what it tells, what it reaches, and what it refuses.

use std::fs;

use super::bench::{Bench, DISK, tool};

/// A disk with two files in many parts, a swap file, and a directory that was large.
fn aged() -> Option<Bench> {
    tool("mke2fs").and(tool("e2fsck")).and(tool("debugfs"))?;
    let bench = Bench::empty();
    bench.mke2fs(DISK, "16M", &["-F", "-b", "1024"]);
    fs::create_dir_all(bench.path("tree/small")).expect("directory");
    for number in 0..2400 {
        fs::write(bench.path(&format!("tree/small/a-name-with-some-room-{number}")), vec![1; 1024])
            .expect("file");
    }
    bench.ok(&["cp", "-a", "tree/small", "disk.img:/"]);
    let odd = (0..2400).filter(|number| number % 2 == 1);
    let names: Vec<_> = odd.map(|number| format!("disk.img:/small/a-name-with-some-room-{number}")).collect();
    bench.ok(&[&["rm"], names.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    // All but what the next files take, so that those go into the holes.
    let left = bench.document("df --json disk.img")["disks"][0]["free_bytes"].as_u64().expect("bytes");
    fs::write(bench.path("rest"), vec![2; left.saturating_sub(1100 << 10) as usize]).expect("file");
    bench.ok(&["cp", "rest", "disk.img:/rest"]);
    let content: Vec<u8> = (0..300 << 10).map(|at: u32| (at / 100) as u8).collect();
    fs::write(bench.path("content"), content).expect("file");
    bench.ok(&["cp", "content", "disk.img:/one"]);
    let mut swap = vec![0; 300 << 10];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(bench.path("swap"), swap).expect("file");
    bench.ok(&["cp", "swap", "disk.img:/swap"]);
    bench.ok(&["rm", "disk.img:/rest"]);
    let few = (0..2400).filter(|number| number % 2 == 0 && number % 20 != 0);
    let names: Vec<_> = few.map(|number| format!("disk.img:/small/a-name-with-some-room-{number}")).collect();
    bench.ok(&[&["rm"], names.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
    Some(bench)
}

#[test]
fn defrag_tells_what_it_does_and_does_what_it_planned() {
    let Some(bench) = aged() else { return };
    let before = bench.document("frag --json disk.img");
    bench.assert_untouched(DISK, || {
        let said = bench.ok(&["defrag", "--dry-run", DISK]).out;
        assert!(said.contains("disk.img: would be: ") && said.contains("\nnow: "), "{said}");
    });
    let planned = bench.document("defrag --dry-run --json disk.img");
    let said = bench.ok(&["defrag", DISK]).out;
    let after = bench.document("frag --json disk.img");
    println!("{said}");
    assert!(said.lines().any(|line| line.starts_with("/one: 1 extents, before ")), "{said}");
    assert!(
        said.lines().any(|line| line.starts_with("/small: ") && line.contains(" blocks, before ")),
        "{said}"
    );
    assert!(said.lines().any(|line| line.starts_with("/swap: left as it is: it is a swap file")), "{said}");
    assert!(said.contains("\nbefore: ") && said.contains("\nafter: "), "{said}");
    let number = |document: &serde_json::Value, at: &str| {
        document.pointer(at).and_then(|it| it.as_u64()).expect("a number")
    };
    assert_eq!((planned["is_dry_run"].as_bool(), number(&planned, "/failed")), (Some(true), 0));
    assert_eq!(number(&planned, "/before/extents/runs"), number(&before, "/extents/runs"));
    assert!(number(&after, "/extents/runs") < number(&before, "/extents/runs"), "{after}");
    assert!(number(&after, "/free/runs") * 2 < number(&before, "/free/runs"), "{after}");
    assert!(bench.content(DISK, "/one") == bench.bytes("content"), "other content");
    bench.assert_clean(DISK);
    let again = bench.document("defrag --json disk.img");
    assert_eq!(
        (number(&again, "/files"), number(&again, "/directories"), number(&again, "/left")),
        (0, 0, 1)
    );
    assert_eq!(again["entries"][0]["path"], "/swap");
}

#[test]
fn defrag_of_a_path_leaves_the_rest_of_the_disk_alone() {
    let Some(bench) = aged() else { return };
    let said = bench.ok(&["defrag", "disk.img:/one"]).out;
    assert!(said.starts_with("/one: 1 extents, before ") && !said.contains("/small"), "{said}");
    let document = bench.document("defrag --json disk.img:/small");
    assert_eq!((&document["path"], &document["joined_extents"]), (&"/small".into(), &0.into()));
    assert_eq!(document["directories"], 1);
    bench.assert_clean(DISK);
}

#[test]
fn what_cannot_be_defragmented_is_named() {
    let bench = Bench::empty();
    fs::create_dir(bench.path("dir")).expect("directory");
    fs::write(bench.path("text"), "no disk").expect("file");
    assert!(bench.fails(1, &["defrag", "dir"]).contains("e4defrag"));
    assert!(bench.fails(1, &["defrag", "text"]).contains("text"));
    bench.fails(2, &["defrag"]);
    if tool("mke2fs").is_some() {
        bench.mke2fs(DISK, "16M", &["-F"]);
        assert!(bench.fails(1, &["defrag", "disk.img:/none"]).contains("disk.img:/none"));
    }
}
