//! A loss of written data is reported once by each open file, through the running kernel.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use extant_block::{Fault, FaultDevice, Operation};

use super::kernel::on_mount_of;
use super::*;

const BLOCK: usize = SHOWN_BLOCK_BYTES as usize;

type Device = Arc<FaultDevice<Arc<MemoryDevice>>>;

fn served_from_a_page_cache() -> (Device, Arc<Server>) {
    let device = Arc::new(FaultDevice::new(disk(), |_| Fault::None));
    let fs = Mount::new().page_cache_bytes(16 << 20).open_device(device.clone()).expect("a mount");
    (device, Server::new(fs, ServerOptions::default()).expect("a server"))
}

/// Runs `act` on a mount with a page cache; the closure that it gets writes a file's only block and has the device refuse it.
fn on_failing(name: &str, act: impl FnOnce(&Path, &dyn Fn(&File))) {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root mounts so");
    }
    let point = std::env::temp_dir().join(format!("extant-losses-{name}-{}", std::process::id()));
    std::fs::create_dir(&point).expect("a directory");
    let (device, server) = served_from_a_page_cache();
    let lose = |file: &File| {
        device.set_plan(|_| Fault::None);
        file.write_all_at(&[1; BLOCK], 0).expect("written");
        let node = NodeId(file.metadata().expect("stat").ino());
        let block = server.find_block(node, 0, SHOWN_BLOCK_BYTES).expect("synced").expect("a block");
        let bad = block * BLOCK as u64;
        device.set_plan(move |request| {
            let range = request.offset..request.offset + request.bytes;
            let is_refused = request.operation == Operation::Write && range.contains(&bad);
            if is_refused { Fault::Error(io::ErrorKind::Other) } else { Fault::None }
        });
        file.write_all_at(&[2; BLOCK], 0).expect("written to memory");
    };
    on_mount_of(&server, &point, || {
        act(&point, &lose);
        let open_files = server.open_files.as_ref().expect("a table");
        let start = Instant::now();
        while open_files.count() > 0 {
            assert!(start.elapsed() < RELEASED_MAX, "{} files stay open", open_files.count());
            std::thread::sleep(Duration::from_millis(5));
        }
        // The loss is reported for the whole file system too; unmounting reports it if no sync did.
        let _ = synced(&File::open(&point).expect("the root"));
    });
    std::fs::remove_dir(&point).expect("the directory again");
}

fn synced(file: &File) -> Result<(), Option<i32>> {
    file.sync_all().map_err(|error| error.raw_os_error())
}

const LOST: Result<(), Option<i32>> = Err(Some(libc::EIO));

/// The kernel releases some time after a descriptor was closed.
const RELEASED_MAX: Duration = Duration::from_secs(30);

fn open(path: impl AsRef<Path>) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opened")
}

#[test]
fn each_open_file_reports_a_loss_once() {
    on_failing("each", |point, lose| {
        let path = point.join("file");
        let created = OpenOptions::new().write(true).create_new(true).open(&path).expect("created");
        let (opened, reader) = (open(&path), File::open(&path).expect("opened to read"));
        for _ in 0..2 {
            lose(&created);
            let duplicate = created.try_clone().expect("a duplicate");
            assert_eq!([synced(&created), synced(&duplicate)], [LOST, Ok(())], "they share what was told");
            assert_eq!([synced(&opened), synced(&opened)], [LOST, Ok(())]);
            assert_eq!([synced(&reader), synced(&reader)], [LOST, Ok(())]);
            assert_eq!(synced(&open(&path)), Ok(()), "opened after others were told");
        }
    });
}

#[test]
fn loss_that_nobody_saw_is_reported_by_the_next_open_file() {
    on_failing("unseen", |point, lose| {
        let path = point.join("file");
        let writer = OpenOptions::new().write(true).create_new(true).open(&path).expect("created");
        lose(&writer);
        drop(writer);
        let root = File::open(point).expect("the root");
        assert_eq!(synced(&root), LOST, "written back, and noted for the whole");
        let (next, after) = (open(&path), open(&path));
        assert_eq!([synced(&next), synced(&next)], [LOST, Ok(())]);
        assert_eq!(synced(&after), LOST, "it was opened before that was seen");
        assert_eq!(synced(&open(&path)), Ok(()));
    });
}

#[test]
fn open_files_without_a_name_report_a_loss_once_each() {
    on_failing("unnamed", |point, lose| {
        let unnamed = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(point);
        let unnamed = unnamed.expect("an unnamed file");
        let again = open(format!("/proc/self/fd/{}", unnamed.as_raw_fd()));
        lose(&unnamed);
        assert_eq!([synced(&again), synced(&unnamed)], [LOST, LOST]);
        assert_eq!([synced(&again), synced(&unnamed)], [Ok(()), Ok(())]);
    });
}

#[test]
fn open_files_are_kept_until_they_are_released_and_only_with_a_page_cache() {
    let request = CreateRequest { kind: InodeType::File, mode: 0o644, umask: 0 };
    let write = OpenHow { write: true, ..OpenHow::default() };
    let directory = OpenHow { directory: true, ..OpenHow::default() };
    let (_device, server) = served_from_a_page_cache();
    let kept = || server.open_files.as_ref().expect("a table").count();
    let (entry, created) = server.create(OWNER, NodeId::ROOT, b"file", &request).expect("created");
    let (_, unnamed) = server.create_tmpfile(OWNER, NodeId::ROOT, &request).expect("created");
    let opened = server.open(entry.node, write).expect("opened");
    assert_eq!((kept(), server.open(NodeId::ROOT, directory)), (3, Err(Errno::NOSYS)));
    for opened in [created, unnamed, opened] {
        assert!(opened.keeps_content && opened.handle != FileHandle::NONE, "{opened:?}");
        assert_eq!(server.sync(entry.node, opened.handle, true), Ok(()));
        let before = kept();
        server.release(opened.handle);
        server.release(opened.handle);
        assert_eq!(kept(), before - 1);
    }
    let again = server.open(entry.node, write).expect("opened");
    assert!(![created, unnamed, opened].contains(&again), "a handle has one life");
    let flags = &(InodeFlags::EXTENTS | InodeFlags::IMMUTABLE).bits().to_ne_bytes();
    server.ioctl(ROOT, entry.node, &asked(SETFLAGS, flags, 0)).expect("immutable");
    assert_eq!((server.open(entry.node, write), kept()), (Err(Errno::PERM), 1));
    server.finish().expect("unmounted");
    assert_eq!(kept(), 0);

    let server = served(&disk());
    let entry = self::make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644);
    assert_eq!(server.create(OWNER, NodeId::ROOT, b"other", &request), Err(Errno::NOSYS));
    assert_eq!(server.open(entry.node, write), Err(Errno::NOSYS));
    let (_, unnamed) = server.create_tmpfile(OWNER, NodeId::ROOT, &request).expect("created");
    assert_eq!(unnamed, Opened { handle: FileHandle::NONE, keeps_content: true });
    server.finish().expect("unmounted");
}
