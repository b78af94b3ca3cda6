//! Requests that the kernel sends seldom.

use extant::Mount;
use extant_block::{BlockDevice, MemoryDevice};

use super::*;

mod blocks;
mod flags;
mod kernel;
mod killed;
mod liveness;
mod losses;
mod rings;

const SETFLAGS: u32 = 0x4008_6602;

const ROOT: Caller = Caller { uid: 0, gid: 0, thread: 0 };
const OWNER: Caller = Caller { uid: 1000, gid: 1000, thread: 0 };
const OTHER: Caller = Caller { uid: 2000, gid: 2000, thread: 0 };

fn served(device: &Arc<MemoryDevice>) -> Arc<Server> {
    let fs = Mount::new().open_device(device.clone()).expect("a mount");
    Server::new(fs, ServerOptions::default()).expect("a server")
}

/// The position of the inode of the root directory of [`disk`].
fn root_inode(device: &MemoryDevice) -> u64 {
    let mut table = [0; 4];
    device.read_at(4096 + 8, &mut table).expect("the first descriptor");
    u64::from(u32::from_le_bytes(table)) * 4096 + 256
}

/// A disk whose root has a generation, though mkfs gives it none.
fn disk() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(16 << 20);
    let mkfs = extant::mkfs::Mkfs::new()
        .block_size(4096)
        .inode_size(256)
        .features("^metadata_csum")
        .expect("a feature");
    mkfs.format(&device).expect("a file system");
    device.write_at(root_inode(&device) + 0x64, &5_u32.to_le_bytes()).expect("a generation");
    Arc::new(device)
}

fn make(server: &Server, parent: NodeId, name: &[u8], kind: InodeType<'_>, mode: u16) -> EntryReply {
    server.mknod(OWNER, parent, name, &CreateRequest { kind, mode, umask: 0 }).expect("an inode")
}

fn find(server: &Server, parent: NodeId, name: &[u8]) -> Reply<EntryReply> {
    server.lookup(parent, name)?.map_err(|_| Errno::NOENT)
}

/// An `ioctl` as the kernel itself sends it, after it has checked the caller.
const fn asked(command: u32, input: &[u8], out_bytes: u32) -> Ioctl<'_> {
    Ioctl { command, input, out_bytes, is_compat: false, is_permitted: true }
}

fn id(entry: &EntryReply) -> (NodeId, u64) {
    (entry.node, entry.generation)
}

#[test]
fn disk_whose_root_directory_cannot_be_read_is_not_served() {
    // The mode, the count of links, the map.
    for (at, bytes) in [(0, &[0; 2][..]), (26, &[0; 2]), (40, &[0xFF; 12])] {
        for is_read_only in [true, false] {
            let device = disk();
            device.write_at(root_inode(&device) + at, bytes).expect("damage");
            let fs = Mount::new().read_only(is_read_only).open_device(device).expect("a mount");
            let refused =
                Server::new(fs, ServerOptions::default()).map(drop).map_err(|error| error.to_string());
            let names_root = |words: &String| words.contains("inode 2") || words.contains("not a directory");
            assert!(refused.as_ref().is_err_and(names_root), "byte {at}: {refused:?}");
        }
    }
}

#[test]
fn forgotten_inode_is_found_by_its_number_and_a_directory_leads_to_its_parent() {
    let device = disk();
    let server = served(&device);
    let dir = make(&server, NodeId::ROOT, b"dir", InodeType::Directory, 0o755);
    let file = make(&server, dir.node, b"file", InodeType::File, 0o644);
    let known = server.nodes.count();
    for entry in [&file, &dir] {
        server.forget(entry.node, 1);
    }
    assert_eq!(server.nodes.count(), known - 2);
    assert_eq!(server.attributes(file.node), Err(Errno::STALE), "only a look-up brings it back");
    server.finish().expect("unmounted");

    let server = served(&device);
    for entry in [&dir, &file] {
        let found = find(&server, entry.node, b".").expect("found");
        assert_eq!((id(&found), found.attributes.file_type), (id(entry), entry.attributes.file_type));
        // A second use of the same.
        assert_eq!(find(&server, entry.node, b".").map(|found| id(&found)), Ok(id(entry)));
    }
    assert_eq!(server.nodes.count(), known);
    let parent = find(&server, dir.node, b"..").expect("the root");
    assert_eq!(server.fs.root().expect("the root").generation(), 5);
    assert_eq!((id(&parent), parent.attributes.inode), ((NodeId::ROOT, 0), 2));
    for entry in [&dir, &file] {
        server.forget(entry.node, 1);
        assert!(server.attributes(entry.node).is_ok());
        server.forget(entry.node, 1);
        assert!(server.attributes(entry.node).is_err());
    }
    server.finish().expect("unmounted");
}

