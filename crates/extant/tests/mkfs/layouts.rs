//! The same layout as `mke2fs`, number by number, and clean.

use extant::mkfs::Mkfs;
use extant_rt::share_work;

use crate::tools::{Image, assert_clean, has, run};

const UUID: &str = "11111111-2222-3333-4444-555555555555";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The options of a disk for `mke2fs` and for the builder.
#[derive(Clone, Copy)]
struct Case {
    bytes: u64,
    block_size: u32,
    inode_ratio: u32,
    inode_size: u16,
    features: &'static str,
    extended: &'static str,
    /// `-C`, `-G`, `-J size`, `-m`, `-N`.
    cluster: Option<u32>,
    flex: Option<u32>,
    journal: Option<u32>,
    reserved: Option<u8>,
    inodes: Option<u32>,
}

const PLAIN: Case = Case {
    bytes: 256 * MIB,
    block_size: 4096,
    inode_ratio: 16384,
    inode_size: 256,
    features: "",
    extended: "",
    cluster: None,
    flex: None,
    journal: None,
    reserved: None,
    inodes: None,
};

impl Case {
    fn name(&self) -> String {
        let options = self.arguments().join(" ");
        format!("{} KiB {options}", self.bytes / KIB)
    }

    fn arguments(&self) -> Vec<String> {
        let mut extended = String::from("nodiscard,lazy_itable_init=1");
        if !self.extended.is_empty() {
            extended = format!("{extended},{}", self.extended);
        }
        let (ratio, size) = (self.inode_ratio.to_string(), self.inode_size.to_string());
        let block_size = self.block_size.to_string();
        let fixed =
            ["-t", "ext4", "-q", "-F", "-U", UUID, "-b", &block_size, "-i", &ratio, "-I", &size, "-E"];
        let mut arguments: Vec<String> = fixed.map(str::to_owned).to_vec();
        arguments.push(extended);
        let mut option = |letter: &str, value: Option<String>| {
            if let Some(value) = value {
                arguments.extend([letter.to_owned(), value]);
            }
        };
        option("-O", (!self.features.is_empty()).then(|| self.features.to_owned()));
        option("-C", self.cluster.map(|bytes| bytes.to_string()));
        option("-G", self.flex.map(|flex| flex.to_string()));
        option("-J", self.journal.map(|megabytes| format!("size={megabytes}")));
        option("-m", self.reserved.map(|percent| percent.to_string()));
        option("-N", self.inodes.map(|count| count.to_string()));
        arguments
    }

    fn builder(&self) -> Mkfs {
        let mut mkfs =
            Mkfs::new().block_size(self.block_size).inode_ratio(self.inode_ratio).inode_size(self.inode_size);
        mkfs = mkfs
            .uuid_text(UUID)
            .and_then(|mkfs| mkfs.features(self.features)?.extended(self.extended))
            .expect("options");
        if let Some(bytes) = self.cluster {
            mkfs = mkfs.cluster_size(bytes);
        }
        if let Some(flex) = self.flex {
            mkfs = mkfs.groups_per_flex(flex);
        }
        if let Some(megabytes) = self.journal {
            mkfs = mkfs.journal_megabytes(megabytes);
        }
        if let Some(percent) = self.reserved {
            mkfs = mkfs.reserved_percent(f64::from(percent));
        }
        if let Some(inodes) = self.inodes {
            mkfs = mkfs.inodes(inodes);
        }
        mkfs
    }
}

