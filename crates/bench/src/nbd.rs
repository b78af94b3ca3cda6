//! Random requests of one size by some threads to an export of a server of network block devices.

use std::time::{Duration, Instant};

use extant_block::BlockDevice;
use extant_nbd::{NbdDevice, Options, Uri};

use crate::Result;

/// Which requests are made of which export.
#[derive(clap::Args)]
pub struct Arguments {
    /// The URI of the export
    uri: String,
    /// Write, and not read
    #[arg(long)]
    write: bool,
    /// Bytes of a request
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Requests at once
    #[arg(long, default_value_t = 1)]
    depth: u64,
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
    let places = device.size() / arguments.bytes as u64;
    let end = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    let counts: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.depth)
            .map(|thread| {
                let device = &device;
                scope.spawn(move || {
                    let mut bytes = vec![thread as u8; arguments.bytes];
                    let (mut random, mut count) = (thread + 1, 0);
                    while Instant::now() < end {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let offset = (random >> 20) % places * arguments.bytes as u64;
                        match arguments.write {
                            true => device.write_at(offset, &bytes)?,
                            false => device.read_at(offset, &mut bytes)?,
                        }
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let total: u64 = counts.into_iter().sum::<std::io::Result<u64>>()?;
    println!("{:.0}", total as f64 / arguments.seconds);
    Ok(())
}
