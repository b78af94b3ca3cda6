//! Access control lists and permissions: compared with the kernel, which does the same on a disk of its own or
//! reports what it grants.

use std::process::Command;

use extant_ondisk::InodeNumber;
use extant_ondisk::acl::{Acl, AclEntry, AclTag};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use super::kernel::KernelMount;
use super::names::new;
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::mount::Volume;
use crate::namespace::{AccessMask, Credentials, New, NewKind};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn root(volume: &Arc<Volume>) -> InodeRef {
    volume.inode(InodeNumber::ROOT).unwrap()
}

/// A list with the named entries in order.
fn acl(
    owner: u16,
    users: &[(u32, u16)],
    group: u16,
    groups: &[(u32, u16)],
    mask: u16,
    other: u16,
) -> Vec<u8> {
    let entry = |tag, perm| AclEntry { tag, perm };
    let mut entries = vec![entry(AclTag::UserObj, owner)];
    entries.extend(users.iter().map(|(id, perm)| entry(AclTag::User(*id), *perm)));
    entries.push(entry(AclTag::GroupObj, group));
    entries.extend(groups.iter().map(|(id, perm)| entry(AclTag::Group(*id), *perm)));
    entries.push(entry(AclTag::Mask, mask));
    entries.push(entry(AclTag::Other, other));
    Acl::new(entries).unwrap().to_xattr()
}

fn listing(kernel: &KernelMount) -> String {
    kernel.run("getfacl", &["-n", "-R", "dir"])
}

#[test]
fn lists_are_inherited_and_follow_the_mode_as_in_the_kernel() {
    if !has_e2fsprogs() {
        return;
    }
    for inode_size in ["128", "256"] {
        let arguments = ["-b", "1024", "-I", inode_size];
        let (device, _) = format(&arguments, 8 << 10, &[]);
        let Some(theirs) = KernelMount::new(&device) else { return };
        let script = "umask 0; mkdir -m 2775 dir && chgrp 50 dir && chmod g+s dir &&
            setfacl -d -m u::rwx,u:1000:rwx,g::r-x,g:7:rw-,m::rwx,o::--- dir &&
            mkdir dir/sub && touch dir/file && mkdir dir/sub/below && ln -s x dir/link &&
            touch dir/plain && setfacl -b dir/plain && setfacl -m u:8:rw-,m::r-- dir/plain &&
            chmod 640 dir/file && chmod 4711 dir/plain && touch dir/same && setfacl -b dir/same &&
            setfacl --set u::rwx,g::r--,o::--- dir/same";
        theirs.run("sh", &["-c", script]);

        let device = Arc::new(device);
        let volume = mount(&device);
        let make = |dir: &InodeRef, name: &[u8], kind, mode| {
            volume.create(dir, name, &New { uid: 0, gid: 0, mode, ..new(kind) }).unwrap()
        };
        let always = XattrMode::default();
        let chmod = |inode: &InodeRef, mode| {
            volume
                .set_attributes(inode, &SetAttributes { mode: Some(mode), ..SetAttributes::default() })
                .unwrap();
        };
        let dir = make(&root(&volume), b"dir", NewKind::Directory, 0o2775);
        volume.set_attributes(&dir, &SetAttributes { gid: Some(50), ..SetAttributes::default() }).unwrap();
        let default = acl(7, &[(1000, 7)], 5, &[(7, 6)], 7, 0);
        volume.set_xattr(&dir, DEFAULT, &default, always).unwrap();
        assert_eq!(volume.get_xattr(&dir, DEFAULT).unwrap(), default);
        let sub = make(&dir, b"sub", NewKind::Directory, 0o777);
        let file = make(&dir, b"file", NewKind::File, 0o666);
        make(&sub, b"below", NewKind::Directory, 0o777);
        make(&dir, b"link", NewKind::Symlink(b"x"), 0o777);
        let plain = make(&dir, b"plain", NewKind::File, 0o666);
        volume.remove_xattr(&plain, ACCESS).unwrap();
        let list = acl(6, &[(8, 6)], 4, &[], 4, 0);
        volume.set_xattr(&plain, ACCESS, &list, always).unwrap();
        chmod(&file, 0o640);
        chmod(&plain, 0o4711);
        let same = make(&dir, b"same", NewKind::File, 0o666);
        let three = Acl::from_mode(0o740).to_xattr();
        volume.set_xattr(&same, ACCESS, &three, always).unwrap();
        assert!(matches!(volume.get_xattr(&same, ACCESS), Err(Error::NoAttribute)), "the mode says it all");
        assert!(matches!(volume.set_xattr(&same, DEFAULT, &default, always), Err(Error::PermissionDenied)));
        assert!(matches!(volume.set_xattr(&same, ACCESS, b"junk", always), Err(Error::InvalidArgument(_))));
        drop((dir, sub, file, plain, same));
        volume.unmount().unwrap();
        assert_clean(&*device, inode_size);
        let ours = KernelMount::new(&*device).unwrap();
        assert_eq!(listing(&ours), listing(&theirs), "inodes of {inode_size}");
        assert_eq!(
            ours.run("stat", &["-c", "%n %a %g", "dir", "dir/sub", "dir/file", "dir/link"]),
            theirs.run("stat", &["-c", "%n %a %g", "dir", "dir/sub", "dir/file", "dir/link"])
        );
    }
}

