//! Requests as the kernel writes them, and malformed ones.

use std::time::Duration;

use extant::Timestamp;
use extant_rt::{LockClass, Mutex};

use super::*;
use crate::ops::StatFs;

/// Answers every request, and notes it.
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn new() -> Self {
        Self(Mutex::new(LockClass::PIPE, Vec::new()))
    }

    fn note(&self, words: String) {
        self.0.lock().push(words);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

const TIME: Timestamp = Timestamp { seconds: -2, nanoseconds: 7 };

fn attributes() -> Attributes {
    Attributes {
        inode: 12,
        file_type: FileType::Symlink,
        mode: 0o751,
        links: 3,
        uid: 4,
        gid: 5,
        size: 6,
        blocks_512: 8,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        birth: Some(Timestamp { seconds: 11, nanoseconds: 12 }),
        device: 0x801,
        block_size: 4096,
    }
}

fn entry() -> EntryReply {
    let lifetime = Duration::new(3, 4);
    EntryReply {
        node: NodeId(77),
        generation: 5,
        attributes: attributes(),
        name_lifetime: lifetime,
        attributes_lifetime: lifetime,
    }
}

impl Ops for Notes {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Reply<Result<EntryReply, Duration>> {
        self.note(format!("lookup {} {name:?}", parent.0));
        Ok(if name == b"gone" { Err(Duration::from_secs(9)) } else { Ok(entry()) })
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.note(format!("forget {} {count}", node.0));
    }

    fn attributes(&self, _: NodeId) -> Reply<(Attributes, Duration)> {
        Ok((attributes(), Duration::from_secs(1)))
    }

    fn set_attributes(
        &self,
        _: Caller,
        _: NodeId,
        set: &SetAttributes,
        size: Option<SetSize>,
    ) -> Reply<(Attributes, Duration)> {
        self.note(format!("{:?} {size:?}", SetAttributes { mtime: None, ..*set }));
        self.note(format!("{}", set.mtime.is_some_and(|mtime| mtime.seconds > 1)));
        self.attributes(NodeId::ROOT)
    }

    fn read_link(&self, _: NodeId) -> Reply<Vec<u8>> {
        Ok(b"target".to_vec())
    }

    fn open(&self, _: NodeId, how: OpenHow) -> Reply<Opened> {
        self.note(format!("open {how:?}"));
        Ok(Opened { handle: FileHandle(9), keeps_content: how.append })
    }

    fn release(&self, handle: FileHandle) {
        self.note(format!("release {}", handle.0));
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<(EntryReply, Opened)> {
        self.note(format!("create {} {} {name:?} {request:?}", caller.uid, parent.0));
        Ok((entry(), Opened { handle: FileHandle(8), keeps_content: true }))
    }

    fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        request: &CreateRequest<'_>,
    ) -> Reply<EntryReply> {
        self.note(format!("make {} {} {name:?} {request:?}", caller.uid, parent.0));
        Ok(entry())
    }

    fn unlink(&self, _: NodeId, name: &[u8]) -> Reply<()> {
        self.note(format!("unlink {name:?}"));
        Ok(())
    }

    fn rmdir(&self, _: NodeId, _: &[u8]) -> Reply<()> {
        Err(Errno::NOTEMPTY)
    }

    fn rename(&self, _: Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: Rename) -> Reply<()> {
        self.note(format!("rename {from:?} {to:?} {how:?}"));
        Ok(())
    }

    fn link(&self, _: Caller, _: NodeId, _: NodeId, _: &[u8]) -> Reply<EntryReply> {
        Ok(entry())
    }

    fn read(&self, _: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        buf.fill(offset as u8);
        Ok(buf.len())
    }

    fn write(&self, _: NodeId, offset: u64, bytes: &[u8], how: WriteHow) -> Reply<usize> {
        self.note(format!("write {offset} {bytes:?} {how:?}"));
        Ok(bytes.len())
    }

    fn sync(&self, node: NodeId, handle: FileHandle, only_data: bool) -> Reply<()> {
        self.note(format!("sync {} {} {only_data}", node.0, handle.0));
        Ok(())
    }

    fn list(&self, _: NodeId, cookie: u64, with: bool, listing: &mut dyn Listing) -> Reply<()> {
        let mut next = cookie + 1;
        while if with {
            listing.entry(b"name", &entry(), next)
        } else {
            listing.name(b"name", 12, FileType::Regular, next)
        } {
            next += 1;
        }
        Ok(())
    }

    fn statfs(&self, _: NodeId) -> Reply<StatFs> {
        Ok(StatFs::default())
    }

    fn xattr(&self, _: NodeId, _: &[u8]) -> Reply<Vec<u8>> {
        Ok(b"value".to_vec())
    }

    fn list_xattrs(&self, _: Caller, _: NodeId) -> Reply<Vec<u8>> {
        Ok(b"user.a\0".to_vec())
    }

    fn set_xattr(&self, _: Caller, _: NodeId, name: &[u8], value: &[u8], flags: i32) -> Reply<()> {
        self.note(format!("set_xattr {name:?} {value:?} {flags}"));
        Ok(())
    }

    fn remove_xattr(&self, _: NodeId, _: &[u8]) -> Reply<()> {
        Ok(())
    }

    fn allocate(&self, _: Caller, _: NodeId, _: i32, _: u64, _: u64) -> Reply<()> {
        Ok(())
    }

    fn seek(&self, _: NodeId, offset: u64, _: bool) -> Reply<u64> {
        Ok(offset)
    }

    fn find_block(&self, _: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>> {
        Ok((block < 9).then(|| block * 1000 + u64::from(block_size)))
    }

    fn ioctl(&self, _: Caller, _: NodeId, request: &Ioctl<'_>) -> Reply<Vec<u8>> {
        self.note(format!("ioctl compat {} permitted {}", request.is_compat, request.is_permitted));
        let padded = request.input.iter().copied().chain(std::iter::repeat(0));
        Ok(padded.take(request.out_bytes as usize).collect())
    }
}

/// A request in both shapes: the fixed arguments before the rest, and apart from it. They must end alike.
fn ask(notes: &Notes, opcode: u32, fixed: &[u8], rest: &[u8], room: usize) -> (Outcome, Vec<u8>) {
    let header = wire::InHeader { opcode, nodeid: 2, uid: 1000, gid: 100, ..wire::InHeader::default() };
    let run = |fixed: Option<&[u8]>, request: &[u8]| {
        let mut body = request.to_vec();
        body.resize(request.len().max(room), 0xee);
        let mut message = Message { header, fixed, body: &mut body, body_bytes: request.len() };
        let outcome = message.answer(notes);
        (outcome, body)
    };
    notes.taken();
    let joined = run(None, &[fixed, rest].concat());
    let before = notes.taken();
    let apart = run(Some(fixed), rest);
    assert_eq!(joined.0, apart.0);
    if let Outcome::Done(bytes) = joined.0 {
        assert_eq!(joined.1[..bytes], apart.1[..bytes]);
    }
    let after = notes.taken();
    assert_eq!(before, after);
    before.into_iter().for_each(|words| notes.note(words));
    joined
}

#[test]
fn replies_stand_where_the_kernel_looks_for_them() {
    let notes = Notes::new();
    let (outcome, body) = ask(&notes, opcode::LOOKUP, &[], b"file\0", 256);
    assert_eq!(outcome, Outcome::Done(128));
    let at = |offset: usize| u64::from_ne_bytes(body[offset..offset + 8].try_into().expect("8 bytes"));
    assert_eq!((at(0), at(8), at(16), at(40), at(48)), (77, 5, 3, 12, 6));
    assert_eq!(at(64).cast_signed(), -2, "a time before 1970");
    assert_eq!(u32::from_ne_bytes(body[100..104].try_into().expect("mode")), 0o120_751);
    let (outcome, body) = ask(&notes, opcode::STATX, &[0; 24], &[], 288);
    assert_eq!(outcome, Outcome::Done(288));
    let at = |offset: usize| u32::from_ne_bytes(body[offset..offset + 4].try_into().expect("4 bytes"));
    assert_eq!((at(32), at(48), at(112), at(120)), (0xfff, 3, 11, 12), "mask, links, birth");
    assert_eq!((at(160), at(164)), (8, 1), "the device");
    for (block, found) in [(7, 11_096_u64), (9, 0)] {
        let bmap = wire::BmapIn { block, blocksize: 4096, padding: 0 };
        let (outcome, body) = ask(&notes, opcode::BMAP, bmap.as_bytes(), &[], 64);
        assert_eq!((outcome, &body[..8]), (Outcome::Done(8), &found.to_ne_bytes()[..]));
    }
    let (outcome, body) = ask(&notes, opcode::LOOKUP, &[], b"gone\0", 256);
    assert_eq!((outcome, body[0], body[16]), (Outcome::Done(128), 0, 9));
    assert_eq!(ask(&notes, opcode::TMPFILE, &[0; 16], b"x\0", 144).0, Outcome::Failed(Errno::NOSYS));
    assert_eq!(ask(&notes, opcode::RMDIR, &[], b"dir\0", 0).0, Outcome::Failed(Errno::NOTEMPTY));
    assert_eq!(ask(&notes, 47, &[0; 56], &[], 64).0, Outcome::Failed(Errno::NOSYS));
}

#[test]
fn content_is_decoded_in_place_and_read_to_its_place() {
    let notes = Notes::new();
    let write = wire::WriteIn { offset: 4096, size: 3, write_flags: 4, ..wire::WriteIn::default() };
    let (outcome, body) = ask(&notes, opcode::WRITE, write.as_bytes(), b"abc", 64);
    assert_eq!((outcome, body[0]), (Outcome::Done(8), 3));
    let how = WriteHow { append: false, remove_set_id: true, is_late: false };
    assert_eq!(notes.taken(), [format!("write 4096 {:?} {how:?}", b"abc")]);
    let read = wire::ReadIn { offset: 7, size: 100, ..wire::ReadIn::default() };
    let (outcome, body) = ask(&notes, opcode::READ, read.as_bytes(), &[], 128);
    assert_eq!((outcome, &body[..100]), (Outcome::Done(100), &[7; 100][..]));
    assert_eq!(ask(&notes, opcode::READ, read.as_bytes(), &[], 99).0, Outcome::Failed(Errno::INVAL));
}

#[test]
fn listings_fill_the_room_and_no_more() {
    let notes = Notes::new();
    for (opcode, record) in [(opcode::READDIR, 32), (opcode::READDIRPLUS, 160)] {
        for size in [0, 31, 32, 320, 479] {
            let read = wire::ReadIn { offset: 5, size, ..wire::ReadIn::default() };
            let (outcome, body) = ask(&notes, opcode, read.as_bytes(), &[], 480);
            let bytes = size as usize / record * record;
            assert_eq!(outcome, Outcome::Done(bytes));
            assert!(body[bytes.max(40)..].iter().all(|byte| *byte == 0xee), "beyond its end");
            if bytes > 0 {
                assert_eq!(&body[record - 8..record], b"name\0\0\0\0");
                assert_eq!(body[record - 24], 6, "the cookie");
            }
        }
    }
}

#[test]
fn options_are_read_as_they_were_written() {
    let notes = Notes::new();
    let set = wire::SetattrIn {
        valid: wire::set::SIZE | wire::set::MTIME | wire::set::MTIME_NOW | wire::set::KILL_SUIDGID,
        size: 9,
        ..wire::SetattrIn::default()
    };
    ask(&notes, opcode::SETATTR, set.as_bytes(), &[], 128);
    let size = SetSize { bytes: 9, remove_set_id: true };
    let rest = format!("{:?} {:?}", SetAttributes::default(), Some(size));
    assert_eq!(notes.taken(), [rest, "true".to_owned()], "the server's own time");
    let both = wire::set::ATIME | wire::set::ATIME_NOW | wire::set::MTIME | wire::set::MTIME_NOW;
    let touch = wire::SetattrIn { valid: both, ..wire::SetattrIn::default() };
    ask(&notes, opcode::SETATTR, touch.as_bytes(), &[], 128);
    let touch = SetAttributes { touch: true, ..SetAttributes::default() };
    assert_eq!(notes.taken(), [format!("{touch:?} None"), "false".to_owned()]);
    for opcode in [opcode::OPEN, opcode::OPENDIR] {
        let directory = opcode == opcode::OPENDIR;
        for (flags, how, open_flags) in [
            (0, OpenHow { directory, ..OpenHow::default() }, 0),
            (1, OpenHow { write: true, append: false, directory }, 0),
            (O_APPEND | 2, OpenHow { write: true, append: true, directory }, wire::FOPEN_KEEP_CACHE),
        ] {
            let open = wire::OpenIn { flags, open_flags: 0 };
            let (outcome, body) = ask(&notes, opcode, open.as_bytes(), &[], 16);
            let expected = wire::OpenOut { fh: 9, open_flags, backing_id: 0 };
            assert_eq!((outcome, &body[..16]), (Outcome::Done(16), expected.as_bytes()));
            assert_eq!(notes.taken(), [format!("open {how:?}")]);
        }
    }
    let create = wire::CreateIn { flags: 1, mode: 0o100_644, umask: 0o22, open_flags: 0 };
    let (outcome, body) = ask(&notes, opcode::CREATE, create.as_bytes(), b"new\0", 144);
    let opened = wire::OpenOut { fh: 8, open_flags: wire::FOPEN_KEEP_CACHE, backing_id: 0 };
    assert_eq!((outcome, body[0], &body[128..144]), (Outcome::Done(144), 77, opened.as_bytes()));
    let request = CreateRequest { kind: InodeType::File, mode: 0o644, umask: 0o22 };
    assert_eq!(notes.taken(), [format!("create 1000 2 {:?} {request:?}", b"new")]);
    let fsync = wire::FsyncIn { fh: 8, fsync_flags: wire::FSYNC_FDATASYNC, padding: 0 };
    let release = wire::ReleaseIn { fh: 8, ..wire::ReleaseIn::default() };
    for (opcode, fixed, asked) in [
        (opcode::FSYNC, fsync.as_bytes(), &["sync 2 8 true"][..]),
        (opcode::RELEASE, release.as_bytes(), &["release 8"]),
        // Open directories are kept nowhere.
        (opcode::RELEASEDIR, release.as_bytes(), &[]),
    ] {
        assert_eq!(ask(&notes, opcode, fixed, &[], 64).0, Outcome::Done(0));
        assert_eq!(notes.taken(), asked);
    }
    let mknod = wire::MknodIn { mode: 0o020_644, rdev: 5, umask: 0o22, padding: 0 };
    ask(&notes, opcode::MKNOD, mknod.as_bytes(), b"tty\0", 128);
    let request =
        CreateRequest { kind: InodeType::Special(FileType::CharDevice, 5), mode: 0o644, umask: 0o22 };
    assert_eq!(notes.taken(), [format!("make 1000 2 {:?} {request:?}", b"tty")]);
    let rename = wire::Rename2In { newdir: 3, flags: 2, padding: 0 };
    ask(&notes, opcode::RENAME2, rename.as_bytes(), b"a\0b\0", 0);
    let how = Rename { exchange: true, ..Rename::default() };
    let words = format!("rename {:?} {:?} {how:?}", (NodeId(2), b"a"), (NodeId(3), b"b"));
    assert_eq!(notes.taken(), [words]);
    let xattr = wire::SetxattrIn { size: 2, flags: 1 };
    ask(&notes, opcode::SETXATTR, xattr.as_bytes(), b"user.x\0hi", 0);
    assert_eq!(notes.taken(), [format!("set_xattr {:?} {:?} 1", b"user.x", b"hi")]);
    let two: [u64; 5] = [2, 11, 1, 12, 4];
    assert_eq!(
        ask(&notes, opcode::BATCH_FORGET, two[..1].as_bytes(), two[1..].as_bytes(), 0).0,
        Outcome::Silent
    );
    assert_eq!(notes.taken(), ["forget 11 1", "forget 12 4"]);
}

#[test]
fn ioctl_says_who_asks() {
    let notes = Notes::new();
    for (flags, arg, words) in [
        (0, 0, "ioctl compat false permitted true"),
        (0, 0x7fff_0000, "ioctl compat false permitted false"),
        (1, 0x7fff_0000, "ioctl compat true permitted false"),
    ] {
        let fixed = wire::IoctlIn { fh: 0, flags, cmd: 1, arg, in_size: 4, out_size: 8 };
        let (outcome, body) = ask(&notes, opcode::IOCTL, fixed.as_bytes(), b"four", 64);
        assert_eq!(outcome, Outcome::Done(24));
        assert_eq!(&body[16..24], b"four\0\0\0\0");
        assert_eq!(notes.taken(), [words]);
    }
}

#[test]
fn value_larger_than_the_callers_buffer_is_erange() {
    let notes = Notes::new();
    for (size, outcome) in [(0, Outcome::Done(8)), (4, Outcome::Failed(Errno::RANGE)), (5, Outcome::Done(5))]
    {
        let get = wire::GetxattrIn { size, padding: 0 };
        assert_eq!(ask(&notes, opcode::GETXATTR, get.as_bytes(), b"user.x\0", 64).0, outcome);
    }
}

#[test]
fn whatever_is_cut_short_or_nonsense_is_refused_and_never_panics() {
    let notes = Notes::new();
    let mut state = 1_u64;
    for opcode in 0..64 {
        for len in 0..140 {
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            for fill in [None, Some(0), Some(0xff)] {
                if let Some(fill) = fill {
                    bytes.fill(fill);
                }
                let header = wire::InHeader { opcode, ..wire::InHeader::default() };
                let (fixed, rest) = bytes.split_at(len / 2);
                for (fixed, rest) in [(None, &bytes[..]), (Some(fixed), rest)] {
                    let mut body = rest.to_vec();
                    let body_bytes = body.len();
                    let mut message = Message { header, fixed, body: &mut body, body_bytes };
                    if let Outcome::Done(done) = message.answer(&notes) {
                        assert!(done <= body_bytes);
                    }
                }
            }
        }
    }
    let short = [
        (opcode::SETATTR, 87),
        (opcode::READ, 39),
        (opcode::WRITE, 39),
        (opcode::FALLOCATE, 31),
        (opcode::BMAP, 15),
    ];
    for (opcode, len) in short {
        assert_eq!(ask(&notes, opcode, &vec![0; len], &[], 256).0, Outcome::Failed(Errno::INVAL));
    }
    assert_eq!(ask(&notes, opcode::LOOKUP, &[], b"no end", 256).0, Outcome::Failed(Errno::INVAL));
    let write = wire::WriteIn { size: 4, ..wire::WriteIn::default() };
    assert_eq!(ask(&notes, opcode::WRITE, write.as_bytes(), b"abc", 64).0, Outcome::Failed(Errno::INVAL));
}