#[test]
fn numbers_that_no_file_has_are_stale() {
    let server = served(&disk());
    let file = make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644).node;
    let control = find(&server, NodeId::ROOT, control::NAME).expect("the control directory").node;
    let snapshot = find(&server, control, b"version").expect("a control file").node;
    let known = server.nodes.count();
    // The root has another number, and 8 is the journal.
    let numbers = [0, 2, 8, 4000, u64::from(u32::MAX), (1 << 32) | file.0, u64::MAX].map(NodeId);
    for node in numbers.into_iter().chain([control, snapshot]) {
        assert_eq!(find(&server, node, b"."), Err(Errno::STALE), "{node:?}");
    }
    assert_eq!(server.nodes.count(), known);
    assert_eq!(find(&server, NodeId::ROOT, b".").map(|found| id(&found)), Ok((NodeId::ROOT, 0)));
    server.finish().expect("unmounted");
}

#[test]
fn deleted_inode_is_stale_and_its_number_another_inode_later() {
    let server = served(&disk());
    let first = make(&server, NodeId::ROOT, b"first", InodeType::File, 0o644);
    server.unlink(NodeId::ROOT, b"first").expect("unlinked");
    assert_eq!(find(&server, first.node, b"."), Err(Errno::STALE), "without a name, though in use");
    server.forget(first.node, 1);
    assert_eq!(find(&server, first.node, b"."), Err(Errno::STALE));
    let again = (0..).map(|index: u32| {
        let entry = make(&server, NodeId::ROOT, index.to_string().as_bytes(), InodeType::File, 0o644);
        server.forget(entry.node, 1);
        entry
    });
    let again = again.take(2000).find(|entry| entry.node == first.node).expect("the number again");
    let found = find(&server, first.node, b".").expect("found");
    assert_eq!(id(&found), id(&again));
    assert_ne!(found.generation, first.generation, "the kernel sees that it is another");
    server.finish().expect("unmounted");
}

/// A user who may not change the owner of a file does not clear its privileges by a change to the same owner.
#[test]
fn change_to_the_same_owner_is_the_owners() {
    let server = served(&disk());
    for (caller, kept) in [(OTHER, 0o6755), (OWNER, 0o755), (ROOT, 0o755)] {
        let name = caller.uid.to_string();
        let node = make(&server, NodeId::ROOT, name.as_bytes(), InodeType::File, 0o6755).node;
        server.set_xattr(ROOT, node, b"security.capability", b"any", 0).expect("set");
        let (attributes, _) =
            server.set_attributes(caller, node, &SetAttributes::default(), None).expect("answered");
        assert_eq!(attributes.mode, kept, "{caller:?}");
        assert_eq!(server.xattr(node, b"security.capability").is_ok(), kept == 0o6755, "{caller:?}");
    }
    server.finish().expect("unmounted");
}

/// What an append-only file takes does not depend on its attributes; what it refuses takes none of them away.
#[test]
fn append_only_file_with_capabilities_is_appended_to() {
    let server = served(&disk());
    let node = make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644).node;
    server.set_xattr(ROOT, node, b"security.capability", b"any", 0).expect("set");
    server.set_xattr(ROOT, node, b"user.name", b"any", 0).expect("set");
    let flags = InodeFlags::EXTENTS | InodeFlags::APPEND;
    let input = &flags.bits().to_ne_bytes();
    server.ioctl(ROOT, node, &asked(SETFLAGS, input, 0)).expect("append-only");
    let chown = SetAttributes { uid: Some(2000), ..SetAttributes::default() };
    assert_eq!(server.set_attributes(ROOT, node, &chown, None), Err(Errno::PERM));
    assert!(server.xattr(node, b"security.capability").is_ok());
    let append = WriteHow { append: true, ..WriteHow::default() };
    assert_eq!(server.write(node, 0, b"more", append), Ok(4));
    assert!(server.xattr(node, b"security.capability").is_err());
    assert!(server.xattr(node, b"user.name").is_ok());
    server.finish().expect("unmounted");
}

/// New inodes take the flag over as the kernel's ext4 has it, though nothing is mapped from the device here.
#[test]
fn dax_is_kept_and_handed_down() {
    const FSGETXATTR: u32 = 0x801c_581f;
    const FSSETXATTR: u32 = 0x401c_5820;
    const FS_XFLAG_DAX: u32 = 0x8000;
    let server = served(&disk());
    let read = |node| {
        let bytes = server.ioctl(ROOT, node, &asked(FSGETXATTR, &[], 28)).expect("flags");
        u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"))
    };
    let set = |node, flags: u32| {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&flags.to_ne_bytes());
        server.ioctl(ROOT, node, &asked(FSSETXATTR, &bytes, 0)).map(drop)
    };
    let dir = make(&server, NodeId::ROOT, b"dir", InodeType::Directory, 0o755).node;
    assert_eq!((read(dir), set(dir, FS_XFLAG_DAX), read(dir)), (0, Ok(()), FS_XFLAG_DAX));
    let file = make(&server, dir, b"file", InodeType::File, 0o644).node;
    let pipe = make(&server, dir, b"pipe", InodeType::Special(FileType::Fifo, 0), 0o644).node;
    assert_eq!((read(file), read(pipe)), (FS_XFLAG_DAX, 0));
    assert_eq!((set(file, 0), read(file)), (Ok(()), 0));
    server.finish().expect("unmounted");
}

