//! Disks with features that `extant mkfs` does not make, through the public interface: made by mke2fs, debugfs, tune2fs and the
//! kernel, judged by e2fsck and the kernel.

mod casefold;
mod disk;
#[cfg(target_os = "linux")]
mod encrypt;
mod mmp;
mod verity;
