//! Disks made by mke2fs, and what e2fsck says of images.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use extant::mkfs::Mkfs;
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{CompatFeatures, Superblock};
use extant_testing::{Command, faults, run, scratch, text, write_at};

/// The content of free blocks before anything is written to a disk: it must never appear in a file.
pub const POISON: u8 = 0xDB;

/// How a disk is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskKind {
    pub name: &'static str,
    pub block_size: u64,
    pub size_mib: u64,
    /// Options of mke2fs; without them Extant's own mkfs makes the disk.
    options: Option<&'static [&'static str]>,
}

/// Each has the smallest journal there is, 1024 blocks.
pub const KINDS: [DiskKind; 9] = [
    DiskKind {
        name: "1k-checksums",
        block_size: 1024,
        size_mib: 6,
        options: Some(&["-O", "metadata_csum,64bit,^resize_inode", "-g", "2048"]),
    },
    DiskKind {
        name: "1k-plain",
        block_size: 1024,
        size_mib: 6,
        options: Some(&["-O", "^metadata_csum,^64bit,^resize_inode,^uninit_bg"]),
    },
    DiskKind {
        name: "4k-checksums",
        block_size: 4096,
        size_mib: 12,
        options: Some(&["-O", "metadata_csum,64bit,metadata_csum_seed,^resize_inode", "-g", "1024"]),
    },
    DiskKind {
        name: "4k-group-checksums",
        block_size: 4096,
        size_mib: 12,
        options: Some(&["-O", "^metadata_csum,uninit_bg,^flex_bg,^resize_inode", "-g", "1024"]),
    },
    DiskKind {
        name: "4k-lazy-tables",
        block_size: 4096,
        size_mib: 12,
        options: Some(&[
            "-O",
            "metadata_csum,orphan_file,^resize_inode",
            "-E",
            "lazy_itable_init=1,hash_seed=09090909-0909-0909-0909-090909090909",
        ]),
    },
    DiskKind {
        name: "1k-no-extents",
        block_size: 1024,
        size_mib: 6,
        options: Some(&[
            "-O",
            "^extents,^64bit,^metadata_csum,^uninit_bg,^flex_bg,^resize_inode",
            "-I",
            "128",
        ]),
    },
    DiskKind {
        name: "4k-fast-commits",
        block_size: 4096,
        size_mib: 12,
        options: Some(&["-O", "fast_commit,metadata_csum,64bit,^resize_inode", "-g", "1024"]),
    },
    DiskKind {
        name: "1k-fast-commits",
        block_size: 1024,
        size_mib: 6,
        options: Some(&["-O", "fast_commit,metadata_csum,64bit,^resize_inode", "-g", "2048"]),
    },
    DiskKind { name: "own-mkfs", block_size: 4096, size_mib: 12, options: None },
];

/// 256 groups: four bands, which as many writeback contexts divide among them.
pub const BANDS: DiskKind = DiskKind {
    name: "1k-bands",
    block_size: 1024,
    size_mib: 64,
    options: Some(&["-O", "metadata_csum,64bit,^resize_inode", "-g", "256", "-N", "4096"]),
};

/// [`BANDS`] with uninitialised inode tables.
pub const LAZY_BANDS: DiskKind = DiskKind {
    name: "1k-lazy-bands",
    options: Some(&[
        "-O",
        "metadata_csum,64bit,^resize_inode",
        "-g",
        "256",
        "-N",
        "4096",
        "-E",
        "lazy_itable_init=1,nodiscard,hash_seed=09090909-0909-0909-0909-090909090909",
    ]),
    ..BANDS
};

/// A disk on which small files and directories are inline; see [`crate::explore::Base::with_inline_content`].
pub const INLINE: DiskKind = DiskKind {
    name: "1k-inline",
    block_size: 1024,
    size_mib: 6,
    options: Some(&["-O", "inline_data,metadata_csum,64bit,^resize_inode", "-g", "2048"]),
};

