//! Fast commits: those of Linux are replayed as Linux replays them, and to the end wherever a crash comes; ours make syncs cheap.
//!
//! Tests that lack a tool, root or a loop device say so and end. On hosts other than Linux there are those that need no kernel.

#[cfg(target_os = "linux")]
mod crash;
#[cfg(target_os = "linux")]
mod damage;
mod disk;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod mounted;
#[cfg(target_os = "linux")]
mod recoveries;
mod write;
