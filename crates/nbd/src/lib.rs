//! Network block devices (NBD): [`NbdDevice`] is an export of a server as a block device, and [`Server`] exports a block device.
//!
//! The protocol is that of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle negotiation,
//! structured replies, several requests and several connections at once. Everything that the other side sends is checked, and
//! bounded before memory is taken for it.
//!
//! Leaves out: what is on the device.
#![forbid(unsafe_code)]

mod connection;
mod device;
mod error;
mod negotiation;
mod pipeline;
mod reply;
mod server;
mod session;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod tls;
mod unflushed;
mod uri;
mod wire;

pub use device::NbdDevice;
pub use error::Error;
pub use server::{Listener, Server, ServerOptions};
pub use session::Options;
pub use tls::ServerTls;
pub use uri::{PORT, Transport, Uri};
