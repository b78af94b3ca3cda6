//! Logs of `debugfs` and of the kernel replay as `e2fsck` replays them, and Extant's replay under `e2fsck` and the kernel.
//!
//! Tests that lack a tool, root or a loop device say so and end.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::PlainClient;
use extant_block::{BlockDevice, MemoryDevice};
use extant_journal::{Journal, LogMap, Options, recovery};
use extant_ondisk::FsBlock;
use extant_ondisk::jbd2::{Compat, MAGIC, Superblock};
use extant_rt::Arc;
use extant_testing::{Command, Random, scratch};

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

fn has_tools() -> bool {
    let all = ["mke2fs", "debugfs", "e2fsck"].iter().all(|tool| run(tool, &["-V"]).is_some());
    if !all {
        println!("skipped: mke2fs, debugfs or e2fsck is missing");
    }
    all
}

/// An ext4 image in a file.
struct Image {
    folder: tempfile::TempDir,
    path: PathBuf,
    block_size: u32,
}

impl Image {
    fn new(features: &str, block_size: u32, mib: u32) -> Self {
        let folder = scratch();
        let path = folder.path().join("image");
        let (size, whole) = (block_size.to_string(), format!("{mib}M"));
        let journal = format!("size={}", block_size * 1024 / (1 << 20));
        let name = path.to_str().expect("a name");
        let arguments = ["-q", "-F", "-t", "ext4", "-O", features, "-b", &size, "-J", &journal, name, &whole];
        let said = run("mke2fs", &arguments).expect("mke2fs");
        assert!(path.exists(), "{said}");
        Self { folder, path, block_size }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("a name")
    }

    fn debugfs(&self, commands: &str) {
        fs::write(self.folder.path().join("commands"), commands).expect("write");
        let mut debugfs = Command::new("debugfs");
        // In the folder, since files are named in the commands.
        debugfs.current_dir(self.folder.path()).args(["-w", "-f", "commands", self.name()]);
        debugfs.output().expect("debugfs");
    }

    fn map(&self) -> LogMap {
        let said = run("debugfs", &["-R", "blocks <8>", self.name()]).expect("debugfs");
        let blocks: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let runs = blocks.iter().enumerate().map(|(at, block)| (at as u32, FsBlock(*block), 1));
        LogMap::new(runs.collect()).expect("a map")
    }

    fn load(&self) -> MemoryDevice {
        load(&self.path)
    }

    fn store(&self, device: &MemoryDevice) {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).expect("read");
        fs::write(&self.path, bytes).expect("write");
    }

    fn blocks_count(&self) -> u64 {
        fs::metadata(&self.path).expect("metadata").len() / u64::from(self.block_size)
    }
}

fn load(path: &Path) -> MemoryDevice {
    let bytes = fs::read(path).expect("read");
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, &bytes).expect("write");
    device
}

/// The blocks in which two images differ.
fn differences(ours: &MemoryDevice, theirs: &MemoryDevice, block_size: u32) -> Vec<u64> {
    let read = |device: &MemoryDevice| {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).expect("read");
        bytes
    };
    let (ours, theirs) = (read(ours), read(theirs));
    let pairs = ours.chunks(block_size as usize).zip(theirs.chunks(block_size as usize));
    (0..).zip(pairs).filter(|(_, (a, b))| a != b).map(|(block, _)| block).collect()
}

fn journal_superblock(device: &MemoryDevice, map: &LogMap, block_size: u32) -> Superblock {
    let at = map.get(0).expect("a block").0;
    Superblock::parse(&common::read_block(device, block_size, at)).expect("a superblock")
}

/// Replays the image with Extant and with `e2fsck`, and compares; returns what was found.
fn compare_with_e2fsck(image: &Image, what: &str) -> recovery::Report {
    let map = image.map();
    let ours = image.load();
    let replay = recovery::replay(&ours, &map, image.block_size, image.blocks_count()).expect("replay");
    replay.checkpoint(&ours, &ours, &map).expect("checkpoint");
    let said = run("e2fsck", &["-y", "-E", "journal_only", image.name()]).expect("e2fsck");
    let theirs = image.load();
    // The file system's superblock has flags and times that e2fsck sets, and the log's has its own.
    let allowed = [1024 / u64::from(image.block_size), map.get(0).expect("a block").0];
    let different = differences(&ours, &theirs, image.block_size);
    let wrong: Vec<_> = different.iter().filter(|block| !allowed.contains(block)).collect();
    assert!(wrong.is_empty(), "{what}: blocks {wrong:?} differ; e2fsck: {said}; {:?}", replay.report);
    let our_sb = journal_superblock(&ours, &map, image.block_size);
    let their_sb = journal_superblock(&theirs, &map, image.block_size);
    assert_eq!((our_sb.s_start, our_sb.s_sequence), (0, their_sb.s_sequence), "{what}");
    replay.report
}

