//! Tests that need the inside of the engine.

mod disk;
mod files;
mod large_dirs;
mod names;
mod trees;
