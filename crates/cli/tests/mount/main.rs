//! Disks mounted through FUSE, used as people and programs use them. Skipped where there is no `/dev/fuse`.

mod claimed;
mod common;
mod crash;
mod cycles;
mod damaged;
mod defrag;
mod formats;
mod growing;
mod kernel;
mod load;
mod mapped;
mod million;
mod mounting;
mod names;
mod network;
mod privileges;
mod quotas;
mod ranges;
mod reserve;
mod rootless;
mod semantics;
mod sparse;
mod swap;
mod top;
mod unmounting;
mod wanted;
