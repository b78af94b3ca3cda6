//! The command, driven as people drive it.

mod archives;
mod common;
mod files;
mod images;
mod mkfs;
mod reading;
