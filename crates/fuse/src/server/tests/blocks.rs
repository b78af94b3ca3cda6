//! Where the blocks of files are.

use extant_block::{Recorder, Tearing};

use super::*;

const UNIT: u64 = SHOWN_BLOCK_BYTES as u64;
const KEEP_SIZE: i32 = 1;
const WRITTEN: u64 = 24;
const ALLOCATED: u64 = 8;

/// A disk whose server has a page cache, a file on it, and its server.
fn served_file(block_size: u32) -> (Arc<Recorder<MemoryDevice>>, Arc<Server>, NodeId) {
    let device = MemoryDevice::new(64 << 20);
    extant::mkfs::Mkfs::new().block_size(block_size).format(&device).expect("a file system");
    let device = Arc::new(Recorder::over(device));
    let mount = Mount::new().page_cache_bytes(4 << 20).keep_clean_pages(false);
    let fs = mount.open_device(device.clone()).expect("a mount");
    let server = Server::new(fs, ServerOptions::default()).expect("a server");
    let node = make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644).node;
    (device, server, node)
}

fn write(server: &Server, node: NodeId, unit: u64, byte: u8, is_late: bool) {
    let how = WriteHow { is_late, ..WriteHow::default() };
    let bytes = [byte; UNIT as usize];
    assert_eq!(server.write(node, unit * UNIT, &bytes, how), Ok(bytes.len()));
}

fn find(server: &Server, node: NodeId, unit: u64) -> Option<u64> {
    server.find_block(node, unit, SHOWN_BLOCK_BYTES).expect("an answer")
}

/// The durable content of the device: the host would write unflushed bytes some time later.
fn on_device(device: &Recorder<MemoryDevice>, place: u64) -> u8 {
    let log = device.log();
    let durable = log.crash_image(log.events().len(), Tearing::Requests, |_| false).expect("an image");
    let mut bytes = [0; UNIT as usize];
    durable.read_at(place * UNIT, &mut bytes).expect("read");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn what_was_written_is_where_the_kernel_is_told() {
    for block_size in [1024, 2048, 4096, 65536] {
        let (device, server, node) = served_file(block_size);
        for unit in 0..WRITTEN {
            write(&server, node, unit, unit as u8 + 1, false);
        }
        let whole = WRITTEN.next_multiple_of(16);
        server.allocate(ROOT, node, KEEP_SIZE, whole * UNIT, ALLOCATED * UNIT).expect("allocated");
        let found: Vec<_> = (0..WRITTEN).map(|unit| find(&server, node, unit)).collect();
        // Of smaller blocks, only a position at a multiple of the unit can be reported.
        assert!(block_size < 4096 || found.iter().all(Option::is_some), "{block_size}: {found:?}");
        for (unit, place) in found.iter().enumerate().filter_map(|(unit, place)| Some((unit, (*place)?))) {
            assert_eq!(on_device(&device, place), unit as u8 + 1, "{block_size}");
        }
        let allocated: Vec<_> = (whole..whole + ALLOCATED).map(|unit| find(&server, node, unit)).collect();
        assert!(block_size < 4096 || allocated.iter().all(Option::is_some), "{block_size}: {allocated:?}");
        assert!(allocated.iter().flatten().all(|place| !found.contains(&Some(*place))));
        assert_eq!(find(&server, node, 3 * whole), None, "a hole");
        assert_eq!(find(&server, node, u64::MAX / UNIT), None, "behind the end");
        assert_eq!(server.find_block(node, u64::MAX, SHOWN_BLOCK_BYTES), Err(Errno::INVAL));
        assert_eq!(server.find_block(node, 0, 1024), Err(Errno::INVAL));
        server.finish().expect("unmounted");
    }
}

/// `swapon` asks for the blocks and then writes back what the kernel has of the file; later than that, it would overwrite what was
/// swapped out.
#[test]
fn nothing_of_a_file_comes_to_the_device_late() {
    let (device, server, node) = served_file(4096);
    write(&server, node, 0, 1, false);
    write(&server, node, 1, 1, true);
    let places = [0, 1].map(|unit| find(&server, node, unit).expect("a block"));
    assert_eq!(places.map(|place| on_device(&device, place)), [1, 1]);
    write(&server, node, 1, 2, true);
    assert_eq!(on_device(&device, places[1]), 2, "what comes late is on the device at once");
    write(&server, node, 1, 3, false);
    assert_eq!(find(&server, node, 0), Some(places[0]));
    assert_eq!(on_device(&device, places[1]), 3, "nothing waits when it is asked for again");
    server.finish().expect("unmounted");
}
