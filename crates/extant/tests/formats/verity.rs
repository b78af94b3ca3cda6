//! Files whose content is fixed by hashes behind their end.

use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use extant::mkfs::Mkfs;
use extant::{Error, Fallocate, Filesystem, InodeFlags, Mount, SeekTo};
use extant_block::{BlockDevice, MemoryDevice, Recorder, Tearing, Unflushed};
use extant_rt::Arc;
use extant_testing::scratch;

use super::disk::{alone, assert_clean, debugfs, make};

const SIZE: usize = 100_000;
/// With a placeholder for the hashes.
const WHOLE: usize = 200_000;

fn content() -> Vec<u8> {
    (0..WHOLE).map(|at| (at * 7 / 3) as u8 | 1).collect()
}

/// `/v` is a verity file of [`SIZE`] bytes with blocks as far as [`WHOLE`], `/p` a file.
fn disk(scratch: &Path) -> PathBuf {
    let image = make(scratch, &["-O", "verity"], |tree| {
        fs::write(tree.join("v"), content()).expect("a file");
        fs::write(tree.join("p"), b"plain").expect("a file");
    });
    debugfs(&image, &format!("sif v size {SIZE}\nsif v flags 0x180000\n"));
    assert_clean(&image, "before");
    image
}

fn open(image: &Path, pages: u64) -> Filesystem {
    Mount::new().background(false).page_cache_bytes(pages).open(image).expect("a mount")
}

/// Asserts that content and hashes of the verity file are all there.
fn assert_whole(fs: &Filesystem, path: &str, what: &str) {
    let file = fs.lookup(path).expect(what);
    assert_eq!(file.read_to_end_at(0).expect(what), content()[..SIZE], "{what}");
    assert!(file.flags().contains(InodeFlags::VERITY), "{what}");
    let blocks: u32 = file.extents(0, u64::MAX).expect(what).iter().map(|extent| extent.len).sum();
    assert_eq!(blocks as usize, WHOLE.div_ceil(1024), "{what}");
}

#[test]
fn a_verity_file_is_read_to_its_end_and_changed_by_no_write() {
    let Some(_alone) = alone() else { return };
    for pages in [0, 4 << 20] {
        let scratch = scratch();
        let image = disk(scratch.path());
        let fs = open(&image, pages);
        let what = format!("{pages} bytes of pages");
        assert_whole(&fs, "/v", &what);
        let file = fs.options().read(true).write(true).open("/v").expect(&what);
        assert_eq!(file.seek_to(SeekTo::Hole, 0).expect(&what), SIZE as u64);
        assert!(matches!(file.seek_to(SeekTo::Data, SIZE as u64), Err(Error::NoSuchOffset)));
        let refused = [
            file.write_at(b"x", 0).map(drop),
            file.write_at(b"x", SIZE as u64).map(drop),
            file.set_len(0),
            file.set_len(SIZE as u64),
            file.set_len(WHOLE as u64),
            file.allocate(Fallocate::Allocate { keep_size: true }, WHOLE as u64, 4096),
            file.allocate(Fallocate::PunchHole, 0, 4096),
            file.allocate(Fallocate::ZeroRange { keep_size: true }, 0, 4096),
            file.allocate(Fallocate::CollapseRange, 0, 1024),
            fs.write("/v", b"x"),
        ];
        for (at, result) in refused.into_iter().enumerate() {
            assert!(
                matches!(result.as_ref().map_err(Error::cause), Err(Error::NotPermitted)),
                "{what}: {at}: {result:?}"
            );
        }
        let plain = fs.options().write(true).open("/p").expect(&what);
        assert!(plain.set_flags(plain.flags() | InodeFlags::VERITY).is_err());
        assert!(file.set_flags(file.flags() - InodeFlags::VERITY).is_err());
        drop((file, plain));
        assert_whole(&fs, "/v", &what);
        fs.unmount().expect(&what);
        assert_clean(&image, &what);
    }
}

