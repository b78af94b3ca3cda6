//! Revoke records of the running transaction.
//!
//! A freed metadata block may be allocated again for file content. A copy of it that is still in the log would
//! then overwrite that content at recovery, so the freeing transaction says that older copies are void. A block
//! that the same transaction logs again is not revoked: its copy is newer than the freeing. The freeze takes its record out.
//!
//! Locks: `JOURNAL` key 2, alone.
//!
//! Source: `fs/jbd2/revoke.c`. Checked by `tests/crash.rs`.

use std::collections::BTreeSet;

use extant_ondisk::FsBlock;

use crate::Journal;

impl Journal {
    pub(crate) fn revoke(&self, block: FsBlock) {
        let Some(log) = &self.log else { return };
        let mut revoked = self.revoked.lock();
        revoked.insert(block);
        if revoked.len() >= log.revokes_max {
            self.gate.fill();
        }
    }

    /// The records of a transaction without open handles; the next one starts with none.
    pub(crate) fn take_revoked(&self) -> BTreeSet<FsBlock> {
        std::mem::take(&mut *self.revoked.lock())
    }
}
