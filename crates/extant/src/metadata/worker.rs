//! A background thread of a volume, which runs until it is stopped.
//!
//! Locks: those of the class that it is given, with the keys 1 and 2, for moments.

use std::time::Duration;

use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Mutex, Weak};

use crate::metadata::SbInfo;

/// The thread, once there is one.
#[derive(Debug)]
pub(crate) struct Worker {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The signal that ends the thread.
#[derive(Debug)]
pub(crate) struct Signal {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

/// Aborts the journal if a panic ends a thread, of whose work nothing is known then.
pub(crate) struct Watch<V: AsRef<SbInfo>> {
    volume: Weak<V>,
    what: &'static str,
    has_ended: bool,
}

impl<V: AsRef<SbInfo>> Watch<V> {
    pub(crate) fn new(volume: Weak<V>, what: &'static str) -> Self {
        Self { volume, what, has_ended: false }
    }

    /// The thread ends well.
    pub(crate) fn end(mut self) {
        self.has_ended = true;
    }
}

impl<V: AsRef<SbInfo>> Drop for Watch<V> {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.upgrade().filter(|_| !self.has_ended) {
            (*volume).as_ref().abort_after_panic(self.what);
        }
    }
}

impl Signal {
    /// Waits for a while; false if the thread is to end instead.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut is_stopped = self.is_stopped.lock();
        if !*is_stopped {
            is_stopped = self.changed.wait_timeout(is_stopped, time);
        }
        !*is_stopped
    }
}

impl Worker {
    pub(crate) fn new(class: &'static LockClass) -> Self {
        let is_stopped = Mutex::with_key(class, 2, false);
        Self {
            signal: Arc::new(Signal { is_stopped, changed: Condvar::new() }),
            thread: Mutex::with_key(class, 1, None),
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the host gives none.
    pub(crate) fn start(
        &self,
        name: &str,
        run: impl FnOnce(&Signal) + Send + 'static,
    ) -> std::io::Result<()> {
        let signal = self.signal.clone();
        *self.thread.lock() = Some(extant_rt::spawn(name, move || run(&signal))?);
        Ok(())
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop(&self) {
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