#[test]
fn a_verity_file_has_names_and_attributes_as_any() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path());
    let fs = open(&image, 0);
    fs.rename("/v", "/w").expect("rename");
    fs.hard_link("/w", "/l").expect("link");
    fs.set_mode("/w", 0o600).expect("chmod");
    fs.set_owner("/w", 1, 2).expect("chown");
    let file = fs.lookup("/w").expect("the file");
    file.set_xattr(b"user.a", b"b", Default::default()).expect("setxattr");
    file.set_flags(file.flags() | InodeFlags::NODUMP).expect("chattr");
    drop(file);
    fs.remove_file("/w").expect("unlink");
    assert_whole(&fs, "/l", "by its other name");
    fs.unmount().expect("unmount");
    assert_clean(&image, "with other names");
    let fs = open(&image, 0);
    assert_whole(&fs, "/l", "mounted again");
    let free = fs.statistics().free_blocks;
    fs.remove_file("/l").expect("unlink");
    fs.sync().expect("sync");
    assert!(fs.statistics().free_blocks >= free + WHOLE.div_ceil(1024) as u64);
    fs.unmount().expect("unmount");
    assert_clean(&image, "without it");
}

#[test]
fn hashes_stay_when_an_orphan_is_cut_to_its_size() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path());
    let number = Mount::new().read_only(true).open(&image).expect("a mount").metadata("/v").expect("v").inode;
    debugfs(&image, &format!("ssv last_orphan {number}\n"));
    let fs = open(&image, 0);
    assert_eq!(fs.mounted().orphans, 1);
    assert_whole(&fs, "/v", "an orphan");
    fs.unmount().expect("unmount");
    assert_clean(&image, "an orphan");
}

/// Bytes in place of a hash tree and its descriptor.
fn metadata() -> Vec<u8> {
    (0..3 * 4096).map(|at| (at * 5 / 7) as u8 | 1).collect()
}

/// Whether `/v` is a verity file with all that belongs to it; else it is to be the file that it was.
fn is_enabled(fs: &Filesystem, device: &dyn BlockDevice, what: &str) -> bool {
    let file = fs.lookup("/v").expect(what);
    assert_eq!(file.read_to_end_at(0).expect(what), content()[..SIZE], "{what}");
    let extents = file.extents(0, u64::MAX).expect(what);
    let behind: Vec<_> = extents.iter().filter(|extent| extent.logical.0 >= 131_072 / 4096).collect();
    if !file.flags().contains(InodeFlags::VERITY) {
        assert!(behind.is_empty(), "{what}: {behind:?}");
        return false;
    }
    let mut bytes = Vec::new();
    for extent in behind {
        let from = bytes.len();
        bytes.resize(from + extent.len as usize * 4096, 0);
        device.read_at(extent.start.0 * 4096, &mut bytes[from..]).expect(what);
    }
    assert!(bytes == metadata(), "{what}");
    assert!(matches!(file.write_at(b"x", 0), Err(Error::NotPermitted)), "{what}");
    true
}

/// A recorded disk that is synced before each piece of the hashes is written, so that commits fall between them.
struct Synced {
    recorder: Recorder<MemoryDevice>,
    fs: Mutex<Option<Filesystem>>,
}

