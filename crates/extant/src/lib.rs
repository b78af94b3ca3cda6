//! ext4 in user space: the engine and its Rust API.
//!
//! Leaves out: printing, process exit, the environment.

mod buffer;
mod cache;
mod commit;
mod delete;
mod error;
mod fail;
mod groups;
mod mount;
mod node;
mod orphan;
mod pending;
mod update;
mod verify;
mod volume;

pub use error::{Error, Place, Result};