/// The access that the kernel grants a user to a file: read, write, execute.
fn granted(kernel: &KernelMount, name: &str, user: &Credentials) -> Option<[bool; 3]> {
    let groups: Vec<_> = user.groups.iter().map(u32::to_string).collect();
    let groups = if groups.is_empty() {
        "--clear-groups".to_owned()
    } else {
        format!("--groups={}", groups.join(","))
    };
    let script = format!("test -r {name}; echo $?; test -w {name}; echo $?; test -x {name}; echo $?");
    let output = Command::new("setpriv")
        .args([&format!("--reuid={}", user.uid), &format!("--regid={}", user.gid), &groups])
        .args(["sh", "-c", &script])
        .current_dir(kernel.path())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut bits = said.lines().map(|line| line == "0");
    Some([bits.next()?, bits.next()?, bits.next()?])
}

#[test]
fn permissions_are_those_that_the_kernel_grants() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-b", "1024"], 8 << 10, &[]);
    let device = Arc::new(device);
    let mut random = Random::new(5);
    let volume = mount(&device);
    let mut files = Vec::new();
    for index in 0..60 {
        let kind = if random.below(3) == 0 { NewKind::Directory } else { NewKind::File };
        let name = format!("n{index}");
        let new = New {
            mode: random.below(0o1000) as u16,
            uid: random.below(3) as u32,
            gid: 10 + random.below(3) as u32,
            ..new(kind)
        };
        let inode = volume.create(&root(&volume), name.as_bytes(), &new).unwrap();
        if random.below(2) == 0 {
            let mut perm = || random.below(8) as u16;
            let list = acl(
                perm(),
                &[(1, perm()), (2, perm())],
                perm(),
                &[(11, perm()), (12, perm())],
                perm(),
                perm(),
            );
            volume.set_xattr(&inode, ACCESS, &list, XattrMode::default()).unwrap();
        }
        files.push(name);
    }
    volume.sync().unwrap();
    let Some(kernel) = KernelMount::new(&*device) else { return };
    let users = [(0, 0, vec![]), (1, 10, vec![]), (1, 12, vec![11]), (2, 11, vec![12, 10]), (9, 9, vec![10])];
    for (uid, gid, groups) in users {
        let user = Credentials { uid, gid, groups };
        for name in &files {
            let inode = volume.lookup(&root(&volume), name.as_bytes()).unwrap();
            let may = |want| volume.access(&inode, &user, want).is_ok();
            let ours = [may(AccessMask::READ), may(AccessMask::WRITE), may(AccessMask::EXECUTE)];
            let Some(theirs) = granted(&kernel, name, &user) else {
                println!("skipped: no setpriv");
                return;
            };
            assert_eq!(ours, theirs, "{user:?}, {name}, mode {:o}", inode.raw().mode());
            assert_eq!(may(AccessMask::READ | AccessMask::EXECUTE), theirs[0] && theirs[2]);
        }
    }
    volume.unmount().unwrap();
}