impl BlockDevice for Synced {
    fn size(&self) -> u64 {
        self.recorder.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.recorder.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let is_piece = |buf: &IoSlice<'_>| metadata().chunks(4096).any(|piece| buf.starts_with(piece));
        if bufs.iter().any(is_piece)
            && let Some(fs) = self.fs.lock().expect("a lock").clone()
        {
            // A thread of its own: the writer holds locks.
            extant_rt::apart(|| fs.sync().expect("sync"));
        }
        self.recorder.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.recorder.write_fua(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.recorder.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.write_zeroes(offset, bytes)
    }
}

/// A disk that has verity files, with `/v`.
fn verity_disk(pages: u64) -> (Arc<Synced>, Filesystem) {
    let device = MemoryDevice::new(16 << 20);
    Mkfs::new().features("verity").expect("a feature").inodes(4096).format(&device).expect("format");
    let device = Arc::new(Synced { recorder: Recorder::over(device), fs: Mutex::new(None) });
    let mount = Mount::new().background(false).page_cache_bytes(pages).reserved_pool_max(0);
    let fs = mount.open_device(device.clone()).expect("mount");
    fs.write("/v", &content()[..SIZE]).expect("write");
    fs.sync().expect("sync");
    (device, fs)
}

/// Leaves few free blocks, none beside another, so that the hashes are written in pieces.
fn fragment(fs: &Filesystem) {
    let count = (0..).take_while(|at| fs.write(format!("/{at}"), [0; 4096]).is_ok()).count();
    let _ = fs.remove_file(format!("/{count}"));
    fs.sync().expect("sync");
    (0..8).for_each(|at| fs.remove_file(format!("/{}", count / 2 + 2 * at)).expect("a file"));
    fs.sync().expect("sync");
}

#[test]
fn after_every_crash_a_file_is_a_verity_file_with_its_hashes_or_as_it_was() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    for pages in [0, 4 << 20] {
        let (device, fs) = verity_disk(pages);
        fragment(&fs);
        let from = device.recorder.log().events().len();
        *device.fs.lock().expect("a lock") = Some(fs.clone());
        fs.lookup("/v").expect("a file").enable_verity(&metadata()).expect("verity");
        let extents = fs.lookup("/v").expect("a file").extents(0, u64::MAX).expect("extents");
        assert!(extents.len() > 2, "the hashes are in one piece: {extents:?}");
        assert!(matches!(fs.lookup("/v").expect("a file").enable_verity(&metadata()), Err(Error::Exists)));
        fs.sync().expect("sync");
        device.fs.lock().expect("a lock").take();
        let log = device.recorder.log();
        let (mut cursor, mut enabled) = (log.cursor(), 0);
        for events in from..=log.events().len() {
            cursor.advance_to(events).expect("a log");
            for survivors in 0..3 {
                let survives = |part: &Unflushed| match survivors {
                    0 => false,
                    1 => true,
                    _ => part.event.is_multiple_of(2),
                };
                let image = Arc::new(cursor.crash_image(Tearing::Requests, survives).expect("an image"));
                let what = format!("{pages} bytes of pages, event {events}, survivors {survivors}");
                let fs = Mount::new().background(false).open_device(image.clone()).expect(&what);
                enabled += usize::from(is_enabled(&fs, &*image, &what));
                fs.unmount().expect(&what);
                let path = scratch.path().join("image");
                let mut bytes = vec![0; 16 << 20];
                image.read_at(0, &mut bytes).expect(&what);
                fs::write(&path, bytes).expect(&what);
                assert_clean(&path, &what);
            }
        }
        assert!(enabled > 0 && enabled < 3 * (log.events().len() - from), "{enabled}");
    }
}

#[test]
fn what_cannot_be_a_verity_file_stays_as_it_was() {
    let (_, fs) = verity_disk(4 << 20);
    let file = fs.lookup("/v").expect("a file");
    assert!(matches!(file.enable_verity(&[]), Err(Error::InvalidArgument(_))));
    assert!(matches!(fs.lookup("/").expect("a directory").enable_verity(b"x"), Err(Error::IsADirectory)));
    file.set_flags(file.flags() | InodeFlags::APPEND).expect("a flag");
    assert!(matches!(file.enable_verity(&metadata()), Err(Error::NotPermitted)));
    file.set_flags(file.flags() - InodeFlags::APPEND).expect("no flag");
    // What was allocated behind the end goes, and so do hashes for which there is no space.
    file.allocate(Fallocate::Allocate { keep_size: true }, 0, 1 << 20).expect("blocks");
    let free = fs.statistics().free_blocks;
    assert!(matches!(file.enable_verity(&vec![1; 32 << 20]), Err(Error::NoSpace)));
    assert!(!file.flags().contains(InodeFlags::VERITY));
    assert!(fs.statistics().free_blocks >= free);
    file.write_at(b"x", 0).expect("a write");
    file.enable_verity(&metadata()).expect("verity");
    assert_eq!(
        file.extents(0, u64::MAX).expect("extents").iter().map(|extent| extent.len).sum::<u32>(),
        25 + 3
    );
    let device = MemoryDevice::new(16 << 20);
    Mkfs::new().format(&device).expect("format");
    let fs = Mount::new().background(false).open_device(Arc::new(device)).expect("mount");
    fs.write("/v", b"x").expect("a file");
    assert!(matches!(fs.lookup("/v").expect("a file").enable_verity(b"x"), Err(Error::Unsupported(_))));
}