/// Whether the superblock names an orphan once the log is replayed.
fn leaves_orphans(copy: &MemoryDevice, image: &Image) -> bool {
    let map = image.map();
    let replay = recovery::replay(copy, &map, image.block_size, image.blocks_count()).expect("replay");
    let replayed = MemoryDevice::new(copy.size());
    let mut bytes = vec![0; copy.size() as usize];
    copy.read_at(0, &mut bytes).expect("read");
    replayed.write_at(0, &bytes).expect("write");
    replay.checkpoint(&replayed, &replayed, &map).expect("checkpoint");
    let mut last_orphan = [0; 4];
    replayed.read_at(1024 + 0xE8, &mut last_orphan).expect("read");
    last_orphan != [0; 4]
}

/// Random transactions for debugfs to write.
fn debugfs_commands(image: &Image, rng: &mut Random, open: &str) -> String {
    let mut commands = format!("{open}\n");
    let first = image.blocks_count() * 3 / 4;
    let count = 1 + rng.below(12);
    for transaction in 0..count {
        let is_last = transaction + 1 == count;
        let most = if rng.one_in(6) { 80 } else { 20 };
        let mut blocks: Vec<u64> = (0..1 + rng.below(most)).map(|_| first + rng.below(120)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let mut bytes = rng.bytes(blocks.len() * image.block_size as usize);
        for copy in bytes.chunks_mut(image.block_size as usize) {
            if rng.one_in(4) {
                copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
        }
        let name = format!("copies{transaction}");
        fs::write(image.folder.path().join(&name), bytes).expect("write");
        let list = |blocks: &[u64]| blocks.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        match rng.below(4) {
            0 => commands += &format!("jw -r {} /dev/null\n", list(&blocks)),
            // Revoked and written by one transaction: recovery must leave the copies out. Others would lie over
            // its commit block, so debugfs writes one only at the end.
            1 if is_last => {
                let some = &blocks[..blocks.len().div_ceil(2)];
                commands += &format!("jw -b {} -r {} {name}\n", list(&blocks), list(some));
            }
            2 if is_last => commands += &format!("jw -b {} -c {name}\n", list(&blocks)),
            _ => commands += &format!("jw -b {} {name}\n", list(&blocks)),
        }
    }
    commands + "jc\n"
}

#[test]
fn logs_of_debugfs_replay_as_e2fsck_replays_them() {
    if !has_tools() {
        return;
    }
    let mut transactions = 0;
    let mut revoked = 0;
    for seed in 0..24 {
        let mut rng = Random::new(seed);
        let features =
            ["metadata_csum,64bit", "metadata_csum,^64bit", "^metadata_csum,64bit", "^metadata_csum,^64bit"];
        let open = ["jo -c -v 3", "jo -c -v 2", "jo"][seed as usize % 3];
        let block_size = if rng.one_in(3) { 4096 } else { 1024 };
        let image = Image::new(features[seed as usize / 3 % 4], block_size, 24);
        image.debugfs(&debugfs_commands(&image, &mut rng, open));
        let report = compare_with_e2fsck(&image, &format!("seed {seed}, {open}"));
        transactions += report.transactions;
        revoked += report.revoked_copies;
    }
    assert!(transactions > 80 && revoked > 100, "{transactions} transactions, {revoked} revoked copies");
}

/// Writes random transactions to the image's journal, which wraps, and leaves it so. Returns what must be at its final location
/// after recovery.
fn dirty_log(image: &Image, rng: &mut Random, options: Options) -> BTreeMap<FsBlock, Vec<u8>> {
    let map = image.map();
    let device = Arc::new(image.load());
    let journal =
        Journal::open(device.clone(), device.clone(), image.block_size, map, options).expect("open");
    let client = PlainClient::attach(&journal);
    let first = image.blocks_count() * 3 / 4;
    let mut expected = BTreeMap::new();
    for _ in 0..40 {
        let handle = journal.start(100).expect("start");
        let mut freed = Vec::new();
        for _ in 0..rng.below(100) {
            let block = first + rng.below(300);
            if rng.one_in(6) {
                if client.pending.lock().contains_key(&FsBlock(block)) {
                    continue;
                }
                handle.revoke(FsBlock(block));
                freed.push(block);
            } else if !freed.contains(&block) {
                let mut bytes = rng.bytes(image.block_size as usize);
                if rng.one_in(4) {
                    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
                }
                client.change(block, &bytes);
                expected.insert(FsBlock(block), bytes);
            }
        }
        handle.finish();
        journal.commit_running().expect("commit");
        for block in freed {
            // Now it is file content, written without the journal.
            let bytes = rng.bytes(image.block_size as usize);
            device.write_at(block * u64::from(image.block_size), &bytes).expect("write");
            expected.insert(FsBlock(block), bytes);
        }
        if rng.one_in(12) {
            journal.checkpoint().expect("checkpoint");
        }
    }
    assert!(journal.stats().log_blocks > 1100, "the log did not wrap");
    image.store(&device);
    image.debugfs("feature needs_recovery\n");
    expected
}

fn assert_home(image: &Image, expected: &BTreeMap<FsBlock, Vec<u8>>, what: &str) {
    let device = image.load();
    for (block, bytes) in expected {
        let found = common::read_block(&device, image.block_size, block.0);
        assert!(found == *bytes, "{what}: block {block} has other content");
    }
}

fn our_logs(mut replay: impl FnMut(&Image, &str)) {
    for seed in 0..8 {
        let mut rng = Random::new(seed);
        let checksums = seed % 2 == 0;
        let block_numbers_64bit = seed % 4 < 2;
        let csum = if checksums { "metadata_csum" } else { "^metadata_csum" };
        let wide = if block_numbers_64bit { "64bit" } else { "^64bit" };
        let block_size = if seed % 3 == 0 { 4096 } else { 1024 };
        let image = Image::new(&format!("{csum},{wide}"), block_size, 24);
        let options = Options { checksums, block_numbers_64bit, ..Options::default() };
        let expected = dirty_log(&image, &mut rng, options);
        let what = format!("seed {seed}, checksums {checksums}, 64bit {block_numbers_64bit}");
        replay(&image, &what);
        assert_home(&image, &expected, &what);
    }
}

#[test]
fn our_logs_replay_under_e2fsck() {
    if !has_tools() {
        return;
    }
    our_logs(|image, what| {
        let report = compare_with_e2fsck(image, what);
        assert!(report.transactions > 0, "{what}");
        let said = run("e2fsck", &["-fn", image.name()]).expect("e2fsck");
        assert!(!said.contains("Fix?") && !said.contains("WARNING"), "{what}: {said}");
    });
}

/// Mounted on a loop device; unmounted on drop.
struct Mounted {
    point: PathBuf,
}

impl Mounted {
    fn new(image: &Image, options: &str) -> Option<Self> {
        let point = image.folder.path().join("mounted");
        fs::create_dir_all(&point).expect("a folder");
        let name = point.to_str().expect("a name");
        let done =
            Command::new("mount").args(["-o", &format!("loop,{options}"), image.name(), name]).output();
        match done {
            Ok(output) if output.status.success() => Some(Self { point }),
            _ => {
                println!(
                    "skipped: no mount with {options} (root, loop devices and a kernel with ext4 are needed)"
                );
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        extant_testing::unmount(&self.point);
    }
}

#[test]
fn our_logs_replay_under_the_kernel() {
    if !has_tools() {
        return;
    }
    let probe = Image::new("metadata_csum", 1024, 24);
    if Mounted::new(&probe, "noatime").is_none() {
        return;
    }
    our_logs(|image, what| {
        assert!(Mounted::new(image, "noatime").is_some(), "{what}: the kernel refuses the log");
        let said = run("e2fsck", &["-fn", image.name()]).expect("e2fsck");
        assert!(!said.contains("Fix?") && !said.contains("WARNING"), "{what}: {said}");
    });
}

fn fsync(path: &Path) {
    // Windows syncs what is open for writing.
    fs::File::options().write(true).open(path).expect("open").sync_all().expect("fsync");
}

/// Work that leaves a log with revokes, escapes and several transactions.
fn work(point: &Path, rng: &mut Random) {
    let sync = |name: &str, bytes: &[u8]| {
        let path = point.join(name);
        fs::write(&path, bytes).expect("write");
        fsync(&path);
    };
    let mut magic = MAGIC.to_be_bytes().repeat(3000);
    for round in 0..30 {
        let folder = point.join(format!("folder{round}"));
        fs::create_dir(&folder).expect("mkdir");
        for file in 0..rng.below(80) {
            fs::write(folder.join(format!("{file}{}", "x".repeat(60))), [file as u8]).expect("write");
        }
        magic.extend(rng.bytes(500));
        sync(&format!("file{round}"), &magic);
        if rng.one_in(2) {
            // Directory blocks are freed: revoked, and soon content of files.
            fs::remove_dir_all(&folder).expect("rmdir");
            sync(&format!("after{round}"), &rng.bytes(60_000));
        }
    }
}

#[test]
fn logs_of_the_kernel_replay_as_e2fsck_replays_them() {
    if !has_tools() {
        return;
    }
    let cases = [
        ("metadata_csum,64bit", "commit=600"),
        ("metadata_csum,^64bit", "commit=600,data=journal"),
        ("^metadata_csum,64bit", "commit=600,data=journal"),
        ("^metadata_csum,^64bit", "commit=600"),
        ("^metadata_csum,64bit", "commit=600,journal_checksum"),
        ("^metadata_csum,^64bit", "commit=600,journal_checksum,data=journal"),
        ("metadata_csum,64bit", "commit=600,journal_async_commit"),
    ];
    let (mut revokes, mut wrapped, mut version_1) = (0, 0, 0);
    for (seed, (features, options)) in cases.iter().enumerate() {
        let image = Image::new(features, 1024, 24);
        let Some(mounted) = Mounted::new(&image, options) else { return };
        work(&mounted.point, &mut Random::new(seed as u64));
        // The state that a power cut would leave: everything that was synced, and the current log.
        let mut copy = image.load();
        // Inodes that the kernel is still about to delete, e2fsck deletes too, and that is no replay.
        for _ in 0..20 {
            if !leaves_orphans(&copy, &image) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
            let path = mounted.point.join("later");
            fs::write(&path, b"later").expect("write");
            fsync(&path);
            copy = image.load();
        }
        drop(mounted);
        image.store(&copy);
        let sb = journal_superblock(&copy, &image.map(), image.block_size);
        version_1 += u32::from(sb.s_feature_compat.contains(Compat::CHECKSUM));
        let report = compare_with_e2fsck(&image, &format!("{features} {options}"));
        assert!(report.transactions > 3, "{features} {options}: {report:?}");
        revokes += report.revokes;
        wrapped += u32::from(report.end_block < sb.s_start);
        let said = run("e2fsck", &["-fn", image.name()]).expect("e2fsck");
        // The kernel counts anew when it mounts; what the superblock says until then is old.
        let counts = said.matches("Free blocks count wrong (").count()
            + said.matches("Free inodes count wrong (").count();
        assert!(
            !said.contains("WARNING") && said.matches("Fix?").count() == counts,
            "{features} {options}: {said}"
        );
    }
    assert!(
        revokes > 0 && wrapped > 0 && version_1 == 2,
        "{revokes} revokes, {wrapped} wrapped, {version_1} of v1"
    );
}

#[test]
fn fast_commits_of_the_kernel_are_found() {
    if !has_tools() {
        return;
    }
    let image = Image::new("metadata_csum,fast_commit", 1024, 24);
    let Some(mounted) = Mounted::new(&image, "commit=600") else { return };
    for name in ["first", "second", "third"] {
        let file = fs::File::create(mounted.point.join(name)).expect("create");
        file.sync_all().expect("fsync");
    }
    let copy = image.load();
    drop(mounted);
    let map = image.map();
    let sb = journal_superblock(&copy, &map, image.block_size);
    if sb.fast_commit_blocks() == 0 {
        println!("skipped: the kernel makes no fast commits");
        return;
    }
    let replay = recovery::replay(&copy, &map, image.block_size, image.blocks_count()).expect("replay");
    assert!(replay.has_fast_commits() && !replay.fast_commit_records.is_empty(), "{:?}", replay.report);
    replay.checkpoint(&copy, &copy, &map).expect("checkpoint");
    let again = recovery::replay(&copy, &map, image.block_size, image.blocks_count()).expect("replay");
    assert_eq!(again.fast_commit_records, replay.fast_commit_records);
    // An image that the kernel has unmounted needs no replay, and has no records.
    let clean = image.load();
    let replay = recovery::replay(&clean, &map, image.block_size, image.blocks_count()).expect("replay");
    assert!(replay.is_empty() && !replay.has_fast_commits());
}
