//! Transports: between the kernel's requests and [`Ops`].

mod fuser;
mod mount;
mod pool;
mod session;

pub use mount::{MountError, MountOptions};
pub use session::Session;
