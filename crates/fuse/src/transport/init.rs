//! INIT: negotiates what both sides support.

use zerocopy::FromBytes;

use super::wire::{self, InitIn, InitOut, init};

/// Requests of read-ahead and asynchronous I/O in flight.
const BACKGROUND_MAX: u16 = 64;
/// The kernel's page; all it counts in them is rounded by it to its own.
const PAGE_BYTES: u32 = 4096;

/// The flags that are requested of the kernel, if it has them.
const WANTED: u64 = init::ASYNC_READ
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::INIT_EXT;

/// The kernel's side of the negotiation.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitRequest {
    major: u32,
    minor: u32,
    read_ahead: u32,
    flags: u64,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Understanding {
    /// It speaks a newer version and will send INIT again with the server's version.
    Again,
    /// It is too old.
    TooOld,
    /// It can be served.
    Agreed,
}

impl InitRequest {
    /// Reads the body of INIT.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        // Before 7.36 it was shorter.
        let mut whole = [0; size_of::<InitIn>()];
        let bytes = body.len().min(whole.len());
        whole[..bytes].copy_from_slice(&body[..bytes]);
        let told = InitIn::read_from_bytes(&whole).ok()?;
        let mut flags = u64::from(told.flags);
        if flags & init::INIT_EXT != 0 {
            flags |= u64::from(told.flags2) << 32;
        }
        let init_request =
            Self { major: told.major, minor: told.minor, read_ahead: told.max_readahead, flags };
        (bytes >= 16).then_some(init_request)
    }

    pub(super) const fn understanding(&self) -> Understanding {
        if self.major > wire::MAJOR {
            Understanding::Again
        } else if self.major < wire::MAJOR || self.minor < wire::MINOR_MIN {
            Understanding::TooOld
        } else {
            Understanding::Agreed
        }
    }

    /// Whether requests can come over rings.
    pub(super) const fn has_rings(&self) -> bool {
        self.flags & init::OVER_IO_URING != 0
    }

    /// Our answer.
    pub(super) fn answer(&self, max_write: u32, more: u64) -> InitOut {
        let flags = self.flags & (WANTED | more);
        InitOut {
            major: wire::MAJOR,
            minor: wire::MINOR,
            max_readahead: self.read_ahead,
            flags: flags as u32,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX / 4 * 3,
            max_write,
            time_gran: 1,
            max_pages: (max_write / PAGE_BYTES) as u16,
            flags2: (flags >> 32) as u32,
            ..InitOut::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn init_request(major: u32, minor: u32, flags: u32, flags2: u32) -> InitRequest {
        let told = InitIn { major, minor, max_readahead: 131_072, flags, flags2, unused: [0; 11] };
        InitRequest::read(told.as_bytes()).expect("INIT")
    }

    #[test]
    fn only_what_is_offered_is_taken() {
        let answer = init_request(7, 45, u32::MAX, 0).answer(1 << 20, init::CACHE_SYMLINKS);
        assert_eq!(u64::from(answer.flags), WANTED | init::CACHE_SYMLINKS);
        assert_eq!((answer.max_pages, answer.max_readahead), (256, 131_072));
        assert_eq!(init_request(7, 31, 0, 0).answer(1 << 20, init::CACHE_SYMLINKS).flags, 0);
    }

    #[test]
    fn second_word_of_flags_counts_only_if_announced() {
        let flags = |flags, flags2| init_request(7, 45, flags, flags2).flags >> 32;
        assert_eq!(flags(0, 7), 0);
        assert_eq!(flags(init::INIT_EXT as u32, 7), 7);
    }

    #[test]
    fn versions_are_told_apart() {
        assert_eq!(init_request(8, 0, 0, 0).understanding(), Understanding::Again);
        assert_eq!(init_request(7, 30, 0, 0).understanding(), Understanding::TooOld);
        assert_eq!(init_request(6, 99, 0, 0).understanding(), Understanding::TooOld);
        assert_eq!(init_request(7, 31, 0, 0).understanding(), Understanding::Agreed);
        assert!(InitRequest::read(&[0; 15]).is_none());
    }
}