/// Disks of many sizes and shapes.
fn cases() -> Vec<Case> {
    let sized = |bytes| Case { bytes, ..PLAIN };
    let small = |bytes| Case { bytes, block_size: 1024, inode_ratio: 4096, ..PLAIN };
    let with = |features| Case { features, ..PLAIN };
    let mut cases = vec![
        sized(MIB),
        sized(7 * MIB),
        sized(8 * MIB),
        sized(64 * MIB),
        sized(128 * MIB),
        sized(128 * MIB + 40 * KIB),
        sized(128 * MIB + 3 * MIB),
        sized(GIB),
        sized(5 * GIB + 12345 * KIB),
        sized(17 * GIB),
        sized(200 * GIB),
        sized(1024 * GIB),
        small(400 * KIB),
        small(3 * MIB + 1536),
        small(16 * MIB),
        small(100 * MIB),
        small(GIB),
        small(8 * GIB + 4 * MIB),
        Case { block_size: 2048, inode_ratio: 8192, ..PLAIN },
        Case { block_size: 2048, bytes: 3 * GIB, ..PLAIN },
        Case { inode_ratio: 4096, bytes: 129 * MIB, ..PLAIN },
        Case { inode_ratio: 4096, bytes: 3 * GIB, ..PLAIN },
        Case { inode_ratio: 1 << 20, bytes: 3 * GIB, ..PLAIN },
        Case { inode_size: 128, ..PLAIN },
        Case { inode_size: 512, bytes: GIB, ..PLAIN },
        Case { inode_size: 1024, ..PLAIN },
        Case { inodes: Some(5000), ..PLAIN },
        Case { inodes: Some(20), bytes: GIB, ..PLAIN },
        Case { reserved: Some(0), ..PLAIN },
        Case { reserved: Some(17), bytes: 3 * GIB + 4 * MIB, ..PLAIN },
        Case { journal: Some(4), ..PLAIN },
        Case { journal: Some(100), bytes: 3 * GIB, ..PLAIN },
        Case { journal: Some(700), bytes: 6 * GIB, block_size: 1024, ..PLAIN },
        Case { flex: Some(4), bytes: 3 * GIB, ..PLAIN },
        Case { flex: Some(64), bytes: 20 * GIB, ..PLAIN },
        Case { flex: Some(512), bytes: 100 * GIB, ..PLAIN },
        Case { flex: Some(1), bytes: GIB, ..PLAIN },
        Case { extended: "packed_meta_blocks=1", bytes: 10 * GIB, ..PLAIN },
        Case { extended: "stride=16,stripe_width=64", ..PLAIN },
        Case { extended: "resize=100000000", ..PLAIN },
        Case { extended: "root_owner=7:8", ..PLAIN },
    ];
    cases.extend(feature_cases(with));
    cases.extend(cluster_cases());
    cases
}

/// Disks with clusters of several blocks.
fn cluster_cases() -> Vec<Case> {
    let clusters =
        |block_size, bytes, features| Case { block_size, bytes, features, inode_ratio: 65536, ..PLAIN };
    let sized = |cluster, case| Case { cluster: Some(cluster), ..case };
    vec![
        Case { inode_ratio: 16384, ..clusters(4096, 256 * MIB, "bigalloc") },
        clusters(1024, 64 * MIB, "bigalloc"),
        sized(16 << 10, clusters(4096, GIB, "bigalloc")),
        sized(16 << 10, clusters(1024, GIB + 5 * MIB + 1024, "bigalloc")),
        Case { inode_ratio: 1 << 18, ..sized(64 << 10, clusters(4096, 20 * GIB + 300 * KIB, "bigalloc")) },
        Case { inode_ratio: 1 << 20, ..sized(1 << 20, clusters(4096, 3 * GIB, "bigalloc")) },
        sized(2 << 10, clusters(1024, 200 * MIB, "bigalloc")),
        sized(4 << 10, clusters(1024, 500 * MIB, "bigalloc,^flex_bg")),
        sized(8 << 10, clusters(4096, 3 * GIB, "bigalloc,^resize_inode,meta_bg")),
        sized(8 << 10, clusters(1024, 900 * MIB, "bigalloc,^resize_inode,orphan_file,mmp")),
        sized(8 << 10, clusters(4096, 3 * GIB, "bigalloc,sparse_super2,fast_commit")),
        sized(64 << 10, clusters(4096, GIB, "bigalloc,^has_journal,^64bit,^metadata_csum")),
        sized(64 << 10, clusters(4096, GIB, "bigalloc,quota,project")),
    ]
}

