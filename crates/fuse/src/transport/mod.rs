//! Transports: between the kernel's requests and [`Ops`](crate::Ops).
//!
//! Decoding and answering ([`codec`]) are common to all; each source of requests has a module of
//! its own.

mod codec;
mod device;
mod exchange;
mod init;
mod load_monitor;
mod mount;
mod notify;
mod outboxes;
mod placement;
mod pool;
mod readers;
mod ring_entry;
mod rings;
mod service;
mod session;
mod slot;
mod slots;
mod watch;
mod wire;

pub use mount::{MountError, MountOptions};
pub use notify::Notifier;
#[cfg(test)]
pub(crate) use rings::FAILS_AT;
pub use session::Session;
