//! `extant replay`.

use std::path::PathBuf;

use clap::Args;

use super::Outcome;
use crate::disks::{Location, open_for_writing, unmount};

/// Replay the journal of a disk that was not unmounted
///
/// Finishes what a crash interrupted, as mounting would, and leaves the disk clean. A clean disk is left as it is,
/// but for the time of its last mount.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant replay disk.img")]
pub struct Replay {
    #[command(flatten)]
    location: Location,
    /// The image
    image: PathBuf,
}

impl Replay {
    /// Replays.
    pub fn run(self) -> Outcome {
        let fs = open_for_writing(&self.image, self.location)?;
        let found = fs.mounted();
        unmount(&self.image, fs)?;
        let image = self.image.display();
        let mut output = crate::output::Output::new();
        output.line(format!(
            "{image}: {} blocks replayed, {} orphans settled",
            found.replayed_blocks, found.orphans
        ))?;
        output.finish()?;
        Ok(0)
    }
}
