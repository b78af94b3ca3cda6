//! Writes through mappings: the kernel keeps the pages dirty for a while, and every other reader must see it meanwhile.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{IFlags, SeekFrom, ioctl_getflags, ioctl_setflags, seek};

use crate::common::{Disk, can_mount, is_root, run};
use crate::kernel::Kernel;

const FILE_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;
/// Where the writer writes: the first and the last page, in between, and two that follow each other.
const PAGES: [u64; 5] = [0, 700, 701, 2000, FILE_BYTES / PAGE - 1];

/// Maps the files named and writes at each page that is named, then obeys commands: `w` writes again and syncs.
const WRITER: &str = r#"
import mmap, os, sys
pages = [int(page) for page in sys.argv[1].split(",")]
def mapped(path):
    fd = os.open(path, os.O_RDWR | (os.O_APPEND if sys.argv[2] == "append" else 0))
    return mmap.mmap(fd, 0)
try:
    maps = [mapped(path) for path in sys.argv[3:]]
except OSError as error:
    print("refused", error.errno, flush=True)
    sys.exit()
def write(word):
    for memory in maps:
        for page in pages:
            memory[page * 4096:page * 4096 + len(word)] = word
if sys.argv[2] != "late":
    write(b"mapped")
print("ready", flush=True)
for line in sys.stdin:
    try:
        write(b"tooLat")
        for memory in maps:
            memory.flush()
        print("written", flush=True)
    except OSError as error:
        print("failed", error.errno, flush=True)
"#;

/// A process that has files mapped and open; ended on drop.
struct Writer {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Writer {
    /// Begins, and waits until it has written; with what it said.
    fn start(how: &str, pages: &[u64], files: &[&Path]) -> (Self, String) {
        let pages: Vec<_> = pages.iter().map(u64::to_string).collect();
        let mut command = Command::new("python3");
        command.args(["-c", WRITER, &pages.join(","), how]).args(files);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut writer = Self { child, output };
        let said = writer.line();
        (writer, said)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// Has it write again and sync.
    fn write(&mut self) -> String {
        self.child.stdin.as_mut().expect("its input").write_all(b"w\n").expect("told");
        self.line()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_tools() -> bool {
    let has =
        |program| Command::new(program).arg("--version").output().is_ok_and(|done| done.status.success());
    let has = can_mount() && ["python3", "cp", "tar"].into_iter().all(has);
    if !has {
        println!("skipped: no mounts, python3, cp or tar");
    }
    has
}

fn expected() -> Vec<u8> {
    let mut content = vec![0; FILE_BYTES as usize];
    for page in PAGES {
        content[(page * PAGE) as usize..][..6].copy_from_slice(b"mapped");
    }
    content
}

/// Makes a file of holes, or of blocks that were allocated and not written.
fn make(path: &Path, is_allocated: bool) {
    let file = File::create_new(path).expect("create");
    file.set_len(FILE_BYTES).expect("size");
    if is_allocated {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, FILE_BYTES).expect("allocated");
    }
}

/// The runs of data that `lseek` reports.
fn data(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).expect("open");
    let (mut runs, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).expect("a hole or the end");
        runs.push((start / PAGE, at.div_ceil(PAGE)));
    }
    runs
}

#[test]
fn what_a_mapped_writer_wrote_is_copied_while_it_has_the_file_open() {
    if !has_tools() {
        return;
    }
    for options in ["rw", "page_cache=16M", "strictatime"] {
        let disk = Disk::new("128M");
        disk.mount(options);
        for is_allocated in [false, true] {
            let at = |name: &str| disk.point.join(format!("{name}-{is_allocated}"));
            for name in ["cp", "tar", "data", "hole"] {
                let path = at(name);
                make(&path, is_allocated);
                // Closing the file makes the kernel write it back, so each file is read once, by one program.
                let (_writer, said) = Writer::start("at once", &PAGES, &[&path]);
                assert_eq!(said, "ready");
                let copy = disk.image.with_file_name("copy");
                match name {
                    "cp" => {
                        let copied = Command::new("cp").args([&path, &copy]).status().expect("cp");
                        assert!(copied.success());
                        assert!(fs::read(&copy).expect("copy") == expected(), "cp, {options} {is_allocated}");
                    }
                    "tar" => {
                        let words = "tar -C \"$1\" -cSf - \"$2\" | tar -xSO >\"$3\"";
                        let mut command = Command::new("sh");
                        command
                            .args(["-c", words, "sh"])
                            .arg(&disk.point)
                            .arg(path.file_name().expect("name"));
                        assert!(command.arg(&copy).status().expect("tar").success());
                        assert!(
                            fs::read(&copy).expect("copy") == expected(),
                            "tar, {options} {is_allocated}"
                        );
                    }
                    "data" => {
                        let last = FILE_BYTES / PAGE - 1;
                        let runs = [(0, 1), (700, 702), (2000, 2001), (last, last + 1)];
                        assert_eq!(data(&path), runs, "{options} {is_allocated}");
                    }
                    _ => {
                        let file = File::open(&path).expect("open");
                        let holes = [0, 700, 2000].map(|page| seek(&file, SeekFrom::Hole(page * PAGE)));
                        let found = [PAGE, 702 * PAGE, 2001 * PAGE].map(Ok);
                        assert_eq!(holes, found, "{options} {is_allocated}");
                    }
                }
                let _ = fs::remove_file(&copy);
            }
        }
        disk.finish();
    }
}

#[test]
fn many_copies_of_what_is_written_through_mappings_end() {
    if !has_tools() {
        return;
    }
    // More than the server has threads of any kind.
    const FILES: usize = 80;
    let disk = Disk::new("256M");
    disk.mount("rw");
    let files: Vec<_> = (0..FILES).map(|index| disk.point.join(index.to_string())).collect();
    files.iter().for_each(|path| make(path, false));
    let paths: Vec<_> = files.iter().map(std::path::PathBuf::as_path).collect();
    let (writer, said) = Writer::start("at once", &PAGES, &paths);
    assert_eq!(said, "ready");
    let copy =
        |path: &Path| Command::new("cp").arg(path).arg(path.with_extension("copy")).spawn().expect("cp");
    let copies: Vec<_> = paths.iter().map(|path| copy(path)).collect();
    for mut copy in copies {
        assert!(copy.wait().expect("its end").success());
    }
    for path in paths {
        assert!(fs::read(path.with_extension("copy")).expect("copy") == expected());
        let blocks = fs::metadata(path).expect("stat").blocks();
        // With or without a block for the tree of extents.
        let pages = blocks * 512 / PAGE - PAGES.len() as u64;
        assert!(pages <= 1, "{blocks}");
    }
    drop(writer);
    disk.finish();
}

#[test]
fn a_file_of_holes_has_a_block_for_those_who_take_none_for_all_of_it() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    make(&path, false);
    assert_eq!(fs::metadata(&path).expect("stat").blocks(), 1);
    assert_eq!(data(&path), []);
    File::options().write(true).open(&path).expect("open").set_len(0).expect("cut");
    assert_eq!(fs::metadata(&path).expect("stat").blocks(), 0);
    disk.finish();
}

