//! What the tests share: logs, and a client.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;

use extant_block::BlockDevice;
use extant_journal::{BoxError, Client, Error, FinalBlock, Journal, LogMap};
use extant_ondisk::jbd2::{CRC32C_TYPE, Compat, Incompat, Superblock};
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, LockClass, Mutex, Weak};

/// A superblock of an empty log.
pub fn empty_log(block_size: u32, len: u32) -> Superblock {
    Superblock {
        s_blocksize: block_size,
        s_maxlen: len,
        s_first: 1,
        s_sequence: TransactionId(1),
        s_start: 0,
        s_errno: 0,
        s_feature_compat: Compat::empty(),
        s_feature_incompat: Incompat::empty(),
        s_feature_ro_compat: 0,
        s_uuid: [7; 16],
        s_nr_users: 1,
        s_checksum_type: CRC32C_TYPE,
        s_num_fc_blks: 0,
        s_head: 0,
    }
}

/// Writes an empty log of `len` blocks from `start`.
pub fn format_log(device: &dyn BlockDevice, block_size: u32, start: u64, len: u32) -> LogMap {
    let mut block = vec![0; block_size as usize];
    empty_log(block_size, len).write(&mut block);
    device.write_at(start * u64::from(block_size), &block).expect("write the superblock");
    LogMap::contiguous(FsBlock(start), len).expect("a map")
}

/// Keeps the changed blocks of the running transaction, and what was called.
pub struct PlainClient {
    pub pending: Mutex<BTreeMap<FsBlock, Arc<[u8]>>>,
    pub committed: Mutex<Vec<TransactionId>>,
    pub aborts: Mutex<Vec<String>>,
    /// The records that a fast commit gets; without them there can be none.
    pub records: Mutex<Option<Vec<Vec<u8>>>>,
}

impl PlainClient {
    pub fn attach(journal: &Journal) -> Arc<Self> {
        let client = Arc::new(Self {
            pending: Mutex::new(LockClass::BUFFER, BTreeMap::new()),
            committed: Mutex::new(LockClass::BUFFER, Vec::new()),
            aborts: Mutex::new(LockClass::BUFFER, Vec::new()),
            records: Mutex::new(LockClass::BUFFER, None),
        });
        let as_client: Arc<dyn Client> = client.clone();
        let weak: Weak<dyn Client> = Arc::downgrade(&as_client);
        journal.set_client(weak);
        client
    }

    /// Changes a block inside a handle.
    pub fn change(&self, block: u64, bytes: &[u8]) {
        self.pending.lock().insert(FsBlock(block), bytes.into());
    }
}

impl Client for PlainClient {
    fn freeze(
        &self,
        _tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let changed = std::mem::take(&mut *self.pending.lock());
        Box::new(move || Ok(changed.into_iter().map(|(block, bytes)| FinalBlock { block, bytes }).collect()))
    }

    fn fast_commit(&self, _tid: TransactionId) -> Option<Vec<Vec<u8>>> {
        self.records.lock().as_mut().map(std::mem::take)
    }

    fn read_before_recovery(&self) -> Vec<FsBlock> {
        vec![FsBlock(50)]
    }

    fn committed(&self, tid: TransactionId) {
        self.committed.lock().push(tid);
    }

    fn aborted(&self, error: &Error) {
        self.aborts.lock().push(error.to_string());
    }
}

/// One block of a device.
pub fn read_block(device: &dyn BlockDevice, block_size: u32, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    device.read_at(block * u64::from(block_size), &mut bytes).expect("read");
    bytes
}
