//! Aged disks: files in many parts, free space in many runs, directories that were large.

use extant::{Error, Fallocate, Filesystem, XattrMode};
use extant_testing::Random;

/// How a disk is aged.
pub struct Ageing {
    /// Small files that fill it, of which every other one goes again.
    pub small: u64,
    pub small_bytes: u64,
    /// Files that are then written into the holes.
    pub large: u64,
    pub large_bytes: u64,
    /// Names of a directory, of which one in eight stays.
    pub names: u64,
}

/// Ages a disk. What there is no room for is left out.
pub fn age(fs: &Filesystem, seed: u64, ageing: &Ageing) {
    let Ageing { small, small_bytes, large, large_bytes, names } = *ageing;
    let mut random = Random::new(seed);
    for folder in 0..4 {
        fs.create_dir(format!("/d{folder}")).expect("a directory");
    }
    fs.create_dir("/many").expect("a directory");
    fs.write("/many/file", b"of many names").expect("a file");
    let name = |number: u64| format!("/many/a-name-that-is-somewhat-long-{number}");
    (0..names).for_each(|number| fs.hard_link("/many/file", name(number)).expect("a link"));
    let path = |number: u64| format!("/d{}/s{number}", number % 4);
    let mut made = 0;
    while made < small {
        let bytes = vec![made as u8 | 1; 1 + random.below(small_bytes) as usize];
        match fs.write(path(made), &bytes).map_err(Error::into_cause) {
            Ok(()) => made += 1,
            Err(Error::NoSpace | Error::NoInodes) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let every_other = |number: &u64| (number / 4).is_multiple_of(2);
    (0..made).filter(every_other).for_each(|number| fs.remove_file(path(number)).expect("a file"));
    // What was freed is allocated after the commit.
    fs.sync().expect("sync");
    for number in 0..large {
        let bytes: Vec<u8> = (0..large_bytes).map(|at| (at / 512 * 7 + number) as u8 | 1).collect();
        let path = format!("/d{}/large{number}", number % 4);
        match fs.write(&path, &bytes).map_err(Error::into_cause) {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        let file = fs.options().write(true).open(&path).expect("the file");
        match number % 4 {
            // A hole, and unwritten blocks, some behind the end.
            // Not of a file with a block map.
            1 => drop(file.allocate(Fallocate::PunchHole, large_bytes / 4, large_bytes / 8)),
            2 => {
                let kept = Fallocate::Allocate { keep_size: true };
                drop(file.allocate(kept, large_bytes, large_bytes / 4));
                let zeroed =
                    file.allocate(Fallocate::ZeroRange { keep_size: true }, large_bytes / 2, large_bytes / 8);
                drop(zeroed);
            }
            3 => file.set_xattr(b"user.long", &[7; 500], XattrMode::default()).expect("an attribute"),
            _ => fs.hard_link(&path, format!("/d{}/link{number}", (number + 1) % 4)).expect("a link"),
        }
    }
    (0..names)
        .filter(|number| number % 8 != 0)
        .for_each(|number| fs.remove_file(name(number)).expect("a file"));
    (0..made)
        .filter(|number| number / 4 % 4 == 1)
        .for_each(|number| fs.remove_file(path(number)).expect("a file"));
    fs.sync().expect("sync");
}
