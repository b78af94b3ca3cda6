//! Tests that need the inside of the engine.

mod disk;
mod names;
