//! The request that a thread is answering, as other threads see it.
//!
//! Locks: `READERS`, for moments.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use extant_rt::{Arc, AtomicBool, AtomicU64, AtomicUsize, LockClass, Monotonic, Mutex, Ordering};
use rustix::io::Errno;
use rustix::thread::{Pid, gettid};

use super::device::Device;
use super::wire::{InHeader, opcode};

/// No role.
const NONE: u64 = u64::MAX;
/// From one look at a caller that was sent a signal to the next.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The resource that requests wait for: waiting requests of one class leave threads for those of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Attributes of inodes and of the file system, which are in memory.
    Light,
    /// Content of files.
    Read,
    /// Writes wait for the device and are slowed where much is dirty.
    Write,
    /// Whatever makes changes durable.
    Sync,
    /// Names, attributes that change, listings and all else.
    Other,
}

impl Class {
    /// How many there are.
    pub(super) const COUNT: usize = 5;

    /// The class of a kind of request.
    pub(super) const fn of(kind: u32) -> Self {
        match kind {
            opcode::GETATTR | opcode::STATX | opcode::STATFS => Self::Light,
            opcode::READ => Self::Read,
            opcode::WRITE | opcode::FALLOCATE => Self::Write,
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Self::Sync,
            _ => Self::Other,
        }
    }
}

/// A thread and its request.
#[derive(Debug)]
pub(super) struct Slot {
    thread: Pid,
    /// The request under way; 0 is none.
    unique: AtomicU64,
    /// The kind of request.
    kind: AtomicU64,
    /// The thread that made that request.
    caller: AtomicU64,
    /// The request whose caller was sent a signal.
    signalled: AtomicU64,
    /// When the caller was looked at last, once it was sent a signal.
    looked: Mutex<Option<Monotonic>>,
    /// The descriptor that it came from, if it did not come over a ring.
    device: Mutex<Option<Arc<Device>>>,
    /// Which descriptor the thread reads, or [`NONE`].
    role: AtomicU64,
    /// The index of the class as which the thread counts since it left its role. Changed under the readers' lock.
    waits_as: AtomicUsize,
    /// The thread may have the policy of the idle reader.
    pub(super) is_idle_reader: AtomicBool,
}

