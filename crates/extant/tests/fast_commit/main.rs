//! Fast commits that Linux wrote: replayed as Linux replays them, and to the end wherever a crash comes.
//!
//! Tests that lack a tool, root or a loop device say so and end.

mod crash;
mod damage;
mod disk;
mod kernel;