/// `chattr -p` and `chattr +P`: what is made in such a directory is of its project, and nothing of another one gets a name there.
#[test]
fn project_is_set_handed_down_and_kept_apart() {
    const FSGETXATTR: u32 = 0x801c_581f;
    const FSSETXATTR: u32 = 0x401c_5820;
    const FS_XFLAG_PROJINHERIT: u32 = 0x200;
    let device = MemoryDevice::new(16 << 20);
    extant::mkfs::Mkfs::new()
        .features("quota,project")
        .expect("features")
        .format(&device)
        .expect("a file system");
    let server = served(&Arc::new(device));
    let number_at = |bytes: &[u8], at| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let read = |node| {
        let bytes = server.ioctl(ROOT, node, &asked(FSGETXATTR, &[], 28)).expect("attributes");
        (number_at(&bytes, 0), number_at(&bytes, 12))
    };
    let set = |node, flags: u32, project: u32| {
        let mut bytes = [0; 28];
        bytes[..4].copy_from_slice(&flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&project.to_ne_bytes());
        server.ioctl(ROOT, node, &asked(FSSETXATTR, &bytes, 0)).map(drop)
    };
    let dir = make(&server, NodeId::ROOT, b"dir", InodeType::Directory, 0o755).node;
    assert_eq!((set(dir, FS_XFLAG_PROJINHERIT, 42), read(dir)), (Ok(()), (FS_XFLAG_PROJINHERIT, 42)));
    let below = make(&server, dir, b"below", InodeType::Directory, 0o755).node;
    let inside = make(&server, dir, b"inside", InodeType::File, 0o644).node;
    assert_eq!((read(below), read(inside)), ((FS_XFLAG_PROJINHERIT, 42), (0, 42)));
    assert_eq!(set(inside, FS_XFLAG_PROJINHERIT, 42), Err(Errno::OPNOTSUPP));
    let outside = make(&server, NodeId::ROOT, b"outside", InodeType::File, 0o644).node;
    let how = Rename::default();
    let moved = |from, to| server.rename(ROOT, from, to, how);
    assert_eq!(moved((NodeId::ROOT, b"outside"), (dir, b"outside")), Err(Errno::XDEV));
    assert_eq!(server.link(ROOT, outside, dir, b"outside").map(drop), Err(Errno::XDEV));
    assert_eq!(moved((dir, b"inside"), (below, b"inside")), Ok(()));
    assert_eq!(moved((below, b"inside"), (NodeId::ROOT, b"inside")), Ok(()));
    assert_eq!((set(outside, 0, 42), moved((NodeId::ROOT, b"outside"), (dir, b"outside"))), (Ok(()), Ok(())));
    server.finish().expect("unmounted");

    let server = served(&disk());
    let file = make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644).node;
    let mut bytes = [0; 28];
    bytes[12] = 1;
    let refused = server.ioctl(ROOT, file, &asked(FSSETXATTR, &bytes, 0)).map(drop);
    assert_eq!(refused, Err(Errno::OPNOTSUPP), "without the feature");
    server.finish().expect("unmounted");
}

#[test]
fn allocation_takes_set_group_id_from_a_file_of_another_group() {
    let server = served(&disk());
    let root = Caller { gid: 1000, ..ROOT };
    let member = Caller { gid: 1000, ..OTHER };
    // The mode before; after an allocation of which the kernel announced nothing, as for a caller who is in the group in a way
    // that the server does not see; and after one that it announced.
    let cases = [
        (OTHER, [0o6666, 0o2666, 0o666]),
        (member, [0o6666, 0o2666, 0o2666]),
        (member, [0o2676, 0o676, 0o676]),
        (root, [0o6676, 0o6676, 0o676]),
    ];
    for (index, (caller, modes)) in cases.into_iter().enumerate() {
        let node = make(&server, NodeId::ROOT, index.to_string().as_bytes(), InodeType::File, modes[0]).node;
        let allocated = || {
            server.allocate(caller, node, 0, 0, 4096).expect("allocated");
            server.attributes(node).expect("stat").0.mode
        };
        assert_eq!(allocated(), modes[1], "{caller:?}");
        server.set_attributes(caller, node, &SetAttributes::default(), None).expect("announced");
        assert_eq!(allocated(), modes[2], "{caller:?}");
    }
    server.finish().expect("unmounted");
}
