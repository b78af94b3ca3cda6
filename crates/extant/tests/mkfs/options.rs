//! Options that the builder accepts and refuses, and repeatable results.

use extant::mkfs::{Error, Mkfs};
use extant_block::{BlockDevice, MemoryDevice};
use extant_rt::WallClock;

fn bytes_of(mkfs: &Mkfs, size: u64) -> Vec<u8> {
    let device = MemoryDevice::new(size);
    mkfs.format(&device).expect("a file system");
    let mut bytes = vec![0; size as usize];
    device.read_at(0, &mut bytes).expect("the device");
    bytes
}

#[test]
fn a_fixed_clock_gives_the_same_bytes_every_time() {
    let mkfs =
        Mkfs::new().clock(WallClock::Fixed(1_700_000_000, 0)).features("orphan_file,mmp").expect("features");
    let first = bytes_of(&mkfs, 32 << 20);
    assert!(first == bytes_of(&mkfs, 32 << 20));
    let other = mkfs.clone().label(b"other").expect("a label").plan(Some(32 << 20)).expect("a plan");
    let same = mkfs.plan(Some(32 << 20)).expect("a plan");
    assert_ne!(other.superblock().s_uuid(), same.superblock().s_uuid());
    let random = || Mkfs::new().plan(Some(32 << 20)).expect("a plan").superblock().s_uuid();
    assert_ne!(random(), random());
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is_written() {
    struct Untouchable(u64);
    impl BlockDevice for Untouchable {
        fn size(&self) -> u64 {
            self.0
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            unreachable!("read")
        }
        fn write_vectored_at(&self, _: u64, _: &[std::io::IoSlice<'_>]) -> std::io::Result<()> {
            unreachable!("written")
        }
        fn flush(&self) -> std::io::Result<()> {
            unreachable!("flushed")
        }
        fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
            unreachable!("discarded")
        }
        fn write_zeroes(&self, _: u64, _: u64) -> std::io::Result<()> {
            unreachable!("zeroed")
        }
    }
    let refused = |change: fn(Mkfs) -> Result<Mkfs, Error>| {
        change(Mkfs::new()).expect("a wish").format(&Untouchable(64 << 20)).expect_err("refused")
    };
    assert!(matches!(refused(|m| Ok(m.block_size(3000))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| Ok(m.inode_size(8192))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| Ok(m.blocks(20_000))), Error::TooLarge(_)));
    assert!(matches!(refused(|m| Ok(m.blocks(10))), Error::TooSmall(_)));
    assert!(matches!(refused(|m| Ok(m.blocks(0))), Error::TooLarge(_) | Error::TooSmall(_)));
    assert!(matches!(refused(|m| Ok(m.inodes(1 << 30))), Error::TooLarge(_)));
    assert!(matches!(refused(|m| Ok(m.reserved_percent(51.0))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| Ok(m.reserved_percent(f64::NAN))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| Ok(m.journal_megabytes(1))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| Ok(m.journal_megabytes(60))), Error::TooLarge(_)));
    assert!(matches!(refused(|m| Ok(m.groups_per_flex(3))), Error::Invalid { .. }));
    assert!(matches!(refused(|m| m.features("meta_bg")), Error::Conflict(_)));
    assert!(matches!(refused(|m| m.features("^sparse_super")), Error::Conflict(_)));
    assert!(matches!(refused(|m| m.features("orphan_file,^has_journal")), Error::Conflict(_)));
    assert!(matches!(refused(|m| m.extended("resize=100")), Error::Invalid { .. }));
    assert!(matches!(Mkfs::new().label(b"seventeen letters"), Err(Error::Invalid { .. })));
    assert!(matches!(Mkfs::new().usage("medium"), Err(Error::Invalid { .. })));
    assert!(matches!(Mkfs::new().plan(None), Err(Error::Conflict(_))));
}

#[test]
fn usage_types_set_ratio_and_block_size() {
    let plan =
        |name: &str| Mkfs::new().usage(name).expect("a usage type").plan(Some(64 << 20)).expect("a plan");
    assert_eq!((plan("small").geometry().block_size, plan("small").geometry().inodes_count), (1024, 16384));
    assert_eq!(plan("largefile").geometry().inodes_count, 64);
    assert_eq!(plan("default").geometry().inodes_count, 4096);
}

#[test]
fn every_size_either_makes_a_layout_that_adds_up_or_is_refused() {
    for block_size in [1024, 2048, 4096, 65536] {
        for blocks in (0..600).chain((1..400).map(|step| step * 2731 + step % 7)) {
            let mkfs = Mkfs::new().block_size(block_size).blocks(blocks);
            let Ok(layout) = mkfs.plan(None) else { continue };
            let free: u64 = layout.descriptors().iter().map(|d| u64::from(d.free_blocks_count())).sum();
            assert_eq!(free, layout.free_blocks(), "{blocks} blocks of {block_size}");
            assert!(layout.geometry().blocks_count <= blocks && layout.free_blocks() > 0);
        }
    }
}
