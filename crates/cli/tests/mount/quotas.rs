//! Quotas: the library, a mount and the kernel count the same and refuse the same steps.
//!
//! The three work on one disk in turn, and leave it as a crash does now and then. After each turn e2fsck, which counts usage itself, and a
//! count of all that names lead to must agree with what the quota files say. The kernel's side is a [guest](extant_testing::Guest). `EXTANT_QUOTA_STEPS` says how
//! many steps in all; `make test-quota` takes 100,000.

mod guest;
mod ours;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use extant::{Filesystem, Mount, Quota, QuotaType, SetQuota};
use extant_testing::{Guest, Random};

use crate::common::{Disk, assert_clean, can_mount, is_root, path, seed};
use ours::Worker;

const LIMITS: &str = "usrquota,grpquota,prjquota,allow_other";
/// A step that a limit refuses (`EDQUOT`).
const REFUSED: &str = "errno 122";
const STEPS_PER_TURN: u64 = 1000;

/// What the agent said of each step.
fn results(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.trim_start_matches(['\r', ' ']).strip_prefix("R "));
    let mut results = Vec::new();
    for line in lines {
        let Some((number, result)) = line.split_once(' ') else { continue };
        assert_eq!(number.parse().ok(), Some(results.len()), "a line is missing: {said}");
        results.push(result.trim_end().to_owned());
    }
    results
}

/// A disk of mke2fs that counts users, groups and projects; None, and the reason said, without the tools.
fn disk(block_size: u32) -> Option<Disk> {
    if !can_mount() || !is_root() {
        println!("skipped: needs root and /dev/fuse");
        return None;
    }
    let disk = Disk::new("64M");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", &block_size.to_string(), "-N", "4096", "-O", "quota,project"])
        .args(["-E", "quotatype=usrquota:grpquota:prjquota"])
        .arg(&disk.image)
        .env("PATH", path())
        .output();
    match made {
        Ok(output) if output.status.success() => Some(disk),
        other => {
            println!("skipped: mke2fs: {other:?}");
            None
        }
    }
}

/// Does steps on a mount: what came of each.
fn work_mounted(disk: &Disk, steps: &[String]) -> Vec<String> {
    let script = disk.image.with_extension("script");
    fs::write(&script, steps.join("\n") + "\nend\n").expect("script");
    let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/quotas/agent.pl");
    let output = Command::new("perl").arg(agent).arg(&disk.point).arg(&script).output().expect("perl");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("R end"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    results(&said)
}

fn open(image: &Path, pages: u64) -> Filesystem {
    let how = Mount::new().background(false).page_cache_bytes(pages).enforce_quotas(&QuotaType::ALL);
    how.open(image).expect("mount")
}

/// What names lead to, by id: bytes and inodes.
fn counted(fs: &Filesystem, quota_type: QuotaType) -> BTreeMap<u32, (u64, u64)> {
    let mut usage: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut pending = vec![fs.lookup("/").expect("the root")];
    while let Some(file) = pending.pop() {
        let metadata = file.metadata();
        if !seen.insert(metadata.inode) {
            continue;
        }
        let id = [metadata.uid, metadata.gid, metadata.project][quota_type as usize];
        let used = usage.entry(id).or_default();
        *used = (used.0 + metadata.blocks_512 * 512, used.1 + 1);
        if file.is_dir() {
            let dir = file.into_dir().expect("a directory");
            let entries = dir.entries().expect("entries");
            pending.extend(entries.iter().filter_map(|entry| dir.lookup(&entry.name).ok()));
        }
    }
    usage
}

fn used(quotas: &[Quota]) -> BTreeMap<u32, (u64, u64)> {
    let all = quotas.iter().map(|quota| (quota.id, (quota.space_bytes, quota.inodes)));
    all.filter(|(_, used)| *used != (0, 0)).collect()
}

/// Asserts that usage is what e2fsck and a walk count, on a copy that Extant replayed.
fn assert_counted(image: &Path, case: &str) {
    let copy = image.with_extension("copy");
    fs::copy(image, &copy).expect("copy");
    let fs = open(&copy, 0);
    for quota_type in QuotaType::ALL {
        let (said, counted) = (used(&fs.quotas(quota_type).expect("quotas")), counted(&fs, quota_type));
        if said != counted {
            let kept = std::env::temp_dir().join("extant-quotas-failed.img");
            fs::copy(image, &kept).expect("copy");
            panic!(
                "{case}, {quota_type:?}: {said:?} in the file, {counted:?} on the disk, which is kept as {}",
                kept.display()
            );
        }
    }
    fs.unmount().expect(case);
    assert_clean(&copy);
    fs::remove_file(&copy).expect("removed");
}

/// A name of few, so that steps meet.
fn name(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("n{}", random.below(12)),
        _ => format!("d{}/n{}", random.below(5), random.below(20)),
    }
}

