//! Directories and attributes of damaged disks: what can be read is read, and nothing panics or loops for ever.

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{FsBlock, InodeNumber, LogicalBlock};
use extant_rt::Arc;

use super::disk::{Random, format, has_e2fsprogs, mount};
use super::names::{list, new};
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::SetAttributes;
use crate::inode::xattr::XattrMode;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::{New, NewKind, RenameFlags};

const NAMES: u64 = 400;

fn root(volume: &Arc<Volume>) -> InodeRef {
    volume.inode(InodeNumber::ROOT).unwrap()
}

fn name(index: u64) -> Vec<u8> {
    format!("{index:04}-and-some-more-bytes-to-fill-blocks").into_bytes()
}

/// A disk with an indexed directory, and where two of its blocks are: the index's root and a leaf.
fn indexed(arguments: &[&str]) -> (Arc<MemoryDevice>, [FsBlock; 2]) {
    let (device, _) = format(arguments, 8 << 10, &[]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let dir = volume.create(&root(&volume), b"dir", &new(NewKind::Directory)).unwrap();
    let file = volume.create(&dir, &name(0), &new(NewKind::File)).unwrap();
    for index in 1..NAMES {
        volume.link(&file, &dir, &name(index)).unwrap();
    }
    let blocks = [0, 1].map(|logical| volume.directory_block(&dir, LogicalBlock(logical)).unwrap());
    drop((dir, file));
    volume.unmount().unwrap();
    (device, blocks)
}

#[test]
fn names_below_a_damaged_index_are_found_and_none_can_be_added() {
    if !has_e2fsprogs() {
        return;
    }
    // The hash's number, the depth, the count of entries, a hash that the next one is below; with checksums any byte is enough.
    let damages = [28, 30, 34, 42].map(|at| ("^metadata_csum", at));
    for (feature, at) in damages.into_iter().chain([("metadata_csum", 36)]) {
        let (device, [index, _]) = indexed(&["-b", "1024", "-O", feature]);
        device.write_at(index.0 * 1024 + at, &[0xFF, 0xFF]).unwrap();
        let volume = mount(&device);
        let dir = volume.lookup(&root(&volume), b"dir").unwrap();
        let what = format!("{feature}, byte {at}");
        assert_eq!(list(&volume, &dir).len() as u64, NAMES + 2, "{what}");
        for index in 0..NAMES {
            assert!(volume.lookup(&dir, &name(index)).is_ok(), "{what}: {index}");
        }
        assert!(matches!(volume.lookup(&dir, b"none"), Err(Error::NotFound)), "{what}");
        let added = volume.create(&dir, b"more", &new(NewKind::File)).map(drop);
        assert!(matches!(added, Err(Error::Corrupt { .. })), "{what}: {added:?}");
        volume.unlink(&dir, &name(7)).unwrap();
        assert!(matches!(volume.lookup(&dir, &name(7)), Err(Error::NotFound)), "{what}");
    }
}

#[test]
fn a_damaged_leaf_is_reported_and_the_others_are_read() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, [_, leaf]) = indexed(&["-b", "1024"]);
    device.write_at(leaf.0 * 1024 + 20, &[0xFF]).unwrap();
    let volume = mount(&device);
    let dir = volume.lookup(&root(&volume), b"dir").unwrap();
    let found = (0..NAMES).filter(|index| volume.lookup(&dir, &name(*index)).is_ok()).count() as u64;
    assert!(found < NAMES && found > NAMES / 2, "{found} found");
    let gone = (0..NAMES).map(|index| volume.lookup(&dir, &name(index))).find_map(Result::err).unwrap();
    assert!(matches!(gone, Error::Corrupt { .. }), "{gone}");
    let mut listed = 0;
    let read = volume.read_dir(&dir, 0, &mut |_| {
        listed += 1;
        true
    });
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
    assert_eq!(listed, found + 2);
}

#[test]
fn a_name_that_would_be_a_path_is_damage() {
    if !has_e2fsprogs() {
        return;
    }
    for feature in ["dir_index", "^dir_index"] {
        let (device, [_, leaf]) = indexed(&["-b", "1024", "-O", &format!("^metadata_csum,{feature}")]);
        // The third byte of the block's first name.
        device.write_at(leaf.0 * 1024 + 8 + 2, b"/").unwrap();
        let volume = mount(&device);
        let dir = volume.lookup(&root(&volume), b"dir").unwrap();
        let mut names = Vec::new();
        let read = volume.read_dir(&dir, 0, &mut |item| {
            names.push(item.name.to_vec());
            true
        });
        assert!(names.iter().all(|name| !name.contains(&b'/')), "{feature}");
        assert!(matches!(read, Err(Error::Corrupt { .. })), "{feature}: {read:?}");
        assert!(
            feature == "^dir_index" || names.len() as u64 > NAMES / 2,
            "{feature}: {} names",
            names.len()
        );
    }
}

