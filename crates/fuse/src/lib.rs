//! Serves a mounted ext4 through FUSE.
//!
//! A [`Server`] answers requests with the engine; it implements [`Ops`], which is all that the transport knows of
//! it ([`Session`]). The capabilities of the protocol that are used, and those that are not, are listed in
//! `docs/design/fuse.md`.
//!
//! Leaves out: the command line, daemons and signals, ext4 itself.

mod capabilities;
mod control;
mod errno;
mod heap;
mod latency;
mod metrics;
mod nodes;
mod open_files;
pub mod ops;
mod owners;
mod server;
mod tally;
mod timed_device;
mod transport;

pub use errno::errno;
pub use ops::Ops;
pub use owners::Owners;
pub use server::{Server, ServerOptions};
pub use tally::Total;
pub use timed_device::{DeviceTimes, TimedDevice};
pub use transport::{MountError, MountOptions, Notifier, Session};