/// Disks with clusters of 16 and of 64 KiB: extents of a file share them.
pub const CLUSTERS: [DiskKind; 2] = [
    DiskKind {
        name: "1k-clusters-of-16k",
        block_size: 1024,
        size_mib: 12,
        options: Some(&["-O", "bigalloc,metadata_csum,64bit,^resize_inode", "-C", "16384", "-g", "256"]),
    },
    DiskKind {
        name: "4k-clusters-of-64k",
        block_size: 4096,
        size_mib: 24,
        options: Some(&[
            "-O",
            "bigalloc,metadata_csum,64bit,orphan_file,^resize_inode",
            "-C",
            "65536",
            "-g",
            "256",
        ]),
    },
];

/// A disk that counts the usage of users, groups and projects. e2fsck does so too, for each image that it checks.
pub const QUOTAS: DiskKind = DiskKind {
    name: "1k-quotas",
    block_size: 1024,
    size_mib: 6,
    options: Some(&["-O", "quota,project,metadata_csum,64bit,^resize_inode", "-g", "2048"]),
};

/// A disk on which a value too large for an attribute block is in an inode of its own; see
/// [`crate::explore::Base::with_values`].
pub const VALUES: DiskKind = DiskKind {
    name: "1k-values",
    block_size: 1024,
    size_mib: 6,
    options: Some(&["-O", "ea_inode,metadata_csum,64bit,^resize_inode", "-g", "2048"]),
};

impl DiskKind {
    pub fn named(name: &str) -> Option<Self> {
        KINDS.into_iter().chain([QUOTAS]).chain(CLUSTERS).find(|kind| kind.name == name)
    }

    /// Whether there is a copy of the superblock, or no checksum of it: then it may be torn.
    pub fn may_tear_superblock(&self) -> bool {
        !matches!(self.name, "4k-lazy-tables" | "own-mkfs")
    }

    pub fn has_extents(&self) -> bool {
        self.name != "1k-no-extents"
    }

    /// A new disk whose free blocks, and what of its inode tables was never written, are poisoned.
    pub fn make(&self) -> MemoryDevice {
        let mut checker = Checker::new();
        let device = MemoryDevice::new(self.size_mib << 20);
        match self.options {
            Some(options) => {
                self.mke2fs(options, &checker.path);
                let bytes = std::fs::read(&checker.path).expect("read the image");
                device.write_at(0, &bytes).expect("copy the image");
            }
            None => {
                let mkfs = Mkfs::new().inodes(1024).journal_blocks(1024).uuid([7; 16]).hash_seed([9; 16]);
                mkfs.format(&device).expect("make a file system");
                checker.put(&device);
            }
        }
        let described = run("dumpe2fs", &[text(&checker.path)]).expect("described");
        for (first, last) in
            free_ranges(&described).into_iter().chain(unwritten_tables(&described, self.block_size))
        {
            let poison = vec![POISON; ((last + 1 - first) * self.block_size) as usize];
            device.write_at(first * self.block_size, &poison).expect("poison");
        }
        device
    }

    fn mke2fs(&self, options: &[&str], path: &Path) {
        let (block_size, journal) = (self.block_size.to_string(), format!("size={}", self.block_size / 1024));
        let mut arguments = vec!["-q", "-F", "-t", "ext4", "-b", &block_size, "-J", &journal, "-N", "1024"];
        // Directories are split by hashes of their names: with a seed of its own each disk would fill its log differently.
        let extended =
            "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=09090909-0909-0909-0909-090909090909";
        arguments.extend(["-E", extended, "-U", "clear"]);
        arguments.extend(options);
        let size = format!("{}M", self.size_mib);
        arguments.extend([text(path), &size]);
        run("mke2fs", &arguments).expect("a disk");
    }
}

