//! The thread that flushes what is old, and all when much is dirty.
//!
//! It holds the volume only while it works, so a volume that is dropped ends it.

use std::time::Duration;

use extant_ondisk::Structure;
use extant_rt::{Arc, AtomicBool, Condvar, JoinHandle, LockClass, Mutex, Ordering, Weak};

use crate::error::{Place, Result};
use crate::volume::Volume;

/// How often it looks, and how long something may be dirty before.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Flusher {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Signal {
    is_stopped: Mutex<bool>,
    changed: Condvar,
    /// Woken, and not at rest since.
    is_awake: AtomicBool,
}

impl Flusher {
    pub fn new() -> Self {
        let is_stopped = Mutex::with_key(LockClass::TABLES, 3, false);
        let signal = Signal { is_stopped, changed: Condvar::new(), is_awake: AtomicBool::new(false) };
        Self { signal: Arc::new(signal), thread: Mutex::with_key(LockClass::TABLES, 4, None) }
    }

    /// Has it flush all now.
    pub fn wake(&self) {
        // Looked at first: all may read it side by side. Relaxed: a wish that is missed is the next writer's.
        let is_awake = &self.signal.is_awake;
        if !is_awake.load(Ordering::Relaxed) && !is_awake.swap(true, Ordering::Relaxed) {
            let _is_stopped = self.signal.is_stopped.lock();
            self.signal.changed.notify_all();
        }
    }

    fn stop(&self) {
        *self.signal.is_stopped.lock() = true;
        self.signal.changed.notify_all();
        let thread = self.thread.lock().take();
        // The thread itself comes here if it lets go of the volume last.
        if let Some(thread) = thread.filter(|thread| !extant_rt::is_current(thread)) {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Signal {
    /// Waits for a while, or until it is woken; false if it is to end instead.
    fn rest(&self) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped && !self.is_awake.load(Ordering::Relaxed) {
            is_stopped = self.changed.wait_timeout(is_stopped, INTERVAL);
        }
        !*is_stopped
    }
}

impl Volume {
    /// Starts the thread, if there is a page cache.
    ///
    /// # Errors
    /// `Io` if the host gives no thread.
    pub(crate) fn start_flushing(self: &Arc<Self>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let (volume, signal) = (Arc::downgrade(self), pages.flusher.signal.clone());
        let thread = extant_rt::spawn("extant-flush", move || flush(&volume, &signal))
            .map_err(|error| Place::of(Structure::Inode).io(error))?;
        *pages.flusher.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread, refuses to have more dirtied, and flushes all.
    ///
    /// # Errors
    /// The first of flushing.
    pub(crate) fn finish_flushing(&self) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        pages.flusher.stop();
        pages.nodes.close();
        self.flush_all()
    }
}

/// What the thread does.
fn flush(volume: &Weak<Volume>, signal: &Signal) {
    while signal.rest() {
        let Some(volume) = volume.upgrade() else { return };
        let age = if signal.is_awake.swap(false, Ordering::Relaxed) { Duration::ZERO } else { INTERVAL };
        // Who has the file open is told.
        let _ = volume.flush_older(age);
        volume.reap();
    }
}