fn id(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => random.below(1 << 31),
        1 => 0,
        _ => 1000 + random.below(4),
    }
}

/// The ids that a change gives.
fn ids_in(step: &str) -> Vec<u32> {
    let words: Vec<&str> = step.split(' ').collect();
    let ids = match words[..] {
        ["chown" | "project", _, ref ids @ ..] => ids,
        _ => &[],
    };
    ids.iter().map(|id| id.parse().expect("an id")).collect()
}

/// A change of files at random.
fn change(random: &mut Random) -> String {
    let (path, other) = (name(random), name(random));
    let (offset, bytes) = (random.below(1 << 18), random.below(1 << 16) + 1);
    match random.below(100) {
        0..14 => format!("create {path}"),
        14..34 => format!("write {path} {offset} {bytes}"),
        34..40 => format!("truncate {path} {offset}"),
        40..45 => format!("allocate {path} {offset} {bytes}"),
        45..47 => format!("keep {path} {offset} {bytes}"),
        47..52 => format!("punch {path} {offset} {bytes}"),
        52..54 => format!("zero {path} {offset} {bytes}"),
        54..62 => format!("chown {path} {} {}", id(random), id(random)),
        62..66 => format!("project {path} {}", id(random)),
        66 => format!("inherit d{}", random.below(5)),
        67..73 => format!("xattr {path} {}", 1 + random.below(900)),
        73..77 => format!("link {path} {other}"),
        77..80 => format!("symlink {path} {}", 1 + random.below(200)),
        80..86 => format!("rename {path} {other}"),
        86..95 => format!("unlink {path}"),
        95 => format!("rmdir {path}"),
        96 => format!("mkdir {path}"),
        97 => format!("mkdir d{}", random.below(5)),
        98 => format!("hold {path}"),
        _ => ["drop", "sync"][random.below(2) as usize].to_owned(),
    }
}