#[test]
#[ignore = "measures: docs/results/mount.md names the command"]
fn cost_of_asking_for_holes() {
    const ASKED: u32 = 20_000;
    let disk = Disk::new("256M");
    disk.mount("rw");
    let path = disk.point.join("file");
    make(&path, false);
    let file = File::options().read(true).write(true).open(&path).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; PAGE as usize], FILE_BYTES - PAGE).expect("write");
    let ask = |at: u64| {
        let start = std::time::Instant::now();
        for _ in 0..ASKED {
            seek(&file, SeekFrom::Data(at)).expect("data");
        }
        start.elapsed().as_secs_f64() * 1e6 / f64::from(ASKED)
    };
    println!("SEEK_DATA in data {:.1} us, in a hole {:.1} us", ask(FILE_BYTES - PAGE), ask(0));
    let pages: Vec<_> = (0..FILE_BYTES / PAGE - 1).collect();
    let (writer, said) = Writer::start("at once", &pages, &[&path]);
    assert_eq!(said, "ready");
    let start = std::time::Instant::now();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(0));
    let each = start.elapsed().as_secs_f64() * 1e6 / pages.len() as f64;
    println!("{} pages written back at {each:.1} us each", pages.len());
    drop((writer, file));
    disk.finish();
}

/// A file of so many bytes, with a flag that is set before or after it is mapped by a writer for appending or for writing. What the
/// writer's sync returns, and how the file begins afterwards.
fn write_fixed(point: &Path, flag: IFlags, how: &str) -> (String, String) {
    let path = point.join(format!("{how}-{}", flag.bits()));
    fs::write(&path, vec![b'-'; 8192]).expect("write");
    let file = File::open(&path).expect("open");
    let plain = ioctl_getflags(&file).expect("flags");
    if how == "append" {
        ioctl_setflags(&file, plain | flag).expect("flags");
    }
    let (mut writer, said) = Writer::start(how, &[0], &[&path]);
    let mut told = said;
    if how != "append" {
        ioctl_setflags(&file, plain | flag).expect("flags");
    }
    if told == "ready" {
        told = writer.write();
    }
    drop(writer);
    ioctl_setflags(&file, plain).expect("flags");
    drop(file);
    (told, path.file_name().expect("name").to_string_lossy().into_owned())
}

#[test]
fn append_only_and_immutable_files_are_not_overwritten_through_mappings() {
    if !has_tools() || !is_root() {
        return;
    }
    let disk = Disk::new("64M");
    // Written before the flag was set: kept. Afterwards, or through a descriptor that appends: refused.
    let cases = [
        (IFlags::APPEND, "append"),
        (IFlags::APPEND, "before"),
        (IFlags::APPEND, "late"),
        (IFlags::IMMUTABLE, "before"),
    ];
    disk.mount("rw");
    let written = cases.map(|(flag, how)| write_fixed(&disk.point, flag, how));
    disk.umount();
    for ((told, name), (flag, how)) in written.iter().zip(cases) {
        let content = run(&["cat", &format!("{}:/{name}", disk.image.display())]);
        let begins = if how == "before" { "mapped" } else { "------" };
        assert_eq!(&content[..6], begins, "{flag:?} {how}");
        assert!(told.starts_with("failed"), "{flag:?} {how}: {told}");
    }
    if let Some(mounted) = Kernel::mount(&disk.image, &disk.point, "rw") {
        fs::remove_file(disk.point.join(&written[0].1)).expect("remove");
        let (told, _) = write_fixed(&disk.point, cases[0].0, cases[0].1);
        assert!(told.starts_with("refused"), "the kernel's ext4 refuses the mapping: {told}");
        drop(mounted);
    }
    disk.mount("rw");
    disk.finish();
}
