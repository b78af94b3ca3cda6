//! Swap files on block devices: the kernel asks where their blocks are and then reads and writes them by itself.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::claimed::{disk_on_loop, kind};
use crate::common::path;

const SWAP_BYTES: u64 = 8 << 20;
const PAGE_BYTES: usize = 4096;

/// Has the kernel swap out 12 MiB of its memory, says so, and reads it again on command.
const SWAPPED: &str = r"
import mmap, sys
memory = mmap.mmap(-1, 12 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(memory), 4096):
    memory[page:page + 4096] = page.to_bytes(4, 'little') * 1024
memory.madvise(21)  # MADV_PAGEOUT
print('out', flush=True)
sys.stdin.read()
for page in range(0, len(memory), 4096):
    assert memory[page:page + 4096] == page.to_bytes(4, 'little') * 1024, page
";

/// A file that the kernel swaps to; no longer on drop.
struct Swap(PathBuf);

fn program(name: &str, file: &Path) -> Output {
    Command::new(name).arg(file).env("PATH", path()).output().expect("a program of util-linux")
}

impl Swap {
    fn on(file: &Path) -> Result<Self, String> {
        fs::set_permissions(file, Permissions::from_mode(0o600)).expect("mode");
        let made = program("mkswap", file);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let output = program("swapon", file);
        if output.status.success() {
            Ok(Self(file.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Bytes that are swapped out to it.
    fn used(&self) -> u64 {
        let table = fs::read_to_string("/proc/swaps").expect("swaps");
        let line = table.lines().find(|line| line.starts_with(self.0.to_str().expect("a path")));
        let used = line.expect("it is in use").split_whitespace().nth(3).expect("what is used");
        used.parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let output = program("swapoff", &self.0);
        assert!(std::thread::panicking() || output.status.success(), "{output:?}");
    }
}

/// A process whose memory is swapped out; killed on drop.
struct Swapped(Child);

impl Swapped {
    fn start() -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SWAPPED]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(child) = command.spawn() else {
            println!("skipped: no python3 to be swapped out");
            return None;
        };
        let mut swapped = Self(child);
        let mut line = String::new();
        let output = swapped.0.stdout.as_mut().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "out\n");
        Some(swapped)
    }

    /// Has it look at its memory again.
    fn finish(mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().expect("its end");
        assert!(status.success(), "its memory came back otherwise: {status}");
    }
}

impl Drop for Swapped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused<T>(result: std::io::Result<T>, error: Errno) {
    assert_eq!(result.map(drop).expect_err("swapped to").raw_os_error(), Some(error.raw_os_error()));
}

#[test]
fn memory_comes_back_from_swap_files_and_nothing_else_on_the_disk_changes() {
    for options in ["rw", "page_cache=16M"] {
        let Some((disk, _device, _backing)) = disk_on_loop() else { return };
        disk.mount(options);
        assert_eq!(kind(&disk.point), "fuseblk.extant");
        let file = |name: &str| disk.point.join(name);
        fs::write(file("before"), vec![3; 2 << 20]).expect("write");
        fs::write(file("written"), vec![5; SWAP_BYTES as usize]).expect("write");
        let create = |name: &str, how: FallocateFlags, offset| {
            let created = File::create(file(name)).expect("create");
            rustix::fs::fallocate(&created, how, offset, SWAP_BYTES).expect("fallocate");
            created
        };
        create("allocated", FallocateFlags::empty(), 0);
        // Its blocks are behind its end, for swapon(8) counts how many there are.
        create("sparse", FallocateFlags::KEEP_SIZE, SWAP_BYTES).set_len(SWAP_BYTES).expect("truncate");
        fs::write(file("after"), vec![4; 2 << 20]).expect("write");

        let said = Swap::on(&file("sparse")).map(|swap| swap.used()).expect_err("with a hole");
        assert!(said.contains("Invalid argument"), "{said}");
        let swaps = ["written", "allocated"].map(|name| Swap::on(&file(name)).expect("a swap file"));
        for swap in &swaps {
            refused(fs::write(&swap.0, "x"), Errno::TXTBSY);
            refused(
                File::options().append(true).open(&swap.0).and_then(|mut swap| swap.write(b"x")),
                Errno::TXTBSY,
            );
            refused(fs::remove_file(&swap.0), Errno::PERM);
        }
        let swapped = Swapped::start();
        if swapped.is_some() {
            let used = swaps.iter().map(Swap::used).sum::<u64>();
            if used == 0 {
                println!("skipped: the host swaps elsewhere, or nothing out");
            } else {
                assert!(used > 8 << 20, "only {used} bytes were swapped out");
            }
        }
        for number in 0..10 {
            fs::write(file(&format!("beside-{number}")), vec![6; 1 << 20]).expect("write");
        }
        fs::remove_file(file("beside-0")).expect("unlink");
        if let Some(swapped) = swapped {
            swapped.finish();
        }
        drop(swaps);
        disk.umount();
        disk.mount("ro");
        for (name, byte) in [("before", 3), ("after", 4), ("beside-9", 6)] {
            assert!(
                fs::read(file(name)).expect("read").iter().all(|found| *found == byte),
                "{options}: {name}"
            );
        }
        let mut content = Vec::new();
        File::open(file("allocated")).and_then(|mut file| file.read_to_end(&mut content)).expect("read");
        assert!(
            content[PAGE_BYTES..].iter().all(|byte| *byte == 0),
            "{options}: somebody's memory can be read"
        );
        disk.finish();
    }
}