#[test]
fn usage_is_right_after_turns_of_the_library_a_mount_and_the_kernel() {
    let steps_max = std::env::var("EXTANT_QUOTA_STEPS").ok().and_then(|text| text.parse().ok());
    let steps_max: u64 = steps_max.unwrap_or(4000);
    let Some(mut disk) = disk(if seed().is_multiple_of(2) { 1024 } else { 4096 }) else { return };
    let mut random = Random::new(seed());
    let guest = guest::find();
    let (mut worked, mut crashes, mut turns) = ([0_usize; 3], 0, 0);
    let mut ids = BTreeSet::from([0]);
    let mut done = 0;
    while done < steps_max {
        let turn = turns % 3;
        turns += 1;
        done += STEPS_PER_TURN;
        let mut steps: Vec<String> = (0..STEPS_PER_TURN).map(|_| change(&mut random)).collect();
        ids.extend(steps.iter().flat_map(|step| ids_in(step)));
        let crash = random.below(3) == 0;
        let case = format!("turn {turns}, of {}", ["the library", "a mount", "the kernel"][turn]);
        let results = match (turn, &guest) {
            (1, _) => {
                let pages = ["page_cache=0", "page_cache=16M"][random.below(2) as usize];
                disk.serve_with(&format!("{LIMITS},{pages}"));
                let results = work_mounted(&disk, &steps);
                if crash {
                    disk.kill();
                }
                disk.umount();
                if !crash {
                    disk.wait();
                }
                results
            }
            (2, Some(guest)) => {
                // Else what is held open without a name is left to the next mount.
                steps.extend((!crash || random.below(2) == 0).then(|| "drop".to_owned()));
                steps.push("sync".to_owned());
                steps.extend((0..3).map(|of| format!("quotas {of}")));
                // One by one too: the kernel's list misses ids at times.
                let all: String = ids.iter().map(|id| format!(" {id}")).collect();
                steps.extend((0..3).map(|of| format!("usage {of}{all}")));
                steps.extend(crash.then(|| "crash".to_owned()));
                guest::work(guest, &disk.image, &steps)
            }
            _ => {
                let fs = open(&disk.image, [0, 16 << 20, 64 << 10][random.below(3) as usize]);
                let mut worker = Worker::new(&fs);
                let results = worker.work(&steps);
                if crash {
                    fs.force_shutdown(false).expect(&case);
                }
                drop(worker);
                // After a shutdown there is nothing to write.
                let unmounted = fs.unmount();
                assert!(unmounted.is_ok() || crash, "{case}: {unmounted:?}");
                results
            }
        };
        assert_eq!(results.len(), steps.len(), "{case}");
        worked[turn] += results.iter().filter(|result| result.starts_with("ok")).count();
        crashes += usize::from(crash);
        assert_counted(&disk.image, &case);
        if turn == 2 && guest.is_some() {
            assert_kernel_saw(&disk.image, &steps, &results, &case);
        }
    }
    assert!(worked[0] > 200 && worked[1] > 200, "{worked:?}");
    println!(
        "{done} steps in {turns} turns, {crashes} of which ended in a crash: {worked:?} did something; usage is right"
    );
}

/// Asserts that the kernel's own figures at the end of its turn, which it made durable, are those of the disk.
fn assert_kernel_saw(image: &Path, steps: &[String], results: &[String], case: &str) {
    let copy = image.with_extension("copy");
    fs::copy(image, &copy).expect("copy");
    let fs = open(&copy, 0);
    let last = |verb: &str| steps.iter().rposition(|step| step.starts_with(verb));
    let has_orphans = last("hold") > last("drop");
    for (of, quota_type) in QuotaType::ALL.into_iter().enumerate() {
        let said = |verb: &str| {
            let at = last(&format!("{verb} {of}")).expect("a step");
            results[at].strip_prefix("ok ").expect(case).split(',')
        };
        let kernel: BTreeMap<u32, (u64, u64)> = said("quotas")
            .chain(said("usage"))
            .filter_map(|one| {
                let fields: Vec<u64> = one.split(':').map_while(|field| field.parse().ok()).collect();
                Some((u32::try_from(*fields.first()?).ok()?, (*fields.get(1)?, *fields.get(2)?)))
            })
            .filter(|(_, used)| *used != (0, 0))
            .collect();
        let ours = used(&fs.quotas(quota_type).expect(case));
        let sum = |usage: &BTreeMap<u32, (u64, u64)>| usage.values().map(|(_, inodes)| inodes).sum::<u64>();
        // Files that were held open without a name are gone since.
        if has_orphans {
            assert!(sum(&kernel) >= sum(&ours), "{case}: {quota_type:?}");
        } else {
            assert_eq!(kernel, ours, "{case}: {quota_type:?}");
        }
    }
    fs.unmount().expect(case);
    fs::remove_file(&copy).expect("removed");
}

/// Limits of users, a group and a project: soft and hard ones, of KiB and of inodes.
const LIMITED: [(QuotaType, u32, [u64; 4]); 5] = [
    (QuotaType::User, 1000, [0, 240, 0, 14]),
    (QuotaType::User, 1001, [100, 300, 6, 12]),
    (QuotaType::Group, 100, [0, 500, 0, 0]),
    (QuotaType::Group, 101, [60, 0, 0, 9]),
    (QuotaType::Project, 7, [0, 150, 4, 7]),
];

