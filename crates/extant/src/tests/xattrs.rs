//! Extended attributes against a model; `e2fsck` and the kernel judge the disk.

use std::collections::BTreeMap;

use extant_ondisk::InodeNumber;
use extant_ondisk::xattr::refcount;
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use super::kernel::{KernelMount, kernel_xattrs};
use super::names::new;
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::inode::xattr::XattrMode;
use crate::mount::Volume;
use crate::namespace::{New, NewKind};

const FILES: [&str; 3] = ["f0", "f1", "f2"];

const DISKS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "4096"],
    &["-b", "1024", "-I", "128"],
    &["-b", "2048", "-I", "1024"],
    &["-b", "1024", "-O", "^metadata_csum,^64bit", "-I", "256"],
    &["-b", "1024", "-O", "^ext_attr"],
];

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn root(volume: &Arc<Volume>) -> InodeRef {
    volume.inode(InodeNumber::ROOT).unwrap()
}

fn name(random: &mut Random) -> Vec<u8> {
    let prefix = ["user.", "trusted.", "security."][random.below(3) as usize];
    let len = [1, 4, 30][random.below(3) as usize];
    let mut name = prefix.as_bytes().to_vec();
    name.push(b'a' + random.below(4) as u8);
    name.resize(prefix.len() + len, b'n');
    name
}

fn step(volume: &Arc<Volume>, inode: &InodeRef, model: &mut Attributes, block: usize, random: &mut Random) {
    let name = name(random);
    if random.below(3) == 0 {
        match volume.remove_xattr(inode, &name) {
            Ok(()) => assert!(model.remove(&name).is_some()),
            Err(Error::NoAttribute) => assert!(!model.contains_key(&name)),
            Err(error) => panic!("{error}"),
        }
        return;
    }
    let len = [0, 3, 20, 100, 400, 900][random.below(6) as usize];
    let value = random.bytes(len);
    let mode = match random.below(4) {
        0 => XattrMode { create: true, ..XattrMode::default() },
        1 => XattrMode { replace: true, ..XattrMode::default() },
        _ => XattrMode::default(),
    };
    // Each entry takes at most 48 bytes beside its value.
    let others = model.iter().filter(|(other, _)| **other != name);
    let bytes: usize = others.map(|(_, value)| value.len() + 48).sum::<usize>() + len + 48;
    match volume.set_xattr(inode, &name, &value, mode) {
        Ok(()) => {
            assert!(
                !(mode.create && model.contains_key(&name) || mode.replace && !model.contains_key(&name))
            );
            model.insert(name, value);
        }
        Err(Error::Exists) => assert!(mode.create && model.contains_key(&name)),
        Err(Error::NoAttribute) => assert!(mode.replace && !model.contains_key(&name)),
        Err(Error::NoSpace) => assert!(bytes > block - 32, "{bytes} bytes do not fit"),
        Err(error) => panic!("{error}"),
    }
}

fn compare(volume: &Arc<Volume>, inode: &InodeRef, model: &Attributes) {
    let mut names = volume.list_xattrs(inode).unwrap();
    names.sort();
    assert_eq!(names, model.keys().cloned().collect::<Vec<_>>());
    for (name, value) in model {
        assert_eq!(volume.get_xattr(inode, name).unwrap(), *value);
    }
}

