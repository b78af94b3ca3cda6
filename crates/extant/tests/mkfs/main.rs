//! New file systems against `mke2fs`, `dumpe2fs`, `e2fsck` and the kernel.

#[cfg(target_os = "linux")]
mod kernel;
mod layouts;
mod options;
mod tools;
