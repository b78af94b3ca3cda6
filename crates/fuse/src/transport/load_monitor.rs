//! Finds out whether the machine is quiet, that is, so few threads run that CPUs idle. Then a reader's thread may be
//! [`SchedPolicy::Idle`].
//!
//! A thread that is woken while its CPU is in use is moved to an idle one, and on virtual machines that costs 30 times what
//! a switch to a thread of the same CPU costs. But a CPU on which only `SCHED_IDLE` threads run counts as idle
//! (`sched_idle_cpu()` in `select_idle_sibling()`): a caller that such a thread wakes stays on their common CPU, and
//! continues at once. The request of such a thread waits while others want its CPU: so a reader has this policy only on a
//! quiet machine, and is watched.

use std::os::fd::OwnedFd;
use std::time::Duration;

use extant_rt::Monotonic;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::Pid;

/// Looks in a row after which it counts as quiet.
const QUIET_LOOKS: u32 = 3;
/// Looks in a row after which it no more does: another thread may have run for microseconds.
const LOUD_LOOKS: u32 = 2;

/// Looks again and again.
#[derive(Debug)]
pub(super) struct LoadMonitor {
    /// `/proc/loadavg`, where it can be read.
    load: Option<OwnedFd>,
    running_max: usize,
    is_quiet: bool,
    /// Looks in a row that say the contrary.
    contrary: u32,
}

impl LoadMonitor {
    /// It is not, as yet.
    pub(super) fn new() -> Self {
        let load = open("/proc/loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let running_max = extant_rt::available_parallelism() / 2;
        Self { load, running_max, is_quiet: false, contrary: 0 }
    }

    /// Goes on from there.
    pub(super) const fn assume(&mut self, is_quiet: bool) {
        (self.is_quiet, self.contrary) = (is_quiet, 0);
    }

    /// Looks; whether it is quiet. The caller of the request is taken not to run.
    pub(super) fn look(&mut self) -> bool {
        let mut text = [0; 64];
        let count = self.load.as_ref().and_then(|load| rustix::io::pread(load, &mut text, 0).ok());
        let running = count.and_then(|count| running(&text[..count]));
        let is_quiet = running.is_some_and(|running| running <= self.running_max);
        self.contrary = if is_quiet == self.is_quiet { 0 } else { self.contrary + 1 };
        if self.contrary == if is_quiet { QUIET_LOOKS } else { LOUD_LOOKS } {
            self.assume(is_quiet);
        }
        self.is_quiet
    }
}

/// The time from one request to the next below which they come densely.
const DENSE: Duration = Duration::from_micros(200);

/// Finds out how fast requests come.
#[derive(Debug)]
pub(super) struct Pace(Monotonic);

impl Pace {
    /// From now on.
    pub(super) fn new() -> Self {
        Self(Monotonic::now())
    }

    /// Looks after so many requests; whether they came densely since the last look.
    pub(super) fn look(&mut self, requests: u32) -> bool {
        let since = std::mem::replace(&mut self.0, Monotonic::now());
        since.elapsed() < DENSE * requests
    }
}

/// Threads that run: of the 4th field, `running/all`.
fn running(load: &[u8]) -> Option<usize> {
    std::str::from_utf8(load).ok()?.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// When a thread has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchedPolicy {
    /// With all others.
    Normal,
    /// While no other thread wants the CPU.
    Idle,
}

impl SchedPolicy {
    /// Whether a thread that is [`SchedPolicy::Idle`] can come back: tried by one that ends then.
    pub(super) fn can_come_back() -> bool {
        let there_and_back = |_| Self::Idle.give(None).and_then(|()| Self::Normal.give(None)).is_ok();
        extant_rt::parallel(1, there_and_back) == [true]
    }

    /// Gives it to a thread of this process, or to the one that calls.
    ///
    /// # Errors
    /// `EPERM`: a thread that is [`SchedPolicy::Idle`] stays so, without `CAP_SYS_NICE` or an `RLIMIT_NICE` of 20.
    #[expect(unsafe_code, reason = "sched_setscheduler has no safe wrapper")]
    pub(super) fn give(self, thread: Option<Pid>) -> Result<(), Errno> {
        let policy = match self {
            Self::Normal => libc::SCHED_OTHER,
            Self::Idle => libc::SCHED_IDLE,
        };
        // SAFETY: all zeros is a value of it.
        let param: libc::sched_param = unsafe { std::mem::zeroed() };
        let thread = Pid::as_raw(thread);
        // The C library's own function may take processes alone.
        // SAFETY: the kernel reads `param`, which outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const param) };
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::running;

    #[test]
    fn running_threads_are_read() {
        assert_eq!(running(b"0.12 0.40 0.33 3/211 4711\n"), Some(3));
        assert_eq!(running(b"0.12 0.40"), None);
        assert_eq!(running(b""), None);
    }
}