impl Slot {
    /// The slot of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            thread: gettid(),
            unique: AtomicU64::new(0),
            kind: AtomicU64::new(0),
            caller: AtomicU64::new(0),
            signalled: AtomicU64::new(0),
            looked: Mutex::new(LockClass::READERS, None),
            device: Mutex::new(LockClass::READERS, None),
            role: AtomicU64::new(NONE),
            waits_as: AtomicUsize::new(0),
            is_idle_reader: AtomicBool::new(false),
        }
    }

    pub(super) const fn thread(&self) -> Pid {
        self.thread
    }

    /// Notes where the thread has its requests from.
    pub(super) fn read_from(&self, device: &Arc<Device>) {
        *self.device.lock() = Some(device.clone());
    }

    /// Notes the request that the thread answers from now on.
    pub(super) fn begin(&self, header: &InHeader) {
        self.kind.store(header.opcode.into(), Ordering::Relaxed);
        self.caller.store(header.pid.into(), Ordering::Relaxed);
        // SeqCst: before the look whether the alarm is set, which the watcher does the other way round.
        self.unique.store(header.unique, Ordering::SeqCst);
    }

    /// It is answered.
    pub(super) fn end(&self) {
        self.unique.store(0, Ordering::Release);
    }

    /// The request under way; 0 is none.
    pub(super) fn request(&self) -> u64 {
        self.unique.load(Ordering::SeqCst)
    }

    /// The index of the class of that request.
    pub(super) fn class(&self) -> usize {
        Class::of(self.kind()) as usize
    }

    /// Notes that the thread, whose role was taken, counts as one of its request's class, and returns the class's index. The thread
    /// may begin another request meanwhile: whatever that is, the thread counts as this class until it has ended it.
    pub(super) fn wait_as_class(&self) -> usize {
        let class = self.class();
        self.waits_as.store(class, Ordering::Relaxed);
        class
    }

    /// The index of the class as which the thread counts.
    pub(super) fn waits_as(&self) -> usize {
        self.waits_as.load(Ordering::Relaxed)
    }

    fn kind(&self) -> u32 {
        self.kind.load(Ordering::Relaxed) as u32
    }

    /// Has the killed caller of `unique` wait no more for a request that only reads or waits, and that may hang in the device. The
    /// thread goes on with it; the kernel takes no notice of what it replies later.
    pub(super) fn let_go(&self, unique: u64) {
        let device = self.device.lock().clone();
        let Some(device) = device.filter(|_| only_reads(self.kind())) else { return };
        // Is it another request by now, then the kernel finds none by this number.
        if self.request() == unique && is_dying(self.caller.load(Ordering::Relaxed)) {
            device.refuse(unique, Errno::INTR);
        }
    }

    /// Notes a signal to the caller of `unique`; false if that is not under way here.
    pub(super) fn signal(&self, unique: u64) -> bool {
        let is_here = self.request() == unique;
        if is_here {
            self.signalled.store(unique, Ordering::Relaxed);
        }
        is_here
    }

    /// Whether the caller of the request under way was sent a signal.
    pub(super) fn is_signalled(&self) -> bool {
        let unique = self.unique.load(Ordering::Relaxed);
        unique != 0 && self.signalled.load(Ordering::Relaxed) == unique
    }

    /// Whether the caller of the request under way is dying. A signal that is handled leaves a request alone, as it leaves what a
    /// kernel's own file system does.
    pub(super) fn is_abandoned(&self) -> bool {
        if !self.is_signalled() {
            return false;
        }
        let mut looked = self.looked.lock();
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return false;
        }
        let is_dying = is_dying(self.caller.load(Ordering::Relaxed));
        *looked = (!is_dying).then(Monotonic::now);
        is_dying
    }

    /// Takes the role away; it is the taker's then.
    pub(super) fn take_role(&self) -> Option<usize> {
        let role = self.role.swap(NONE, Ordering::AcqRel);
        (role != NONE).then_some(role as usize)
    }

    pub(super) fn give_role(&self, role: usize) {
        self.role.store(role as u64, Ordering::Release);
    }

    pub(super) fn has_role(&self) -> bool {
        self.role.load(Ordering::Acquire) != NONE
    }
}

/// Whether nothing that the kernel does later depends on how far such a request came. A look-up counts a use.
const fn only_reads(kind: u32) -> bool {
    matches!(
        kind,
        opcode::GETATTR
            | opcode::STATX
            | opcode::STATFS
            | opcode::READ
            | opcode::READDIR
            | opcode::READLINK
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::LSEEK
            | opcode::FSYNC
            | opcode::FSYNCDIR
            | opcode::SYNCFS
    )
}

/// Whether a thread was killed: every fatal signal becomes SIGKILL for each thread of the process.
///
/// Source: `complete_signal` of `kernel/signal.c`; `status` takes no lock that a program's start holds.
fn is_dying(thread: u64) -> bool {
    let mut text = String::new();
    let read =
        File::open(format!("/proc/{thread}/status")).and_then(|mut file| file.read_to_string(&mut text));
    read.is_ok() && has_sigkill(&text)
}

fn has_sigkill(status: &str) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigPnd:"));
    masks.filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok()).any(|mask| mask & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fatal_signal_abandons_a_request() {
        assert!(has_sigkill("Name:\tcat\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000004100\n"));
        assert!(!has_sigkill("Name:\tcat\nSigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n"));
        assert!(!has_sigkill(""));
        let slot = Slot::new();
        slot.begin(&InHeader {
            unique: 8,
            pid: std::process::id(),
            opcode: opcode::READ,
            ..InHeader::default()
        });
        assert!(!slot.signal(6) && slot.signal(8));
        assert!(!slot.is_abandoned(), "this process lives");
        slot.end();
        assert!(!slot.signal(8));
    }

    #[test]
    fn role_is_taken_once() {
        let slot = Slot::new();
        assert!(!slot.has_role());
        slot.give_role(3);
        assert!(slot.has_role());
        assert_eq!((slot.take_role(), slot.take_role()), (Some(3), None));
    }
}
