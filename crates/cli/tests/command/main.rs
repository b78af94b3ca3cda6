//! The command, run as people run it. The judges are `e2fsck`, `debugfs`, `tar` and the kernel.

mod archives;
mod bench;
mod content;
mod copies;
mod copying;
mod differences;
mod exclusion;
mod exec_sibling;
mod fs_verity;
mod gnu_cp;
mod hostile;
mod images;
mod journal;
mod labels;
mod memory;
mod mkfs;
mod ordinary_user;
mod ownership;
mod reading;
mod reference;
mod states;
mod trim;
mod usage;
mod verbs;
mod verity;
mod writing;