fn set_limits(image: &Path, grace_s: u32) {
    let fs = open(image, 0);
    for quota_type in QuotaType::ALL {
        let grace = extant::QuotaGrace { space_seconds: grace_s, inode_seconds: grace_s };
        fs.set_quota_grace(quota_type, grace).expect("grace");
    }
    for (quota_type, id, [soft, hard, inodes_soft, inodes_hard]) in LIMITED {
        let set = SetQuota {
            space_soft_bytes: Some(soft * 1024),
            space_hard_bytes: Some(hard * 1024),
            inodes_soft: Some(inodes_soft),
            inodes_hard: Some(inodes_hard),
            ..SetQuota::default()
        };
        fs.set_quota(quota_type, id, &set).expect("limits");
    }
    fs.unmount().expect("unmount");
}

/// Directories of the users, and one of the project in which all may write.
fn homes() -> Vec<String> {
    let users = (0..3).flat_map(|user| {
        let home = format!("h{user}");
        [format!("mkdir {home}"), format!("chown {home} {} {}", 1000 + user, 100 + user % 2)]
    });
    let of_project = ["mkdir p", "project p 7", "inherit p", "chmod p 777"].map(str::to_owned);
    users.chain(of_project).collect()
}

/// A step of a user who has limits.
fn limited(random: &mut Random, user: u64) -> String {
    let name = |random: &mut Random| match random.below(4) {
        0 => format!("p/u{user}-{}", random.below(6)),
        1 => format!("h{user}/d/n{}", random.below(8)),
        _ => format!("h{user}/n{}", random.below(10)),
    };
    let (path, other) = (name(random), name(random));
    // Without holes and nothing allocated behind the end: a file has few extents, for blocks of trees count, and where there are some is
    // the allocator's to decide; and Linux frees what is behind the end when a write is refused.
    let bytes = 1 + random.below(60_000);
    match random.below(40) {
        0..9 => format!("create {path}"),
        9..19 => format!("write {path} 0 {bytes}"),
        19 => format!("truncate {path} 0"),
        20..24 => format!("allocate {path} 0 {bytes}"),
        24..27 => format!("xattr {path} {}", 200 + random.below(500)),
        27 => format!("symlink {path} {}", 100 + random.below(100)),
        28 => format!("rename {path} {other}"),
        29..32 => format!("unlink {path}"),
        32 => format!("mkdir h{user}/d"),
        33 => format!("mkdir h{user}/n{}", random.below(10)),
        34..36 => format!("chown {path} {} {}", 1000 + user, 100 + random.below(2)),
        36..38 => format!("project {path} {}", 7 * random.below(2)),
        _ => "df p".to_owned(),
    }
}

/// Does the same steps on copies of a disk by the library and on mounts, each with and without pages, and in the kernel: what came of them.
fn work_on_each(disk: &mut Disk, guest: Option<&Guest>, steps: &[String]) -> Vec<(String, Vec<String>)> {
    let base = disk.image.with_extension("base");
    fs::copy(&disk.image, &base).expect("copy");
    let mut outcomes = Vec::new();
    for pages in [0, 16 << 20] {
        fs::copy(&base, &disk.image).expect("copy");
        let fs = open(&disk.image, pages);
        let results = Worker::new(&fs).work(steps);
        fs.unmount().expect("unmount");
        assert_counted(&disk.image, "the library");
        outcomes.push((format!("the library, {pages} bytes of pages"), results));
        fs::copy(&base, &disk.image).expect("copy");
        disk.serve_with(&format!("{LIMITS},page_cache={pages}"));
        let results = work_mounted(disk, steps);
        disk.umount();
        disk.wait();
        assert_counted(&disk.image, "a mount");
        outcomes.push((format!("a mount, {pages} bytes of pages"), results));
    }
    if let Some(guest) = guest {
        fs::copy(&base, &disk.image).expect("copy");
        let results = guest::work(guest, &disk.image, steps);
        assert_counted(&disk.image, "the kernel");
        outcomes.push(("the kernel".to_owned(), results));
    }
    fs::copy(&base, &disk.image).expect("copy");
    fs::remove_file(&base).expect("removed");
    outcomes
}

