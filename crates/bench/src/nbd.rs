//! Random requests of one size to an export of a server of network block devices.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use extant_block::{BlockDevice, Write};
use extant_nbd::{NbdDevice, Options, Uri};

use crate::Result;

/// Writes that come at once, where several are to be in flight: the blocks that a checkpoint writes together, unless they are larger.
const WRITES_AT_ONCE: usize = 256;
/// And so many bytes.
const BYTES_AT_ONCE: usize = 64 << 20;

/// Which requests are made of which export.
#[derive(clap::Args)]
pub struct Arguments {
    /// The URI of the export
    uri: String,
    /// Write, and not read
    #[arg(long)]
    write: bool,
    /// Write, and hand the device many writes at a time, of which it has 16 in flight
    #[arg(long, conflicts_with = "depth")]
    write_many: bool,
    /// Bytes of a request
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Requests at once
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Connections, where the server allows several; as many as the client would make if none are named
    #[arg(long)]
    connections: Option<usize>,
    /// How long
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// Prints the requests per second.
pub fn measure(arguments: &Arguments) -> Result<()> {
    let mut options = Options::default();
    options.connections = arguments.connections.unwrap_or(options.connections);
    let device = NbdDevice::open(&Uri::parse(&arguments.uri)?, options)?;
    let places = Places { count: device.size() / arguments.bytes as u64, bytes: arguments.bytes as u64 };
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let request = |bytes: &mut [u8], offset| match arguments.write {
        true => device.write_at(offset, bytes),
        false => device.read_at(offset, bytes),
    };
    let total = match arguments.write_many {
        true => write_many(&device, places, end)?,
        false => side_by_side(arguments.depth, places, end, request)?,
    };
    println!("{:.0}", total as f64 / arguments.seconds);
    Ok(())
}

/// The places of requests on a device.
#[derive(Clone, Copy)]
struct Places {
    count: u64,
    bytes: u64,
}

impl Places {
    /// Offsets at random.
    fn random(self, seed: u64) -> impl Iterator<Item = u64> {
        let mut random = seed;
        std::iter::repeat_with(move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 20) % self.count * self.bytes
        })
    }
}

/// Makes requests on `depth` threads; how many.
fn side_by_side(
    depth: usize,
    places: Places,
    end: Instant,
    request: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
) -> io::Result<u64> {
    let request = &request;
    std::thread::scope(|scope| {
        let threads = (0..depth).map(|thread| {
            scope.spawn(move || {
                let mut bytes = vec![thread as u8; places.bytes as usize];
                let in_time = places.random(thread as u64 + 1).take_while(|_| Instant::now() < end);
                in_time.map(|offset| request(&mut bytes, offset).map(|()| 1)).sum::<io::Result<u64>>()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// Makes writes that come many at once, as a checkpoint has them; how many.
fn write_many(device: &NbdDevice, places: Places, end: Instant) -> io::Result<u64> {
    let at_once = (BYTES_AT_ONCE / places.bytes as usize).clamp(1, WRITES_AT_ONCE);
    let bytes: Vec<_> = (0..at_once).map(|write| vec![write as u8; places.bytes as usize]).collect();
    let mut offsets = places.random(1);
    let mut count = 0;
    while Instant::now() < end {
        // Ranges do not overlap.
        let next: BTreeMap<u64, &Vec<u8>> = offsets.by_ref().zip(&bytes).collect();
        let writes =
            next.iter().map(|(offset, bytes)| Write { offset: *offset, bufs: vec![IoSlice::new(bytes)] });
        device.write_many(&writes.collect::<Vec<_>>())?;
        count += next.len() as u64;
    }
    Ok(count)
}
