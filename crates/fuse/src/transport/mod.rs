//! Transports: between the kernel's requests and [`Ops`](crate::Ops).
//!
//! Decoding and answering ([`codec`]) are one; where requests come from is a form of its own.

mod codec;
mod device;
mod entry;
mod greeting;
mod mount;
mod notice;
mod placement;
mod pool;
mod quiet;
mod readers;
mod rings;
mod service;
mod session;
mod slot;
mod slots;
mod watch;
mod wire;

pub use mount::{MountError, MountOptions};
pub use notice::Kernel;
#[cfg(test)]
pub(crate) use rings::FAILS_AT;
pub use session::Session;