#[test]
fn sticky_immutable_and_append_only_protect_names() {
    use extant_ondisk::InodeFlags;
    if !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-b", "1024"], 8 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let user = |uid| Credentials { uid, gid: uid, groups: Vec::new() };
    let make = |dir: &InodeRef, name: &[u8], kind, uid, mode| {
        volume.create(dir, name, &New { uid, mode, ..new(kind) }).unwrap()
    };
    let dir = make(&root(&volume), b"dir", NewKind::Directory, 5, 0o1777);
    let file = make(&dir, b"file", NewKind::File, 6, 0o666);
    for (uid, may) in [(0, true), (5, true), (6, true), (7, false)] {
        let said = volume.may_delete(&dir, &file, &user(uid));
        assert_eq!(said.is_ok(), may, "{uid}: {said:?}");
        assert!(may || matches!(said, Err(Error::NotPermitted)));
    }
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        let flags = file.raw().flags() & InodeFlags::USER_VISIBLE;
        volume.set_flags(&file, flags | flag).unwrap();
        assert!(matches!(volume.unlink(&dir, b"file"), Err(Error::NotPermitted)));
        assert!(matches!(volume.link(&file, &dir, b"other"), Err(Error::NotPermitted)));
        let chmod = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        assert!(matches!(volume.set_attributes(&file, &chmod), Err(Error::NotPermitted)));
        let touch = SetAttributes { touch: true, ..SetAttributes::default() };
        assert_eq!(volume.set_attributes(&file, &touch).is_ok(), flag == InodeFlags::APPEND);
        assert!(matches!(
            volume.set_xattr(&file, b"user.a", b"", XattrMode::default()),
            Err(Error::NotPermitted)
        ));
        volume.set_flags(&file, flags).unwrap();
    }
    let flags = dir.raw().flags() & InodeFlags::USER_VISIBLE;
    volume.set_flags(&dir, flags | InodeFlags::IMMUTABLE).unwrap();
    let refused = volume.create(&dir, b"new", &new(NewKind::File)).map(drop);
    assert!(matches!(refused, Err(Error::NotPermitted)));
    assert!(matches!(volume.unlink(&dir, b"file"), Err(Error::NotPermitted)));
    assert!(matches!(volume.access(&dir, &user(0), AccessMask::WRITE), Err(Error::NotPermitted)));
    volume.set_flags(&dir, flags | InodeFlags::APPEND).unwrap();
    make(&dir, b"new", NewKind::File, 0, 0o600);
    assert!(matches!(volume.unlink(&dir, b"new"), Err(Error::NotPermitted)));
    assert!(matches!(
        volume.set_flags(&file, file.raw().flags() ^ InodeFlags::EXTENTS),
        Err(Error::Unsupported(_))
    ));
    drop((dir, file));
    volume.unmount().unwrap();
    assert_clean(&*device, "flags");
}

#[test]
fn dax_excludes_content_that_stands_in_the_inode() {
    use extant_ondisk::InodeFlags;
    if !has_e2fsprogs() {
        return;
    }
    let (device, _) = format(&["-O", "inline_data"], 8 << 10, &["inline"]);
    let volume = mount(&Arc::new(device));
    let dir = root(&volume);
    let inline = volume.lookup(&dir, b"inline").unwrap();
    assert!(inline.raw().flags().contains(InodeFlags::INLINE_DATA));
    let plain = volume.create(&dir, b"plain", &new(NewKind::File)).unwrap();
    let set = |inode: &InodeRef| {
        let flags = inode.raw().flags() & InodeFlags::USER_VISIBLE;
        volume.set_flags(inode, flags | InodeFlags::DAX).is_ok()
    };
    assert_eq!([set(&inline), set(&plain), set(&dir)], [false, true, true]);
    drop((dir, inline, plain));
    volume.unmount().unwrap();
}
