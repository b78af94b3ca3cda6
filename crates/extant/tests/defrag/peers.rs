//! Disks that the kernel aged: what e4defrag and `e2fsck -D` make of them, and what this does; and the kernel reads what is left.

use extant::Mount;
use extant_testing::Random;

use crate::aged::{defrag, without_sizes};
use crate::disk::{Image, MIB, run, text};
use crate::measure::{Measure, measure};
use crate::tree::{census, difference};

/// Mounts an image with the kernel and runs `act` there; nothing, and the reason said, if it cannot.
fn with_kernel<T>(image: &Image, act: impl FnOnce(&std::path::Path) -> T) -> Option<T> {
    let point = image.path.with_file_name("point");
    std::fs::create_dir_all(&point).expect("a folder");
    if let Err(why) = run("mount", &["-o", "loop", text(&image.path), text(&point)]) {
        println!("skipped: {why}");
        return None;
    }
    let result = act(&point);
    extant_testing::unmount(&point);
    Some(result)
}

/// Fills the disk with small files, removes some, and writes larger ones into the holes.
fn age(point: &std::path::Path) {
    let mut random = Random::new(5);
    for folder in 0..4 {
        std::fs::create_dir(point.join(format!("d{folder}"))).expect("a directory");
    }
    let path = |number: u64| point.join(format!("d{}/a-somewhat-long-name-{number}", number % 4));
    let mut made = 0;
    while std::fs::write(path(made), vec![made as u8 | 1; 1 + random.below(24_000) as usize]).is_ok() {
        made += 1;
    }
    run("sync", &["-f", text(point)]).expect("sync");
    (0..=made)
        .filter(|number| (number / 4).is_multiple_of(2))
        .for_each(|number| drop(std::fs::remove_file(path(number))));
    run("sync", &["-f", text(point)]).expect("sync");
    for number in 0..24_u64 {
        let bytes: Vec<u8> = (0..400_000_u64).map(|at| (at / 512 * 7 + number) as u8 | 1).collect();
        if std::fs::write(point.join(format!("d{}/large{number}", number % 4)), bytes).is_err() {
            break;
        }
    }
    (0..=made)
        .filter(|number| number / 4 % 4 == 1)
        .for_each(|number| drop(std::fs::remove_file(path(number))));
}

fn measured(image: &Image) -> Measure {
    measure(&Mount::new().read_only(true).open(&image.path).expect("mount"))
}

#[test]
fn a_disk_that_linux_aged_is_better_than_e4defrag_and_e2fsck_make_it_and_linux_reads_it() {
    let Some(image) = Image::made(40 * MIB, &["-b4096"]) else { return };
    if with_kernel(&image, age).is_none() {
        return;
    }
    let start = std::fs::read(&image.path).expect("the image");
    let aged = measured(&image);
    let said = with_kernel(&image, |point| run("e4defrag", &[text(point)]));
    let has_e4defrag =
        said.is_some_and(|said| said.inspect_err(|why| println!("no e4defrag: {why}")).is_ok());
    // It exits with 1 for what it changed.
    let _ = run("e2fsck", &["-fyD", text(&image.path)]);
    let theirs = measured(&image);

    std::fs::write(&image.path, &start).expect("the image");
    let fs = image.mount();
    let tree = without_sizes(census(&fs).expect("a census"));
    let done = defrag(&fs);
    let ours = measure(&fs);
    let other = difference(&tree, &without_sizes(census(&fs).expect("a census")));
    assert!(other.is_none(), "{other:?}");
    fs.unmount().expect("unmount");
    image.assert_clean("a disk of Linux");
    println!("aged {aged:?}\ne4defrag and e2fsck -D {theirs:?}\nextant {ours:?}\n{done:?}");
    assert!(aged.runs > aged.needed + 60, "{aged:?}");
    assert!(ours.runs <= ours.needed + 2 && ours.runs <= theirs.runs, "{ours:?}");
    assert!(ours.longest_free > aged.longest_free, "{ours:?}");
    assert!(!has_e4defrag || ours.around_free_block > theirs.around_free_block, "{ours:?}, {theirs:?}");

    // Linux reads the same files, and works on.
    let expected: Vec<_> =
        tree.iter().filter(|(path, told, _)| told.starts_with("Regular") && path.starts_with("/d")).collect();
    with_kernel(&image, |point| {
        for (path, _, content) in &expected {
            assert!(std::fs::read(point.join(&path[1..])).expect("content") == *content, "{path}");
        }
        std::fs::write(point.join("d0/new"), vec![3; 500_000]).expect("a file");
        std::fs::remove_file(point.join("d1/large1")).expect("a file");
    });
    image.assert_clean("after Linux worked on it");
}