/// Blocks of inode tables behind the last used inode, where mke2fs wrote nothing.
fn unwritten_tables(described: &str, block_size: u64) -> Vec<(u64, u64)> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let after = |text: &str, word: &str| {
        text.split_once(word).and_then(|(_, rest)| number(rest.split_whitespace().next()?))
    };
    let inode_size = described.lines().find_map(|line| after(line, "Inode size:")).unwrap_or(256);
    let per_group = described.lines().find_map(|line| after(line, "Inodes per group:")).unwrap_or(0);
    let mut tables = Vec::new();
    for group in described.split("\nGroup ").skip(1).filter(|group| !group.contains("ITABLE_ZEROED")) {
        let table = group.split_once("Inode table at ").and_then(|(_, rest)| {
            let (first, rest) = rest.split_once('-')?;
            Some((number(first)?, number(rest.split_whitespace().next()?)?))
        });
        let unused = group.split(", ").find_map(|part| number(part.split_once(" unused inodes")?.0));
        if let (Some((first, last)), Some(unused)) = (table, unused) {
            let used = (per_group.saturating_sub(unused) * inode_size).div_ceil(block_size);
            if first + used <= last {
                tables.push((first + used, last));
            }
        }
    }
    tables
}

/// The free blocks that dumpe2fs lists by group.
fn free_ranges(described: &str) -> Vec<(u64, u64)> {
    let lines = described.lines().filter_map(|line| line.trim().strip_prefix("Free blocks: "));
    let ranges = lines.flat_map(|line| line.split(", ")).filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    });
    // The first such line counts the blocks of the whole disk.
    let count_is_first = usize::from(described.contains("Free blocks:              "));
    ranges.skip(count_is_first).collect()
}

/// A place for images, where e2fsck looks at them.
pub struct Checker {
    _dir: tempfile::TempDir,
    path: PathBuf,
    /// The file's content.
    held: Vec<u8>,
}

const CHUNK: usize = 64 << 10;

impl Checker {
    pub fn new() -> Self {
        let dir = scratch();
        let path = dir.path().join("image");
        Self { _dir: dir, path, held: Vec::new() }
    }

    /// Brings the image into the file; only what differs is written.
    fn put(&mut self, image: &MemoryDevice) {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&self.path).expect("open");
        let size = image.size() as usize;
        if self.held.len() != size {
            self.held = vec![0; size];
            file.set_len(0).expect("empty");
            file.set_len(size as u64).expect("size");
        }
        let mut chunk = vec![0; CHUNK];
        for start in (0..size).step_by(CHUNK) {
            let len = CHUNK.min(size - start);
            image.read_at(start as u64, &mut chunk[..len]).expect("read the image");
            if self.held[start..start + len] != chunk[..len] {
                write_at(&file, &chunk[..len], start as u64).expect("write the image");
                self.held[start..start + len].copy_from_slice(&chunk[..len]);
            }
        }
    }

    /// Runs e2fsck: its exit code, and what it said.
    fn e2fsck(&self, options: &[&str]) -> (i32, String) {
        let mut command = Command::new("e2fsck");
        let output = command.args(options).arg(&self.path).env("LC_ALL", "C").output().expect("e2fsck");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code().unwrap_or(-1), said)
    }

    /// Checks that an image is clean.
    ///
    /// # Errors
    /// The findings of e2fsck.
    pub fn check(&mut self, image: &MemoryDevice) -> Result<(), String> {
        self.put(image);
        self.check_file()
    }

    fn check_file(&self) -> Result<(), String> {
        faults(&self.path).map_or(Ok(()), |said| Err(format!("e2fsck -fn: {said}")))
    }

    /// The image as e2fsck recovers it: it replays the journal and finishes the orphans. Nothing if it fails at these: of an
    /// orphan with several leaves in its extent tree it frees one, says that a block of the tree is cleared already,
    /// and takes the file's size from what it left (seen in 1.47.0). Linux does not: `crate::linux`. Nor does it replay a journal in which
    /// the HEAD of the fast commits is of a transaction that is committed: `docs/design/journal.md`, J34.
    ///
    /// # Errors
    /// If it finds anything else to do.
    pub fn recover(&mut self, image: &MemoryDevice) -> Result<Option<MemoryDevice>, String> {
        self.put(image);
        // Whatever happens below, the file is not what it was.
        self.held.clear();
        let (code, said) = self.e2fsck(&["-fy", "-E", "journal_only"]);
        if said.contains("Invalid argument while recovering journal") {
            return Ok(None);
        }
        if code > 1 {
            return Err(format!("e2fsck replays the journal and exits {code}: {said}"));
        }
        if said.contains("Truncating orphaned inode") && said.contains("Already cleared indirect block") {
            return Ok(None);
        }
        // A file whose last name went by a fast commit is left to it, and no question is answered by -p.
        let answer = if has_fast_commits(image) { "-fy" } else { "-p" };
        let (code, said) = self.e2fsck(&[answer]);
        if code > 1 {
            return Err(format!("e2fsck {answer} after the replay exits {code}: {said}"));
        }
        self.check_file().map_err(|what| format!("after its own replay, {what}"))?;
        let bytes = std::fs::read(&self.path).expect("read the image");
        let recovered = MemoryDevice::new(bytes.len() as u64);
        recovered.write_at(0, &bytes).expect("copy the image");
        Ok(Some(recovered))
    }
}

