//! Crashes of the whole engine, at every place of what it writes.
//!
//! A sequence of operations runs on a recorded disk. A crash leaves a prefix of the recording, of whose unflushed
//! writes any subset survives, by whole requests or by sectors. After each crash looked at:
//!
//! - mounting for reading replays the journal in memory and writes nothing; the tree is that after some operation
//!   which ended no earlier than what was promised durable and began before the crash, all names, sizes, modes,
//!   links and attributes together;
//! - each byte of a file is one that its block held then or later, or zero where nothing was written: never what another file
//!   left in a block;
//! - mounting for writing gives the same tree, can be written to, and unmounts to a disk that `e2fsck -fn` finds
//!   clean; a crash in the midst of that recovery changes nothing;
//! - e2fsck's own recovery and that of Linux give the same tree.
//!
//! The superblock, which mounting and unmounting write in place, is torn between its sectors too, but on disks that have
//! a checksum of it and no copy.
//!
//! With a page cache, what was written to a file may have no place yet: since a block was last written back (by a sync, by a change
//! of a range that it lies in, in what replaces another), it is as it was then or later, or was not there then and is not yet;
//! the size lies between. Behind the ends of two files there is poison from the beginning, which growing must never show.
//!
//! The rules of `docs/design/journal.md` are named by their numbers where they are tested.
//!
//! `EXTANT_CRASH_SCALE=10` looks at ten times as many random sequences, and crashes of short ones. `EXTANT_CRASH_ONLY=DISK:SEED`
//! looks at every crash of one sequence of a test; a failing test prints the command.

mod disk;
mod explore;
mod fault;
mod generate;
mod model;
mod op;
mod random;
mod session;
mod tree;
mod values;

mod errors;
mod faults;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(debug_assertions)]
mod panics;
mod sequences;
mod threads;
