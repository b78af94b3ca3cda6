//! The crate names all that its signatures name: these compile without another crate of ours.
//!
//! The guide and the front page are programs of `extant` alone, which `scripts/test-package` builds against the packaged crates.

use std::io;

use extant::device::{self, BlockDevice, Create, DeviceAccess, FileDevice, Holder, Transfer};
use extant::mkfs::{self, Layout, Mkfs};
use extant::ondisk::{self, Cluster, GroupDescriptor, State, Superblock};
use extant::{
    Error, FileExtent, Filesystem, FsBlock, GroupNumber, InodeNumber, JournalCorrupt, JournalError,
    LogicalBlock, Mount, Structure, Timestamp, WallClock,
};

#[test]
fn types_of_signatures_are_named_by_the_crate() {
    let _: fn(&Filesystem) -> Superblock = Filesystem::superblock;
    let _: fn(&Layout) -> &ondisk::Geometry = Layout::geometry;
    let _: fn(&Layout) -> &[GroupDescriptor] = Layout::descriptors;
    let _: fn(&ondisk::Geometry, FsBlock) -> Cluster = ondisk::Geometry::cluster_of;
    let _: fn(&Superblock) -> State = Superblock::state;
    let _: fn(&Superblock) -> ondisk::IncompatFeatures = Superblock::incompat;
    let _: fn(Mount, WallClock) -> Mount = Mount::clock;
    let _: fn(&Mkfs, &dyn BlockDevice) -> mkfs::Result<Layout> = Mkfs::format;
    let _ = |extent: FileExtent| -> LogicalBlock { extent.logical };
    let access =
        DeviceAccess { transfer: Transfer::Direct, create: Create::New, ..DeviceAccess::read_write() };
    let _ = |path: &str| FileDevice::open(path, access);
    let told = |error: &Error| match error {
        Error::Io { location, .. } | Error::Corrupt { location, .. } => {
            let (_, _, _, _): (Structure, Option<GroupNumber>, Option<InodeNumber>, Option<FsBlock>) =
                (location.structure, location.group, location.inode, location.block);
            "a place"
        }
        Error::Device(device::Error::Locked { holder: Some(Holder { pid: 1.., .. }), .. }) => "in use",
        Error::Journal(JournalError::Corrupt(JournalCorrupt::NotASuperblock)) => "the journal",
        _ => "else",
    };
    assert_eq!(told(&Error::NoSpace), "else");
    assert_eq!(Timestamp::from(std::time::SystemTime::UNIX_EPOCH), Timestamp::default());
    let error = mkfs::Error::Ondisk(ondisk::Error::NotRepresentable("a size"));
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
}
