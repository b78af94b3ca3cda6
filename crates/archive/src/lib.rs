//! Trees in and out of an ext4 disk: directories of the host, tar archives and container images.
//!
//! One model, [`Entry`], is between sources ([`Walk`] for the host, [`TarReader`], [`oci::Image`], [`DiskWalk`]) and sinks
//! ([`Extract`], [`TarWriter`], [`Import`]); [`pour_concurrently`] reads and writes at once. [`Census`] computes the
//! space that a tree takes.
//!
//! Names never lead out of the tree that is written: `..` is refused, and symbolic links inside a disk lead to
//! places on that disk only.
//!
//! Leaves out: printing, process exit, the environment, owners by name.

mod adjust;
mod capability;
mod census;
mod copy;
mod device_table;
mod disk;
mod entry;
mod error;
mod flow;
mod fs_verity;
mod hash_tree;
mod host;
mod host_file;
mod ids;
mod labelled;
mod labels;
pub mod oci;
mod packing;
mod path;
mod pipe;
mod placement;
mod queue;
mod tar;
mod user_database;
mod verity;
mod window;

pub use adjust::Adjust;
pub use census::{Census, DiskFormat, Needs};
pub use copy::{CopyOptions, Existing, Preserve};
pub use device_table::DeviceTable;
pub use disk::{Aspect, Change, ChangeKind, Difference, DiskWalk, Import, Imported, Manner, Mirror};
pub use entry::{Attributes, DataRange, Entry, EntryKind, Shape, Xattr};
pub use error::{Error, Result};
pub use flow::{Extent, Nothing, Sink, Source};
pub use fs_verity::VerityList;
pub use host::{Extract, Listed, StreamReader, StreamWriter, Walk};
pub use host_file::HostFile;
pub use ids::{IdMap, IdMaps, IdRange};
pub use labelled::Labelled;
pub use labels::FileContexts;
pub use packing::{packing_of, unpacked};
pub use path::TreePath;
pub use pipe::pour_concurrently;
pub use placement::Tabled;
pub use tar::{Input, TarReader, TarWriter};
pub use user_database::UserDatabase;
pub use verity::{HashTree, Verity};
