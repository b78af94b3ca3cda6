//! A mount and the threads that serve it.

use std::io;
use std::path::Path;

use fuser::{Config, SessionACL};

use super::fuser::Adapter;
use super::mount::{self, MountError, MountOptions};
use crate::ops::Ops;

/// CPUs for each thread that reads requests. They wait in turns, so more of them mean that each request wakes a thread
/// that has slept for long, mostly on another CPU.
const CPUS_PER_READER: usize = 4;
/// Threads at most: each has a buffer of 16 MiB of addresses, of which it touches what requests fill.
const READERS_MAX: usize = 64;

/// A mounted directory, usable as soon as it is served.
#[derive(Debug)]
pub struct Session<T: Ops> {
    session: fuser::Session<Adapter<T>>,
}

impl<T: Ops> Session<T> {
    /// Mounts `ops` at `dir`. Nothing is answered before [`Session::run`].
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount(ops: T, dir: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let mut config = Config::default();
        let readers = options.threads.unwrap_or(extant_rt::available_parallelism() / CPUS_PER_READER);
        config.n_threads = Some(readers.clamp(1, READERS_MAX));
        config.clone_fd = true;
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.mount_options = mount::fuser_options(options);
        let adapter = Adapter::new(ops, options.writeback);
        let session = match mount::mount_as_root(dir, options)? {
            Some(device) => fuser::Session::from_fd(adapter, device, config.acl, config),
            None => fuser::Session::new(adapter, dir, &config),
        };
        Ok(Self { session: session.map_err(MountError::Refused)? })
    }

    /// Answers requests until it is unmounted.
    ///
    /// # Errors
    /// Those of reading requests.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}
