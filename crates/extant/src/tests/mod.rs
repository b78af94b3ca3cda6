//! Tests that need the inside of the engine.

mod acls;
mod appenders;
mod cached_names;
mod contexts;
mod creators;
mod damage;
mod damaged_maps;
mod disk;
mod feature_table;
mod files;
mod kernel;
mod large_dirs;
mod limits;
mod misses;
mod names;
mod pages;
mod prealloc;
mod read_dir;
mod restart;
mod reuse;
mod shared_files;
mod tables;
mod threads;
mod trees;
mod users;
mod xattrs;
