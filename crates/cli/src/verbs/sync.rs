//! `extant sync`.

use std::path::PathBuf;

use clap::Args;
use rustix::fs::{Mode, OFlags};

use super::Outcome;
use crate::failure::Failure;
use crate::mounts;

/// Make everything in a mounted disk durable. Of an image, `sync` and `syncfs` do not reach the server: they write back what
/// the kernel holds, and no more.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant sync dir")]
pub struct SyncArguments {
    /// Where it is mounted, or a place below
    dir: PathBuf,
}

impl SyncArguments {
    /// Syncs.
    pub fn run(self) -> Outcome {
        let Some(mounted) = mounts::ours_around(&self.dir)? else {
            return Err(mounts::not_ours(&self.dir));
        };
        let failed = |error: rustix::io::Errno| Failure::host(&mounted.point, &error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&mounted.point, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::syncfs(&root).map_err(failed)?;
        // The server takes the sync of its root for one of everything.
        rustix::fs::fsync(&root).map_err(failed)?;
        Ok(0)
    }
}
