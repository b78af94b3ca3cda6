//! Fast commits: those of Linux are replayed as Linux replays them, and to the end wherever a crash comes; ours make syncs cheap.
//!
//! Tests that lack a tool, root or a loop device say so and end.
#![cfg(target_os = "linux")]

mod crash;
mod damage;
mod disk;
mod kernel;
mod recoveries;
mod write;
