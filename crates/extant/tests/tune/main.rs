//! `Tune`: what it changes is what tune2fs changes, and no crash or failure on the way costs anything. The judges are `e2fsck` and the
//! kernel.

mod changes;
mod crash;
mod disk;
mod explore;
#[cfg(target_os = "linux")]
mod kernel;
mod staged;
