//! Operations that both sides know, drawn at random.

use extant_testing::Random;

/// An operation on paths without a leading slash. A side that cannot do it, because a name is missing or taken,
/// leaves it.
#[derive(Debug)]
pub enum Op {
    Mkdir(String),
    Write {
        path: String,
        offset: u64,
        bytes: usize,
        fill: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Allocate {
        path: String,
        offset: u64,
        bytes: u64,
        keep_size: bool,
    },
    Zero {
        path: String,
        offset: u64,
        bytes: u64,
    },
    Punch {
        path: String,
        offset: u64,
        bytes: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Unlink(String),
    Rmdir(String),
    Chmod {
        path: String,
        mode: u16,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    Utimes {
        path: String,
        seconds: i64,
        nanoseconds: u32,
    },
    SetXattr {
        path: String,
        name: String,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Device {
        path: String,
        major: u32,
        minor: u32,
    },
    /// Many small files in one directory, so that it grows and gets an index.
    Fill {
        dir: String,
        count: u64,
        stem: u64,
    },
    /// Every other of them goes.
    Thin {
        dir: String,
        count: u64,
        stem: u64,
    },
}

fn dir(random: &mut Random) -> String {
    ["", "d0/", "d1/", "d0/e/", "d1/long-directory-name/"][random.below(5) as usize].to_owned()
}

fn path(random: &mut Random) -> String {
    let dir = dir(random);
    match random.below(8) {
        0 => format!("{dir}{}", "n".repeat(200)),
        n => format!("{dir}f{n}"),
    }
}

/// The next operation.
pub fn draw(random: &mut Random) -> Op {
    let offset = |random: &mut Random| match random.below(4) {
        0 => 0,
        1 => random.below(5000),
        2 => random.below(64) * 4096,
        _ => random.below(2_000_000),
    };
    match random.below(24) {
        0..=1 => Op::Mkdir(
            ["d0", "d1", "d0/e", "d1/long-directory-name", "d0/g"][random.below(5) as usize].to_owned(),
        ),
        2..=6 => {
            let bytes = [1, 60, 700, 4096, 5000, 70_000, 300_000][random.below(7) as usize];
            Op::Write { path: path(random), offset: offset(random), bytes, fill: random.next() as u8 | 1 }
        }
        7 => Op::Truncate { path: path(random), size: offset(random) },
        8 => Op::Allocate {
            path: path(random),
            offset: offset(random),
            bytes: 1 + random.below(200_000),
            keep_size: random.below(2) == 0,
        },
        9 => Op::Punch { path: path(random), offset: offset(random), bytes: 1 + random.below(100_000) },
        10 => Op::Zero { path: path(random), offset: offset(random), bytes: 1 + random.below(100_000) },
        11..=12 => Op::Rename { from: path(random), to: path(random) },
        13 => Op::Link { from: path(random), to: path(random) },
        14 => {
            let target = "t".repeat([5, 59, 60, 61, 500][random.below(5) as usize]);
            Op::Symlink { target, path: path(random) }
        }
        15 => Op::Unlink(path(random)),
        16 => Op::Rmdir(["d0/e", "d0/g", "d1/long-directory-name"][random.below(3) as usize].to_owned()),
        17 => Op::Chmod { path: path(random), mode: random.below(0o10000) as u16 },
        18 => Op::Chown {
            path: path(random),
            uid: random.below(100_000) as u32,
            gid: random.below(100_000) as u32,
        },
        19 => Op::Utimes {
            path: path(random),
            seconds: [0, 1, 1_700_000_000, 2_147_483_647][random.below(4) as usize],
            nanoseconds: random.below(1_000_000_000) as u32,
        },
        20 => {
            let name = format!("user.{}", ["a", "b", "long-attribute-name"][random.below(3) as usize]);
            // The last fits into no block; some files have the same.
            let bytes = [0, 1, 30, 100, 500, 9000][random.below(6) as usize];
            let value = vec![b'v' + random.below(3) as u8; bytes];
            Op::SetXattr { path: path(random), name, value }
        }
        21 => Op::RemoveXattr { path: path(random), name: "user.a".to_owned() },
        22 => Op::Device {
            path: path(random),
            major: random.below(300) as u32,
            minor: random.below(70_000) as u32,
        },
        _ => {
            let (dir, count, stem) = (dir(random), 20 + random.below(180), random.below(4));
            if random.below(2) == 0 { Op::Fill { dir, count, stem } } else { Op::Thin { dir, count, stem } }
        }
    }
}

/// The name of a file of [`Op::Fill`].
pub fn filler(dir: &str, stem: u64, index: u64) -> String {
    format!("{dir}filler-{stem}-{index:05}")
}
