//! ext4 in user space: the engine and its Rust API.
//!
//! Leaves out: printing, process exit, the environment.

mod buffer;
mod cache;
mod commit;
mod delete;
mod error;
mod extent;
mod fail;
mod fallocate;
mod groups;
mod indirect;
mod io;
mod map;
mod mount;
mod node;
mod orphan;
mod pending;
mod reserve;
mod seek;
mod truncate;
mod update;
mod verify;
mod volume;
mod write;

pub use error::{Error, Place, Result};