fn has_fast_commits(image: &MemoryDevice) -> bool {
    let mut bytes = [0; 1024];
    image.read_at(1024, &mut bytes).expect("a superblock");
    Superblock::parse(&bytes).is_ok_and(|sb| sb.compat().contains(CompatFeatures::FAST_COMMIT))
}

/// Makes directories, and files of these contents, as debugfs makes them.
pub fn make_by_debugfs(image: &MemoryDevice, made: &[(&str, Option<Vec<u8>>)]) {
    let mut checker = Checker::new();
    checker.put(image);
    let source = checker.path.with_file_name("source");
    for (path, content) in made {
        let command = match content {
            Some(content) => {
                std::fs::write(&source, content).expect("write a file");
                format!("write {} {path}", source.display())
            }
            None => format!("mkdir {path}"),
        };
        run("debugfs", &["-w", "-R", &command, text(&checker.path)]).expect("made");
    }
    let bytes = std::fs::read(&checker.path).expect("read the image");
    image.write_at(0, &bytes).expect("copy the image");
}

/// The command that undoes an attached loop device or a mount.
#[cfg(target_os = "linux")]
struct Undo<'a>(&'static str, Vec<&'a str>);

#[cfg(target_os = "linux")]
impl Drop for Undo<'_> {
    fn drop(&mut self) {
        // A disk that stays mounted is found by the check that follows.
        let _ = run(self.0, &self.1);
    }
}

#[cfg(target_os = "linux")]
impl Checker {
    /// The image as Linux recovers it, by mounting and unmounting it.
    ///
    /// # Errors
    /// If it cannot, or if e2fsck finds anything to do afterwards.
    pub fn recover_by_linux(&mut self, image: &MemoryDevice) -> Result<MemoryDevice, String> {
        self.change_by_linux(image, |_| {})
    }

    /// The image after Linux recovered it, and `change` was done in the directory where it was mounted.
    ///
    /// # Errors
    /// As [`Checker::recover_by_linux`].
    pub fn change_by_linux(
        &mut self,
        image: &MemoryDevice,
        change: impl FnOnce(&Path),
    ) -> Result<MemoryDevice, String> {
        self.put(image);
        // Whatever happens below, the file is not what it was.
        self.held.clear();
        let dir = self.path.with_file_name("mounted");
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        let device = run("losetup", &["--find", "--show", text(&self.path)])?;
        let device = device.trim();
        let _detach = Undo("losetup", vec!["--detach", device]);
        run("mount", &["-t", "ext4", "-o", "noinit_itable", device, text(&dir)])?;
        let umount = Undo("umount", vec![text(&dir)]);
        change(&dir);
        drop(umount);
        self.check_file().map_err(|what| format!("after the recovery of Linux, {what}"))?;
        let bytes = std::fs::read(&self.path).expect("read the image");
        let recovered = MemoryDevice::new(bytes.len() as u64);
        recovered.write_at(0, &bytes).expect("copy the image");
        Ok(recovered)
    }
}

/// The blocks of the journal, as debugfs lists them.
pub fn journal_blocks(image: &MemoryDevice) -> Vec<u64> {
    let mut checker = Checker::new();
    checker.put(image);
    let said = run("debugfs", &["-R", "blocks <8>", text(&checker.path)]).expect("the blocks of the journal");
    said.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
