//! What the tests share: `qemu-img`, images of it in memory, random numbers.

#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;

use extant_block::{BlockDevice, DeviceAccess, FileDevice, MemoryDevice};
use extant_diskimage::{DiskImage, Result};
use extant_rt::Arc;
use extant_testing::{Command, Output};

/// A reproducible sequence.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Bytes that neither are zero nor equal those of another call.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(7))
            .flat_map(|_| self.next().to_le_bytes()[..7].to_vec())
            .take(len)
            .map(|byte| byte | 1)
            .collect()
    }
}

/// The seed of a test, which it prints.
pub fn seed(name: &str) -> u64 {
    let seed =
        std::env::var("EXTANT_DISKIMAGE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5eed);
    println!("{name}: EXTANT_DISKIMAGE_SEED={seed}");
    seed
}

/// How many rounds a test makes: `quick` of them, times EXTANT_DISKIMAGE_SCALE.
pub fn rounds(quick: u64) -> u64 {
    quick * std::env::var("EXTANT_DISKIMAGE_SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub fn run(program: &str, arguments: &[&str], dir: &Path) -> Output {
    Command::new(program).args(arguments).current_dir(dir).env("LC_ALL", "C").output().expect(program)
}

/// Runs qemu-img in `dir`, which is to succeed: its output.
pub fn qemu_img(dir: &Path, arguments: &[&str]) -> String {
    let output = run("qemu-img", arguments, dir);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "qemu-img {arguments:?}: {text}");
    text
}

/// A raw disk with data, zeroes and holes in `dir`.
pub fn raw_disk(dir: &Path, name: &str, bytes: u64, random: &mut Random) -> Vec<u8> {
    let mut content = vec![0; bytes as usize];
    for _ in 0..24 {
        let len = random.below(200_000).min(bytes) + 1;
        let start = random.below(bytes - len + 1);
        let piece = if random.below(3) == 0 { vec![0x5a; len as usize] } else { random.bytes(len as usize) };
        content[start as usize..(start + len) as usize].copy_from_slice(&piece);
    }
    std::fs::write(dir.join(name), &content).expect("a raw disk");
    content
}

pub fn open(path: &Path, is_read_only: bool) -> Result<DiskImage> {
    let access = if is_read_only { DeviceAccess::read_only() } else { DeviceAccess::read_write() };
    let file = Arc::new(FileDevice::open(path, access).expect("the file"));
    extant_diskimage::open(path, file, &[])
}

/// All bytes of a device, read in pieces of odd lengths.
pub fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut content = vec![0xee; device.size() as usize];
    let mut at = 0;
    for piece in content.chunks_mut(300_001) {
        device.read_at(at, piece).expect("a read");
        at += piece.len() as u64;
    }
    content
}

/// The file as a device in memory, padded to `bytes`.
pub fn in_memory(path: &Path, bytes: u64) -> MemoryDevice {
    let content = std::fs::read(path).expect("the image");
    let device = MemoryDevice::new(bytes.max(content.len() as u64));
    device.write_at(0, &content).expect("a write");
    device
}

/// The most memory that this process has had at once.
pub fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel's figures");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Fails at the first difference.
pub fn assert_equal(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: the length");
    if let Some(at) = found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        panic!("{what}: byte {at} is {:#x} and not {:#x}", found[at], wanted[at]);
    }
}
