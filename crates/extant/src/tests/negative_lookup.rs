//! Names that were looked for in vain and then made, with other changes of the directory between.

use std::collections::BTreeMap;

use extant_ondisk::{InodeNumber, LogicalBlock, dirent};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, format, has_e2fsprogs, mount};
use super::names::{DISKS, new};
use crate::error::Error;
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::mount::Volume;
use crate::namespace::{NewKind, RenameFlags};

/// Whether what the buffers of a directory say of entries is so.
fn check_known_entries(volume: &Volume, dir: &Arc<Inode>) {
    for logical in (0..volume.directory_len(dir).expect("a length")).map(LogicalBlock) {
        let kind = BufferKind::Directory(dir.owner());
        // A block of the index is none.
        let Ok(buffer) = volume.directory_buffer(dir, logical, kind) else { continue };
        let state = buffer.lock();
        let Some(known) = state.known_entry.map(usize::from) else { continue };
        let mut entries = dirent::entries(&state.bytes, volume.dir_format.usable);
        assert!(entries.any(|entry| entry.expect("whole").offset == known), "block {logical}, {known}");
    }
}

#[test]
fn a_name_goes_where_it_was_missed_unless_the_directory_changed_since() {
    if !has_e2fsprogs() {
        return;
    }
    for disk in DISKS {
        let (device, _) = format(disk, 8192, &[]);
        let device = Arc::new(device);
        let volume = mount(&device);
        let root = volume.inode(InodeNumber::ROOT).expect("root");
        let mut random = Random::new(11);
        let mut names: BTreeMap<Vec<u8>, InodeNumber> = BTreeMap::new();
        for step in 0..2000_u32 {
            let name = format!("{}{}", "n".repeat(random.below(40) as usize), random.below(400)).into_bytes();
            let looked = volume.lookup(&root, &name).map(|inode| inode.number);
            assert_eq!(looked.ok(), names.get(&name).copied(), "{disk:?} step {step}");
            let other = format!("{}-{step}", "o".repeat(random.below(40) as usize)).into_bytes();
            let victim = names.keys().nth(random.below(names.len() as u64) as usize).cloned();
            match (random.below(6), victim) {
                (0, _) => {
                    // Into the very room, mostly.
                    let inode = volume.create(&root, &other, &new(NewKind::Fifo)).expect("create");
                    names.insert(other, inode.number);
                }
                (1, Some(victim)) => {
                    volume.unlink(&root, &victim).expect("unlink");
                    names.remove(&victim);
                }
                (2, Some(victim)) => {
                    // Under the name that was missed, or in its place.
                    volume.rename(&root, &victim, &root, &name, RenameFlags::default()).expect("rename");
                    let number = names.remove(&victim).expect("in the model");
                    names.insert(name.clone(), number);
                }
                _ => {}
            }
            match volume.create(&root, &name, &new(NewKind::Fifo)) {
                Ok(inode) => assert_eq!(names.insert(name, inode.number), None, "{disk:?} step {step}"),
                Err(Error::Exists) => assert!(names.contains_key(&name), "{disk:?} step {step}"),
                Err(error) => panic!("{disk:?} step {step}: {error}"),
            }
            check_known_entries(&volume, &root);
            if names.len() > 300 {
                let (victim, _) = names.pop_first().expect("one of many");
                volume.unlink(&root, &victim).expect("unlink");
            }
        }
        for (name, number) in &names {
            assert_eq!(volume.lookup(&root, name).expect("a name").number, *number, "{disk:?}");
        }
        drop(root);
        volume.unmount().expect("unmount");
        assert_clean(&*device, &format!("{disk:?}"));
    }
}