/// Operations of a user on a tree; errors are expected.
fn use_tree(volume: &Arc<Volume>, random: &mut Random) {
    let Ok(top) = volume.inode(InodeNumber::ROOT) else { return };
    let mut dirs = vec![top];
    for _ in 0..60 {
        let dir = dirs[random.below(dirs.len() as u64) as usize].clone();
        let mut names = Vec::new();
        let mut left = 2_000;
        let _ = volume.read_dir(&dir, random.below(4) << 60, &mut |item| {
            names.push(item.name.to_vec());
            left -= 1;
            left > 0
        });
        let some = |random: &mut Random| match names.len() {
            0 => b"none".to_vec(),
            count => names[random.below(count as u64) as usize].clone(),
        };
        let chosen = some(random);
        if let Ok(child) = volume.lookup(&dir, &chosen) {
            let _ = volume.read_link(&child);
            let _ = volume.list_xattrs(&child);
            let _ = volume.get_xattr(&child, b"user.a");
            let _ = volume.set_xattr(&child, b"user.b", &[1; 300], XattrMode::default());
            let _ = volume.remove_xattr(&child, b"user.a");
            let _ = volume
                .set_attributes(&child, &SetAttributes { mode: Some(0o600), ..SetAttributes::default() });
            if child.is_directory() && dirs.len() < 20 {
                dirs.push(child);
            }
        }
        let made = name(random.below(50) + 1_000);
        let to = dirs[random.below(dirs.len() as u64) as usize].clone();
        let _ = match random.below(6) {
            0 => volume.unlink(&dir, &chosen),
            1 => volume.rmdir(&dir, &chosen),
            2 => volume.rename(&dir, &chosen, &to, &made, RenameFlags::default()),
            3 => volume.rename(
                &dir,
                &chosen,
                &to,
                &some(random),
                RenameFlags { exchange: true, ..RenameFlags::default() },
            ),
            4 => volume.create(&dir, &made, &new(NewKind::File)).map(drop),
            _ => volume.create(&dir, &made, &new(NewKind::Directory)).map(drop),
        };
        volume.evict_unlinked();
    }
}

#[test]
fn random_damage_never_panics() {
    if !has_e2fsprogs() {
        return;
    }
    for (disk, arguments) in
        [["-O", "^metadata_csum,uninit_bg"], ["-O", "^metadata_csum,^dir_index"]].into_iter().enumerate()
    {
        let (device, _) = indexed(&["-b", "1024", arguments[0], arguments[1]]);
        {
            let volume = mount(&device);
            let long = [7; 400];
            let given: &[(&[u8], &[u8])] = &[(b"user.a", b"1"), (b"user.long", &long)];
            for index in 0..20 {
                let kind = match index % 3 {
                    0 => NewKind::Directory,
                    1 => NewKind::Symlink(&long),
                    _ => NewKind::File,
                };
                let given = if index % 3 == 1 { &[] } else { given };
                volume.create(&root(&volume), &name(index), &New { xattrs: given, ..new(kind) }).unwrap();
            }
            volume.unmount().unwrap();
        }
        let used: Vec<u64> = (4..device.size() / 1024)
            .filter(|block| {
                let mut bytes = [0; 1024];
                device.read_at(block * 1024, &mut bytes).unwrap();
                bytes.iter().any(|byte| *byte != 0)
            })
            .collect();
        for seed in 0..1_000 {
            let mut random = Random::new(seed << 8 | disk as u64);
            let copy = device.snapshot();
            for _ in 0..1 + random.below(30) {
                let block = used[random.below(used.len() as u64) as usize];
                // Fields are at the start of most blocks.
                let bound = if random.below(2) == 0 { 48 } else { 1024 };
                let at = block * 1024 + random.below(bound);
                let value = [0, 1, 0xFF, random.below(256) as u8][random.below(4) as usize];
                copy.write_at(at, &[value]).unwrap();
            }
            let options = Options { background: false, ..Options::default() };
            let result = std::panic::catch_unwind(|| {
                let Ok((volume, _)) = Volume::mount(Arc::new(copy), &options) else { return };
                use_tree(&volume, &mut Random::new(seed));
                let _ = volume.unmount();
            });
            if let Err(panic) = result {
                println!("seed {seed}, {arguments:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}
