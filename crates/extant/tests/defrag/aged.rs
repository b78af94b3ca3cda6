//! What defragmenting reaches on aged disks of several layouts, and that all else stays.

use extant::{DefragEvent, DefragOptions, Defragmented, Filesystem};

use crate::age::{Ageing, age};
use crate::disk::{Image, MIB};
use crate::measure::measure;
use crate::tree::{Census, census, difference};

/// Arguments of mke2fs.
const LAYOUTS: &[&[&str]] = &[
    &["-b4096"],
    &["-b1024", "-g2048", "-N2048", "-Jsize=1"],
    &["-b1024", "-O^extents,^64bit,^metadata_csum,^uninit_bg"],
    &["-b1024", "-O^dir_index,^metadata_csum"],
    &["-b4096", "-O^has_journal"],
    &["-b1024", "-Oquota,fast_commit"],
    &["-b2048", "-Ometa_bg,^resize_inode,^flex_bg"],
];

/// Ages a disk so that it is about full in between.
pub fn aged(image: &Image, seed: u64) -> Filesystem {
    let fs = image.mount();
    let ageing = Ageing { small: 5000, small_bytes: 30_000, large: 30, large_bytes: 400_000, names: 1500 };
    age(&fs, seed, &ageing);
    fs
}

pub fn defrag(fs: &Filesystem) -> Defragmented {
    fs.defrag("/", &DefragOptions::default(), &mut |event| {
        if let DefragEvent::Failed { path, error } = event {
            panic!("{}: {error}", path.display());
        }
        true
    })
    .expect("defragment")
}

#[test]
fn files_come_into_as_few_runs_as_they_need_and_free_runs_grow() {
    for (seed, arguments) in LAYOUTS.iter().enumerate() {
        let Some(image) = Image::made(32 * MIB, arguments) else { return };
        let fs = aged(&image, seed as u64);
        let (before, tree) = (measure(&fs), census(&fs).expect("a census"));
        let done = defrag(&fs);
        let after = measure(&fs);
        println!("{arguments:?}: {before:?}\n  {after:?}\n  {done:?}");
        assert!(before.runs > before.needed + 100, "{arguments:?} did not age: {before:?}");
        assert!(after.runs <= after.needed + 2, "{arguments:?}: {after:?}");
        assert!(after.longest_free > before.longest_free, "{arguments:?}: {before:?} {after:?}");
        assert!(
            after.around_free_block > 2 * before.around_free_block,
            "{arguments:?}: {before:?} {after:?}"
        );
        let other = difference(&without_sizes(tree), &without_sizes(census(&fs).expect("a census")));
        assert!(other.is_none(), "{arguments:?}: {other:?}");
        let again = defrag(&fs);
        assert_eq!((again.files, again.directories), (0, 0), "{arguments:?}: {again:?}");
        fs.unmount().expect("unmount");
        image.assert_clean(&format!("{arguments:?}"));
    }
}

#[test]
fn nodes_of_maps_come_to_lie_side_by_side_where_they_part_no_free_run() {
    let arguments = ["-b1024", "-Jsize=1", "-O^extents,^64bit,^metadata_csum,^uninit_bg"];
    let Some(image) = Image::made(8 * MIB, &arguments) else { return };
    let fs = image.mount();
    // Maps of both have a node.
    let content = [vec![1; 20 << 10], vec![1; 100 << 10]];
    let path = |number: usize| format!("/{number}");
    let made = (0..).take_while(|number| fs.write(path(*number), &content[number % 2]).is_ok()).count();
    // The file that did not fit has a name too.
    (0..=made).filter(|number| number % 2 == 1).for_each(|number| {
        fs.remove_file(path(number)).expect("a file");
    });
    fs.sync().expect("sync");
    let before = measure(&fs);
    let done = defrag(&fs);
    let after = measure(&fs);
    println!("{before:?}\n  {after:?}\n  {done:?}");
    assert!(before.free_runs > 40 && before.longest_free < 500, "{before:?}");
    assert!(10 * after.longest_free > 9 * after.free_blocks, "{after:?}");
    fs.unmount().expect("unmount");
    image.assert_clean("nodes of maps");
}

/// A tree without what may change of a directory: its size, and whether it has an index.
pub fn without_sizes(tree: Census) -> Census {
    let shortened = |told: String| match told.starts_with("Directory") {
        true => {
            let words = told.split(' ').enumerate().filter(|(at, _)| *at != 4).map(|(_, word)| word);
            words.collect::<Vec<_>>().join(" ").replace("INDEX | ", "").replace("INDEX", "0x0")
        }
        false => told,
    };
    tree.into_iter().map(|(path, told, content)| (path, shortened(told), content)).collect()
}
