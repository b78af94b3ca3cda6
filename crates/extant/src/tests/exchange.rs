//! Contents that two files exchange: trees of several depths, what stays with the inode, crashes.

use extant_block::MemoryDevice;
use extant_ondisk::{InodeFlags, InodeNumber};
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, mount, mount_with_pages};
use super::restart::crashes;
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::inode::xattr::XattrMode;
use crate::mount::Volume;
use crate::namespace::{New, NewKind};

const BLOCK: u64 = 1024;
const FORMAT: [&str; 6] = ["-b", "1024", "-J", "size=1", "-N", "64"];
const UNNAMED: New<'_> = New { kind: NewKind::File, mode: 0o600, uid: 7, gid: 7, times: None, xattrs: &[] };

/// Fills `count` blocks that cannot share an extent with `byte`.
fn fill(volume: &Volume, inode: &InodeRef, count: u64, byte: u8) {
    for block in 0..count {
        volume.write_at(inode, Some(block * 2 * BLOCK), &[byte; BLOCK as usize], true).unwrap();
    }
}

/// Whether the file is `count` such blocks.
fn holds(volume: &Volume, inode: &InodeRef, count: u64, byte: u8) -> bool {
    let size = (count * 2).saturating_sub(1) * BLOCK;
    let mut read = vec![0; size as usize + 1];
    volume.read_at(inode, 0, &mut read).unwrap() as u64 == size
        && inode.state().size() == size
        && read[..size as usize].chunks(BLOCK as usize).enumerate().all(|(block, bytes)| {
            let expected = if block % 2 == 0 { byte } else { 0 };
            bytes.iter().all(|byte| *byte == expected)
        })
}

fn unnamed(volume: &Volume) -> InodeRef {
    volume.tmpfile(&volume.inode(InodeNumber::ROOT).unwrap(), &UNNAMED).unwrap()
}

#[test]
fn contents_change_places_and_inodes_keep_what_is_theirs() {
    if !has_e2fsprogs() {
        return;
    }
    // None, in the inode, a leaf, more leaves.
    for (old, new) in [(0, 3), (3, 0), (2, 50), (300, 2), (90, 700)] {
        for pages in [false, true] {
            let (device, inodes) = format(&FORMAT, 16 << 10, &["a", "b"]);
            let device = Arc::new(device);
            let volume = if pages { mount_with_pages(&device, 8 << 20, true) } else { mount(&device) };
            let (a, b) = (volume.inode(inodes[0]).unwrap(), volume.inode(inodes[1]).unwrap());
            let value = vec![9; 700];
            volume.set_xattr(&a, b"user.kept", &value, XattrMode::default()).unwrap();
            fill(&volume, &a, old, 1);
            fill(&volume, &b, new, 2);
            let before = a.raw();
            volume.exchange_content(&a, &b).unwrap();
            assert!(holds(&volume, &a, new, 2) && holds(&volume, &b, old, 1), "{old} {new} {pages}");
            let after = a.raw();
            assert_eq!(
                (before.mode(), before.uid(), before.links_count()),
                (after.mode(), after.uid(), after.links_count())
            );
            assert_eq!(volume.get_xattr(&a, b"user.kept").unwrap(), value);
            // Both go on as any file does.
            volume.write_at(&a, Some(5 * BLOCK), &[3; 2000], true).unwrap();
            volume.set_size(&b, BLOCK).unwrap();
            volume.unmount().unwrap();
            drop((a, b, volume));
            assert_clean(&*device, &format!("{old} against {new} blocks, pages: {pages}"));
            let volume = mount(&device);
            let b = volume.inode(inodes[1]).unwrap();
            assert!(old == 0 || holds(&volume, &b, 1, 1));
        }
    }
}

#[test]
fn files_that_may_not_change_exchange_nothing() {
    if !has_e2fsprogs() {
        return;
    }
    let (device, inodes) = format(&FORMAT, 64 << 10, &["a", "b"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let (a, b) = (volume.inode(inodes[0]).unwrap(), volume.inode(inodes[1]).unwrap());
    fill(&volume, &a, 2, 1);
    let flags = a.raw().flags();
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
        volume.set_flags(&a, flags | flag).unwrap();
        assert!(matches!(volume.exchange_content(&b, &a), Err(Error::NotPermitted)));
    }
    volume.set_flags(&a, flags).unwrap();
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    assert!(matches!(volume.exchange_content(&a, &root), Err(Error::IsADirectory)));
    assert!(matches!(volume.exchange_content(&a, &a), Err(Error::InvalidArgument(_))));
    // More leaves than the journal takes at once.
    fill(&volume, &b, 50_000, 2);
    assert!(matches!(volume.exchange_content(&a, &b), Err(Error::Unsupported(_))));
    assert!(holds(&volume, &a, 2, 1));
    volume.unmount().unwrap();
    drop((a, b, root, volume));
    assert_clean(&*device, "refused");
}

#[test]
fn a_crash_leaves_the_old_content_or_the_new_one() {
    if !has_e2fsprogs() {
        return;
    }
    let (old, new) = (400, 300);
    let (device, inodes) = format(&FORMAT, 16 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    fill(&volume, &inode, old, 1);
    volume.unmount().unwrap();
    drop((inode, volume));
    let base: MemoryDevice = device.snapshot();
    let free = mount(&Arc::new(base.snapshot())).allocator.free_blocks();
    let mut seen = (false, false);
    let replace = |volume: &Arc<Volume>, inode: InodeRef| {
        let unnamed = unnamed(volume);
        fill(volume, &unnamed, new, 2);
        volume.exchange_content(&inode, &unnamed).unwrap();
        drop(unnamed);
        volume.evict_unlinked();
    };
    crashes(&base, inodes[0], 1, replace, |volume| {
        let inode = volume.inode(inodes[0]).unwrap();
        let (is_old, is_new) = (holds(volume, &inode, old, 1), holds(volume, &inode, new, 2));
        assert!(is_old || is_new, "neither, {} bytes", inode.raw().size());
        seen = (seen.0 || is_old, seen.1 || is_new);
        // The other content went with its inode.
        let freed = volume.allocator.free_blocks();
        assert!(is_new && freed >= free || is_old && freed == free, "{freed} of {free}");
    });
    assert_eq!(seen, (true, true));
}
