//! ext4 in user space: the engine and its Rust API.
//!
//! Leaves out: printing, process exit, the environment.

mod access;
mod attributes;
mod buffer;
mod cache;
mod commit;
mod delete;
mod dir;
mod error;
mod fail;
mod groups;
mod mount;
mod namei;
mod node;
mod orphan;
mod pending;
mod update;
mod verify;
mod volume;
mod xattr;

pub use error::{Error, Place, Result};
