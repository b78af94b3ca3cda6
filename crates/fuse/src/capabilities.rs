//! The capabilities of a thread. A FUSE request names the thread that sent it, but not its capabilities.
//!
//! The thread waits for the reply, so its number is not reused meanwhile. Reading its capabilities takes no lock that a
//! thread holds while it waits.
//!
//! Source: `capable` of `kernel/capability.c`; `fs/proc/array.c`.

use std::path::{Path, PathBuf};

/// A capability, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_FOWNER`: do what owners do.
    FileOwner = 3,
    /// `CAP_LINUX_IMMUTABLE`: make inodes immutable and append-only, and end that.
    LinuxImmutable = 9,
    /// `CAP_SYS_ADMIN`.
    SystemAdministration = 21,
}

/// Whether a thread has a capability in the user namespace of this process. False if that cannot be known: the thread is in
/// another process's namespace of numbers (number 0), or this process may not look at it.
pub(crate) fn is_capable(thread: u32, capability: Capability) -> bool {
    if thread == 0 {
        return false;
    }
    let place = PathBuf::from(format!("/proc/{thread}"));
    // In a namespace of its own, every process can have all capabilities.
    let namespace = |of: &Path| std::fs::read_link(of.join("ns/user")).ok();
    let own = namespace(Path::new("/proc/self"));
    own.is_some()
        && own == namespace(&place)
        && std::fs::read_to_string(place.join("status"))
            .is_ok_and(|status| effective(&status) & (1 << capability as u32) != 0)
}

/// The effective capabilities in a process's `status`.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_cannot_be_looked_at_is_not_capable() {
        for thread in [0, u32::MAX] {
            assert!(!is_capable(thread, Capability::SystemAdministration));
        }
    }

    #[test]
    fn capabilities_are_read_of_a_thread() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000200008\nSeccomp:\t0\n";
        assert_eq!(effective(status), 1 << 21 | 1 << 3);
        assert_eq!(effective("Name:\tx\n"), 0);
        let own = std::fs::read_to_string("/proc/self/status").expect("status");
        let has = effective(&own) & (1 << 21) != 0;
        assert_eq!(is_capable(std::process::id(), Capability::SystemAdministration), has);
    }
}