/// Of errors only whether it is that of a limit: which of several others comes first is not at issue.
fn kind(result: &String) -> &str {
    if result.starts_with("errno") && result != REFUSED { "another error" } else { result }
}

fn assert_same(steps: &[String], outcomes: &[(String, Vec<String>)]) {
    let (first, expected) = &outcomes[0];
    for (who, results) in &outcomes[1..] {
        for (at, step) in steps.iter().enumerate() {
            let before = steps[..at].iter().rev().take(12).rev();
            assert_eq!(
                results.get(at).map(kind),
                expected.get(at).map(kind),
                "{who} ({:?}) and {first} ({:?}), step {at}: {step}, after {:?}",
                results.get(at),
                expected.get(at),
                before.collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn limits_refuse_the_same_steps_in_the_library_on_a_mount_and_in_the_kernel() {
    let guest = guest::find();
    // Fixed: the three place blocks at other places, which matters to few sequences.
    let seed = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("EXTANT_SEED={seed}");
    let mut random = Random::new(seed);
    for block_size in [4096, 1024] {
        let Some(mut disk) = disk(block_size) else { return };
        set_limits(&disk.image, 24 * 60 * 60);
        let mut steps = homes();
        for _ in 0..12 {
            let user = random.below(4).min(2);
            steps.push(match user {
                2 => format!("user {}", ["1002 100", "0 0"][random.below(2) as usize]),
                _ => format!("user {} {} 100 101", 1000 + user, 100 + user),
            });
            for _ in 0..40 {
                let step = limited(&mut random, user);
                // Linux allocates over delayed blocks as if they were not reserved yet, and refuses that near a limit.
                steps.extend(step.starts_with("allocate").then(|| "sync".to_owned()));
                steps.push(step);
            }
        }
        // Linux takes of limits by pages: with smaller blocks it writes less before it refuses.
        let guest = guest.as_ref().filter(|_| block_size == 4096);
        let outcomes = work_on_each(&mut disk, guest, &steps);
        assert_same(&steps, &outcomes);
        let refused = outcomes[0].1.iter().filter(|result| *result == REFUSED).count();
        assert!(refused > 5, "{refused} of {} steps were refused", steps.len());
        println!(
            "blocks of {block_size}: {refused} of {} steps refused by {} alike",
            steps.len(),
            outcomes.len()
        );
    }
}

#[test]
fn soft_limits_hold_after_their_grace_time_alike() {
    let guest = guest::find();
    let Some(mut disk) = disk(4096) else { return };
    set_limits(&disk.image, 1);
    let mut steps = homes();
    let add =
        |steps: &mut Vec<String>, more: &[&str]| steps.extend(more.iter().map(|step| (*step).to_owned()));
    add(&mut steps, &["user 1001 101", "create h1/a", "write h1/a 0 40000"]);
    // Beyond the soft limit of the group, then of the user; then of inodes.
    add(
        &mut steps,
        &[
            "write h1/a 40000 30000",
            "sleep 2",
            "write h1/a 70000 8000",
            "write h1/a 80000 9",
            "write h1/a 0 8000",
        ],
    );
    add(&mut steps, &["user 0 0", "write h1/a 70000 60000", "user 1001 101", "allocate h1/a 0 200000"]);
    add(&mut steps, &["truncate h1/a 0", "write h1/a 0 50000", "write h1/a 50000 20000", "sleep 2"]);
    add(&mut steps, &["write h1/a 70000 4096", "unlink h1/a", "create h1/b", "create h1/c", "create h1/d"]);
    add(&mut steps, &["create h1/e", "create h1/f", "create h1/g", "create h1/h", "sleep 2", "create h1/i"]);
    add(
        &mut steps,
        &["unlink h1/b", "create h1/i", "unlink h1/c", "unlink h1/d", "create h1/i", "create h1/j"],
    );
    let outcomes = work_on_each(&mut disk, guest.as_ref(), &steps);
    assert_same(&steps, &outcomes);
    let refused = outcomes[0].1.iter().filter(|result| *result == REFUSED).count();
    assert!(refused >= 4, "{refused}: {:?}", outcomes[0].1);
}