#[test]
fn random_attributes_agree_with_a_model_and_the_kernel() {
    if !has_e2fsprogs() {
        return;
    }
    for seed in 0..60 {
        let arguments = DISKS[seed as usize % DISKS.len()];
        let (device, inodes) = format(arguments, 8 << 10, &FILES);
        let block = arguments[1].parse().unwrap();
        let device = Arc::new(device);
        let mut random = Random::new(seed);
        let mut models = vec![Attributes::new(); FILES.len()];
        for _ in 0..2 {
            let volume = mount(&device);
            for _ in 0..200 {
                let file = random.below(FILES.len() as u64) as usize;
                let inode = volume.inode(inodes[file]).unwrap();
                step(&volume, &inode, &mut models[file], block, &mut random);
                if random.below(60) == 0 {
                    volume.sync().unwrap();
                }
            }
            for (inode, model) in inodes.iter().zip(&models) {
                compare(&volume, &volume.inode(*inode).unwrap(), model);
            }
            volume.unmount().unwrap();
            assert_clean(&*device, &format!("seed {seed}, {arguments:?}"));
        }
        if seed >= 12 {
            continue;
        }
        let Some(kernel) = KernelMount::new(&*device) else { continue };
        for (name, model) in FILES.iter().zip(&models) {
            let expected: BTreeMap<_, _> = model
                .iter()
                .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), hex(value)))
                .collect();
            assert_eq!(kernel_xattrs(&kernel, name), expected, "seed {seed}, {arguments:?}");
        }
    }
}

#[test]
fn attributes_given_at_creation_are_there_and_go_with_the_inode() {
    if !has_e2fsprogs() {
        return;
    }
    for arguments in DISKS {
        let (device, _) = format(arguments, 8 << 10, &[]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let long = vec![7; 500];
        let given: &[(&[u8], &[u8])] =
            &[(b"user.short", b"1"), (b"user.long", &long), (b"security.other", b"")];
        for (name, kind) in [(b"file".as_slice(), NewKind::File), (b"dir".as_slice(), NewKind::Directory)] {
            let inode = volume.create(&root(&volume), name, &New { xattrs: given, ..new(kind) }).unwrap();
            for (name, value) in given {
                assert_eq!(volume.get_xattr(&inode, name).unwrap(), *value);
            }
            assert!(matches!(volume.get_xattr(&inode, b"user.none"), Err(Error::NoAttribute)));
            assert!(matches!(
                volume.set_xattr(&inode, b"odd.name", b"", XattrMode::default()),
                Err(Error::Unsupported(_))
            ));
        }
        volume.sync().unwrap();
        volume.unlink(&root(&volume), b"file").unwrap();
        volume.unmount().unwrap();
        assert_clean(&*device, &format!("{arguments:?}"));
    }
}

/// Only the kernel makes blocks that several inodes share.
#[test]
fn shared_blocks_are_copied_on_write_and_counted() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&["-b", "1024", "-I", "128"], 8 << 10, &FILES);
    let Some(kernel) = KernelMount::new(&device) else { return };
    let value = "v".repeat(300);
    for name in FILES {
        kernel.run("setfattr", &["-n", "user.same", "-v", &value, name]);
    }
    let device = Arc::new(kernel.unmount());
    assert_clean(&*device, "made by the kernel");
    let volume = mount(&device);
    let inodes: Vec<_> = inodes.iter().map(|inode| volume.inode(*inode).unwrap()).collect();
    let references = |inode: &InodeRef| {
        let block = inode.raw().file_acl();
        let location = crate::error::Location::of(extant_ondisk::Structure::XattrBlock);
        volume
            .buffer(block, crate::incore::buffer::BufferKind::Xattr, location)
            .unwrap()
            .read(|bytes| refcount(bytes).unwrap())
    };
    assert_eq!(references(&inodes[0]), 3, "the kernel shares");
    volume.set_xattr(&inodes[0], b"user.more", b"1", XattrMode::default()).unwrap();
    assert_eq!((references(&inodes[0]), references(&inodes[1])), (1, 2));
    assert_eq!(volume.get_xattr(&inodes[1], b"user.same").unwrap(), value.as_bytes());
    assert!(matches!(volume.get_xattr(&inodes[1], b"user.more"), Err(Error::NoAttribute)));
    volume.sync().unwrap();
    volume.remove_xattr(&inodes[1], b"user.same").unwrap();
    assert_eq!(inodes[1].raw().file_acl().0, 0);
    assert_eq!(references(&inodes[2]), 1);
    drop(inodes);
    volume.unlink(&root(&volume), b"f2").unwrap();
    volume.unmount().unwrap();
    assert_clean(&*device, "changed");
}
