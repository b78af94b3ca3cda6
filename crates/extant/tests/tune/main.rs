//! `Tune`: what it changes is what tune2fs changes, and no crash or failure on the way costs anything. The judges are `e2fsck` and the
//! kernel.
#![cfg(target_os = "linux")]

mod changes;
mod crash;
mod disk;
mod explore;
mod kernel;
mod staged;
