//! qcow2 images beside QEMU's.

#[path = "../common/mod.rs"]
mod common;

mod chains;
mod crash;
mod hostile;
mod model;
