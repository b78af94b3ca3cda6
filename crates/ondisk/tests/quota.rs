//! Quota files: those that e2fsprogs makes, those that grow here, and any bytes.

use extant_testing::{Command, Random};

use extant_ondisk::quota::{
    EntryPlace, GRACE_SECONDS, Grace, QUOTA_BLOCK_SIZE, block_of, entries, file_with, grace, insert,
};
use extant_ondisk::{Dqblk, QuotaType};

fn read(bytes: &[u8], place: EntryPlace) -> Option<Dqblk> {
    Dqblk::read(&block_of(bytes, place.block)?, place.slot)
}

/// The file of an inode, by debugfs; None, and the reason said, if there are no e2fsprogs.
fn of_mke2fs(inode: u32) -> Option<Vec<u8>> {
    let folder = extant_testing::scratch();
    let (image, file) = (folder.path().join("image"), folder.path().join("file"));
    let (image, file) = (image.to_str()?, file.to_str()?);
    let made =
        Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "quota,project", image, "16M"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("skipped: no mke2fs");
        return None;
    }
    let request = format!("dump <{inode}> {file}");
    Command::new("debugfs").args(["-R", &request, image]).output().expect("debugfs");
    Some(std::fs::read(file).expect("the file"))
}

#[test]
fn files_of_mke2fs_are_read_and_made_byte_for_byte() {
    for (quota_type, inode) in QuotaType::ALL.into_iter().zip([3, 4, 12]) {
        let Some(bytes) = of_mke2fs(inode) else { return };
        let places = entries(|block| block_of(&bytes, block), quota_type).expect("a quota file");
        let ids: Vec<u32> = places.keys().copied().collect();
        assert_eq!(ids, [0]);
        let entry = read(&bytes, places[&0]).expect("an entry");
        // The root directory and lost+found.
        assert_eq!((entry.curinodes, entry.curspace), (2, 13 * 1024));
        let expected = Grace { space_seconds: GRACE_SECONDS, inode_seconds: GRACE_SECONDS };
        assert_eq!(grace(|block| block_of(&bytes, block), quota_type).expect("a quota file"), expected);
        assert!(file_with(quota_type, &[entry]).expect("a file") == bytes, "{quota_type:?}");
        assert!(
            entries(|block| block_of(&bytes, block), QuotaType::ALL[(quota_type as usize + 1) % 3]).is_err()
        );
    }
}

#[test]
fn entries_stay_what_they_are_while_others_come() {
    let mut random = Random::new(1);
    let mut wanted: Vec<Dqblk> = Vec::new();
    for number in 0..2000_u32 {
        // Neighbours, ids far apart, and the ends of the range.
        let id = match number % 4 {
            0 => number,
            1 => u32::MAX - number,
            2 => number << 20,
            _ => random.below(1 << 32) as u32,
        };
        if wanted.iter().all(|entry| entry.id != id) {
            let curspace = random.below(1 << 60);
            wanted.push(Dqblk { curspace, curinodes: 1, btime: 5, bhardlimit: 9, ..Dqblk::new(id) });
        }
    }
    // An entry of zeroes is not a free one.
    wanted[0] = Dqblk::new(wanted[0].id);
    let bytes = file_with(QuotaType::User, &wanted).expect("a file");
    let places = entries(|block| block_of(&bytes, block), QuotaType::User).expect("a quota file");
    assert_eq!(places.len(), wanted.len());
    for entry in &wanted {
        assert_eq!(read(&bytes, places[&entry.id]), Some(*entry));
    }
    // Full blocks of 14 entries, and four levels.
    let blocks = bytes.len() / QUOTA_BLOCK_SIZE;
    assert!(blocks > wanted.len() / 14 && blocks < 3 * wanted.len(), "{blocks}");
    assert!(file_with(QuotaType::User, &[wanted[5], wanted[5]]).is_err());
}

#[test]
fn any_bytes_end_in_entries_or_an_error() {
    let ids: Vec<Dqblk> = (0..200).map(|number: u32| Dqblk::new(number << 12 | number)).collect();
    let sound = file_with(QuotaType::Group, &ids).expect("a file");
    let (mut read_whole, mut refused) = (0, 0);
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let mut bytes = sound.clone();
        for _ in 0..=random.below(4) {
            let at = match random.below(3) {
                // The header.
                0 => random.below(32),
                // References of the tree.
                1 => 1024 + random.below(8) * 1024 + random.below(16),
                _ => random.below(bytes.len() as u64),
            };
            bytes[at as usize] = random.below(256) as u8;
        }
        let bytes = &bytes[..bytes.len() - random.below(2) as usize * random.below(4096) as usize];
        match entries(|block| block_of(bytes, block), QuotaType::Group) {
            Ok(_) => read_whole += 1,
            Err(_) => refused += 1,
        }
        let id = random.below(1 << 32) as u32;
        if let Ok(insertion) = insert(|block| block_of(bytes, block), QuotaType::Group, id) {
            assert!(insertion.blocks.len() <= 7, "seed {seed}");
        }
    }
    assert!(read_whole > 100 && refused > 100, "{read_whole} {refused}");
}
