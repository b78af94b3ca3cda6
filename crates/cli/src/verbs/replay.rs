//! `extant replay`.

use std::path::PathBuf;

use clap::Args;
use extant_ondisk::{IncompatFeatures, RoCompatFeatures};

use super::Outcome;
use crate::disks::{
    ImageLocation, Reading, chosen_location, journal_skipped, open_for_reading, open_for_writing, unmount,
};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Replay the journal of a disk that was not unmounted
///
/// Finishes what a crash interrupted, as mounting would, and leaves the disk clean. A disk with nothing to
/// finish is not written.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant replay disk.img")]
pub struct Replay {
    #[command(flatten)]
    location: ImageLocation,
    /// The image
    image: PathBuf,
}

impl Replay {
    /// Replays.
    pub fn run(mut self) -> Outcome {
        self.location = chosen_location(&self.image, self.location)?;
        let image = self.image.display();
        let mut output = Output::new();
        if self.is_settled()? {
            output.line(format!("{image}: nothing to replay"))?;
        } else {
            let fs = open_for_writing(&self.image, self.location)?;
            let found = fs.mounted();
            unmount(&self.image, fs)?;
            let (blocks, orphans) = (found.replayed_blocks, found.orphans);
            output.line(format!("{image}: {blocks} blocks replayed, {orphans} orphans settled"))?;
        }
        output.finish()?;
        Ok(0)
    }

    /// Whether there is nothing to finish.
    fn is_settled(&self) -> Result<bool, Failure> {
        let fs = open_for_reading(&self.image, Reading { location: self.location, ..Reading::default() })?;
        if let Some(skipped) = journal_skipped(&fs) {
            output::note(&format!("{}: {skipped}", self.image.display()));
        }
        let superblock = fs.superblock();
        Ok(fs.mounted().replayed_blocks == 0
            && !superblock.incompat().contains(IncompatFeatures::RECOVER)
            && !superblock.ro_compat().contains(RoCompatFeatures::ORPHAN_PRESENT)
            && superblock.s_last_orphan() == 0)
    }
}
