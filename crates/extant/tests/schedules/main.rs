//! Directories and files that threads share, under many schedules: threads of shuttle's in the checked runtime, threads of the host in the
//! native one. The virtual runtime has none to explore.
//!
//! `make test-schedules` runs 100,000 of each kind; `make test-schedules EXTANT_REPLAY=FILE TEST=NAME` the one that a failure of the test NAME
//! left in FILE.
#![cfg(not(extant_rt = "virtual"))]

mod files;
mod names;
#[path = "../../../rt/tests/common/plan.rs"]
mod plan;

use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount, WallClock};
use extant_block::{BlockDevice, MemoryDevice};
use extant_rt::{Exploration, explore};

/// Schedules of each kind in a run of all tests: some seconds.
const SCHEDULES: usize = 100;

const CLOCK: WallClock = WallClock::Fixed(1_700_000_000, 0);
const DISK_BYTES: u64 = 4 << 20;

struct Random(u64);

impl Random {
    /// Of a task of a schedule.
    fn new(seed: u64, task: usize) -> Self {
        Self(seed ^ (task as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What a disk of blocks of 1 KiB contains once `fill` has filled it. The schedules begin with it, and are the same in each process.
fn disk(fill: impl Fn(&Filesystem) + Send + Sync + 'static) -> Vec<u8> {
    let content = Arc::new(std::sync::Mutex::new(Vec::new()));
    let filled = content.clone();
    let one = Exploration { schedules: 1, replay: None, ..plan::exploration(1) };
    explore(&one, move |_| {
        let device = Arc::new(MemoryDevice::new(DISK_BYTES));
        let mkfs = Mkfs::new().block_size(1024).journal_blocks(1024).uuid([1; 16]).hash_seed([2; 16]);
        mkfs.clock(CLOCK).format(&*device).expect("a disk");
        let fs = mount(device.clone());
        fill(&fs);
        fs.unmount().expect("unmounted");
        let mut bytes = vec![0; DISK_BYTES as usize];
        device.read_at(0, &mut bytes).expect("read");
        *filled.lock().expect("no panic") = bytes;
    });
    std::mem::take(&mut *content.lock().expect("no panic"))
}

fn mount(device: Arc<MemoryDevice>) -> Filesystem {
    let mount = Mount::new().clock(CLOCK).background(false).cache_bytes(1 << 20);
    mount.open_device(device).expect("a file system")
}

/// A device with this content.
fn device(content: &[u8]) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(DISK_BYTES));
    device.write_at(0, content).expect("written");
    device
}

/// Unmounts, and returns what is on the disk then, which is sound: for this engine always, and in one of 256 schedules for e2fsck.
fn remounted(fs: Filesystem, device: Arc<MemoryDevice>, seed: u64) -> Filesystem {
    fs.unmount().expect("unmounted");
    if seed.is_multiple_of(256) && extant_testing::has_e2fsprogs() {
        let mut bytes = vec![0; DISK_BYTES as usize];
        device.read_at(0, &mut bytes).expect("read");
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a file");
        std::fs::write(image.path(), bytes).expect("written");
        let checked = std::process::Command::new("e2fsck").arg("-fn").arg(image.path()).output();
        let checked = checked.expect("e2fsck");
        let says = String::from_utf8_lossy(&checked.stdout);
        let is_clean = checked.status.success() && !says.contains("Fix?") && !says.contains("WARNING");
        assert!(is_clean, "seed {seed}: {says}");
    }
    let fs = mount(device);
    assert_eq!(fs.check(&mut |_| {}).expect("a check"), [], "seed {seed}");
    fs
}
