//! A transaction of blocks that are known beforehand, in a log that is not in use otherwise.

use extant_block::BlockDevice;
use extant_journal::{BoxError, Client, FinalBlock, Journal, LogMap};
use extant_ondisk::{IncompatFeatures, Superblock, TransactionId};
use extant_rt::{Arc, LockClass, Mutex};

use crate::error::Result;

/// Makes blocks durable as one transaction of the empty log at `log`, whose checksums and numbers are as `superblock` has features. None of
/// them is at its final location when this returns.
///
/// # Errors
/// The journal's; `Io`.
pub(super) fn commit(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    log: LogMap,
    blocks: Vec<FinalBlock>,
) -> Result<Arc<Journal>> {
    let options = extant_journal::Options {
        checksums: superblock.has_metadata_csum(),
        block_numbers_64bit: superblock.incompat().contains(IncompatFeatures::BIT64),
        ..extant_journal::Options::default()
    };
    let journal = Journal::open(device.clone(), device.clone(), superblock.block_size(), log, options)?;
    let client: Arc<dyn Client> = Arc::new(OneTransaction(Mutex::new(LockClass::CACHE, blocks)));
    journal.set_client(Arc::downgrade(&client));
    let handle = journal.start(1)?;
    handle.charge(1);
    handle.finish();
    journal.commit_running()?;
    Ok(journal)
}

/// How long a log has to be for a transaction of so many blocks.
pub(super) fn log_blocks(blocks: usize) -> usize {
    // A descriptor block has 30 tags at least, and a fast-commit area takes 256 blocks.
    blocks + blocks / 30 + 300
}

/// The client of a journal that commits once.
struct OneTransaction(Mutex<Vec<FinalBlock>>);

impl Client for OneTransaction {
    fn freeze(&self, _: TransactionId) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let blocks = std::mem::take(&mut *self.0.lock());
        Box::new(move || Ok(blocks))
    }

    fn committed(&self, _: TransactionId) {}

    fn aborted(&self, _: &extant_journal::Error) {}
}