fn feature_cases(with: impl Fn(&'static str) -> Case) -> Vec<Case> {
    let large = |features| Case { bytes: 3 * GIB, ..with(features) };
    let small = |features| Case { block_size: 1024, ..with(features) };
    vec![
        with("^has_journal"),
        with("^resize_inode"),
        large("^resize_inode"),
        with("^64bit"),
        large("^64bit,^metadata_csum"),
        with("^metadata_csum"),
        large("^metadata_csum,uninit_bg"),
        large("^flex_bg"),
        large("^flex_bg,^resize_inode"),
        large("^flex_bg,^metadata_csum,^64bit"),
        small("^flex_bg"),
        large("meta_bg,^resize_inode"),
        small("meta_bg,^resize_inode"),
        Case { bytes: 20 * GIB, ..with("meta_bg,^resize_inode") },
        with("^extent,^64bit"),
        small("^extent,^64bit"),
        large("^extent,^64bit,^flex_bg"),
        with("sparse_super2"),
        large("sparse_super2"),
        large("sparse_super2,^resize_inode"),
        Case { extended: "num_backup_sb=1", ..large("sparse_super2,^resize_inode") },
        Case { extended: "num_backup_sb=0", ..large("sparse_super2,^resize_inode") },
        large("^sparse_super,^resize_inode"),
        with("orphan_file"),
        with("fast_commit"),
        large("fast_commit"),
        small("fast_commit"),
        large("orphan_file"),
        with("orphan_file,metadata_csum_seed,mmp"),
        Case { extended: "mmp_update_interval=9", ..small("mmp") },
        with("^filetype,^dir_index,^ext_attr,^dir_nlink,^extra_isize"),
        with("^large_file,^huge_file"),
        with("large_dir,ea_inode,project,stable_inodes"),
        with("none"),
        with("none,filetype,sparse_super"),
        Case {
            inode_size: 128,
            ..small("none,has_journal,resize_inode,sparse_super,filetype,dir_index,large_file")
        },
    ]
}

/// The output of `dumpe2fs`, without the fields that differ from one mkfs to the next.
fn dump(image: &Image) -> Vec<String> {
    let (success, text) = run("dumpe2fs", &[], &image.path);
    assert!(success, "{text}");
    let differs = [
        "Filesystem created:",
        "Last write time:",
        "Last checked:",
        "Directory Hash Seed:",
        "Checksum:",
        "Lifetime writes:",
        "mmp_update_date:",
        "mmp_update_time:",
        "mmp_node_name:",
        "mmp_device_name:",
        "dumpe2fs ",
    ];
    text.lines()
        .filter(|line| !differs.iter().any(|word| line.trim_start().starts_with(word)))
        .map(|line| match line.split_once(", csum 0x").or_else(|| line.split_once(" csum 0x")) {
            // The checksum of a descriptor covers those of the bitmaps, which are compared.
            Some((before, after)) if line.starts_with("Group ") => {
                format!("{before} {}", after.get(4..).unwrap_or(""))
            }
            _ => line.to_owned(),
        })
        .collect()
}

/// The lines that differ, with their neighbours' numbers.
fn difference(ours: &[String], theirs: &[String]) -> String {
    let mut lines = Vec::new();
    for index in 0..ours.len().max(theirs.len()) {
        let (ours, theirs) = (ours.get(index), theirs.get(index));
        if ours != theirs && lines.len() < 12 {
            lines.push(format!("  ours   {ours:?}\n  mke2fs {theirs:?}"));
        }
    }
    lines.join("\n")
}

#[test]
fn layouts_equal_those_of_mke2fs_and_are_clean() {
    if !["mke2fs", "dumpe2fs", "e2fsck"].iter().all(|program| has(program)) {
        return;
    }
    let failures = share_work(2, cases().into_iter(), |case| {
        let name = case.name();
        let ours = Image::new(case.bytes);
        if let Err(error) = case.builder().format(&ours.device()) {
            return vec![format!("{name}: {error}")];
        }
        let mut failures = Vec::new();
        let theirs = Image::new(case.bytes);
        let arguments = case.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (success, text) = run("mke2fs", &arguments, &theirs.path);
        assert!(success, "{name}: {text}");
        let difference = difference(&dump(&ours), &dump(&theirs));
        if !difference.is_empty() {
            failures.push(format!("{name}:\n{difference}"));
        }
        let (success, text) = run("e2fsck", &["-fn"], &ours.path);
        if !success || text.contains("Fix?") || text.contains("WARNING") {
            failures.push(format!("{name}: {text}"));
        }
        failures
    })
    .concat();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn layouts_that_mke2fs_makes_otherwise_are_clean() {
    if !has("e2fsck") {
        return;
    }
    let wide = |block_size, bytes| Case { block_size, bytes, ..PLAIN };
    for case in [
        Case { features: "inline_data", ..PLAIN },
        wide(8192, 256 * MIB),
        wide(65536, 4 * GIB),
        Case { inodes: Some(1), block_size: 1024, bytes: MIB, features: "orphan_file", ..PLAIN },
        Case { inodes: Some(12), block_size: 1024, bytes: 40 * MIB, features: "orphan_file", ..PLAIN },
        Case { extended: "lazy_itable_init=0", bytes: GIB, ..PLAIN },
        Case { extended: "assume_storage_prezeroed", bytes: GIB, ..PLAIN },
        Case { extended: "orphan_file_size=1M", features: "orphan_file", bytes: GIB, ..PLAIN },
    ] {
        let image = Image::new(case.bytes);
        case.builder().format(&image.device()).expect("a file system");
        assert_clean(&image.path, &case.name());
    }
}

#[test]
fn inodes_and_files_equal_those_of_mke2fs() {
    if !["mke2fs", "debugfs"].iter().all(|program| has(program)) {
        return;
    }
    for case in [
        PLAIN,
        Case { bytes: 3 * GIB, features: "orphan_file", ..PLAIN },
        Case { bytes: 200 * GIB, ..PLAIN },
        Case { bytes: 3 * GIB, features: "fast_commit", ..PLAIN },
        Case { block_size: 1024, features: "^extent,^64bit", ..PLAIN },
        Case { bytes: GIB, block_size: 1024, cluster: Some(4096), features: "bigalloc", ..PLAIN },
        Case { cluster: Some(64 << 10), features: "bigalloc,orphan_file", ..PLAIN },
    ] {
        let (ours, theirs) = (Image::new(case.bytes), Image::new(case.bytes));
        case.builder().format(&ours.device()).expect("a file system");
        let arguments = case.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(run("mke2fs", &arguments, &theirs.path).0);
        let mut requests: Vec<String> = (1..=12).map(|ino| format!("stat <{ino}>")).collect();
        requests.extend(["ls -l /".to_owned(), "ls -l /lost+found".to_owned()]);
        for request in requests {
            let [ours, theirs] = [&ours, &theirs].map(|image| {
                let (_, text) = run("debugfs", &["-R", &request], &image.path);
                let differs = ["time:", "Inode checksum:", "debugfs "];
                let lines = text.lines().filter(|line| !differs.iter().any(|word| line.contains(word)));
                // Listings end with the time and the name.
                lines.map(|line| line.split("-2").next().unwrap_or(line).to_owned()).collect::<Vec<_>>()
            });
            let difference = difference(&ours, &theirs);
            assert!(difference.is_empty(), "{}: {request}\n{difference}", case.name());
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn huge_disks_are_made_at_once_and_stay_sparse() {
    for (bytes, most) in [(1024 * GIB, 24 * MIB), (20 * 1024 * GIB, 400 * MIB)] {
        let image = Image::new(bytes);
        let layout = Mkfs::new().format(&image.device()).expect("a file system");
        assert_eq!(layout.geometry().blocks_count, bytes / 4096);
        assert!(image.taken_bytes() <= most, "{} bytes of {bytes} taken", image.taken_bytes());
    }
}

#[test]
fn a_disk_that_held_something_else_is_clean_whatever_it_held() {
    if !has("e2fsck") {
        return;
    }
    for extended in ["", "lazy_itable_init=0", "lazy_journal_init=1", "discard"] {
        let image = Image::new(64 * MIB);
        std::fs::write(&image.path, vec![0xA5; 64 << 20]).expect("an image");
        Mkfs::new().extended(extended).expect("known words").format(&image.device()).expect("a file system");
        assert_clean(&image.path, extended);
    }
}
