//! What is no ext4 file system is named, as it is made by the programs of each format.

use std::fs;

use super::bench::{Bench, tool};

/// What it is; the program that makes it; the bytes of `other.img` beforehand in MiB; how it is made.
type Format = (&'static str, &'static str, u64, &'static str);

const FORMATS: [Format; 43] = [
    ("an XFS file system", "mkfs.xfs", 320, "mkfs.xfs -q other.img"),
    ("a btrfs file system", "mkfs.btrfs", 128, "mkfs.btrfs -q other.img"),
    ("a FAT file system", "mkfs.fat", 2, "mkfs.fat -F 12 other.img"),
    ("a FAT file system", "mkfs.fat", 16, "mkfs.fat -F 16 other.img"),
    ("a FAT file system", "mkfs.fat", 64, "mkfs.fat -F 32 other.img"),
    ("an exFAT file system", "mkfs.exfat", 16, "mkfs.exfat other.img"),
    ("an NTFS file system", "mkfs.ntfs", 16, "mkfs.ntfs -F -Q -q other.img"),
    ("an F2FS file system", "mkfs.f2fs", 64, "mkfs.f2fs -q other.img"),
    ("an EROFS file system", "mkfs.erofs", 0, "mkfs.erofs other.img tree"),
    ("a squashfs file system", "mksquashfs", 0, "rm other.img; mksquashfs tree other.img -quiet"),
    ("a NILFS2 file system", "mkfs.nilfs2", 256, "mkfs.nilfs2 -q other.img"),
    ("a JFS file system", "mkfs.jfs", 16, "mkfs.jfs -q other.img"),
    ("a ReiserFS file system", "mkreiserfs", 40, "mkreiserfs -f -f -q other.img"),
    ("a Reiser4 file system", "mkfs.reiser4", 40, "mkfs.reiser4 -yf other.img"),
    ("an OCFS2 file system", "mkfs.ocfs2", 64, "mkfs.ocfs2 -q -F --fs-features=local -b 4K other.img"),
    ("an OCFS2 file system", "mkfs.ocfs2", 64, "mkfs.ocfs2 -q -F --fs-features=local -b 1K other.img"),
    ("a GFS2 file system", "mkfs.gfs2", 64, "mkfs.gfs2 -O -q -p lock_nolock -j1 -J 8 other.img"),
    ("a UFS file system", "makefs", 0, "makefs -t ffs -s 2m other.img tree"),
    ("a UFS file system", "makefs", 0, "makefs -t ffs -s 2m -B be other.img tree"),
    ("a UFS file system", "makefs", 0, "makefs -t ffs -s 2m -o version=2 other.img tree"),
    ("a UFS file system", "makefs", 0, "makefs -t ffs -s 2m -B be -o version=2 other.img tree"),
    ("a MINIX file system", "mkfs.minix", 2, "mkfs.minix -1 other.img"),
    ("a MINIX file system", "mkfs.minix", 2, "mkfs.minix -2 other.img"),
    ("a MINIX file system", "mkfs.minix", 2, "mkfs.minix -3 other.img"),
    ("a BFS file system", "mkfs.bfs", 2, "mkfs.bfs other.img"),
    ("a cramfs file system", "mkfs.cramfs", 0, "mkfs.cramfs tree other.img"),
    ("a romfs file system", "genromfs", 0, "genromfs -d tree -f other.img"),
    ("a UBIFS file system", "mkfs.ubifs", 0, "mkfs.ubifs -r tree -m 512 -e 15360 -c 100 -y -o other.img"),
    ("a JFFS2 file system", "mkfs.jffs2", 0, "mkfs.jffs2 -d tree -o other.img"),
    ("an ISO 9660 file system", "genisoimage", 0, "genisoimage -quiet -o other.img tree"),
    ("a UDF file system", "mkudffs", 16, "mkudffs other.img"),
    ("swap space", "mkswap", 2, "mkswap other.img"),
    ("swap space", "mkswap", 2, "mkswap -p 65536 other.img"),
    ("a LUKS volume", "cryptsetup", 32, LUKS_1),
    ("a LUKS volume", "cryptsetup", 32, LUKS_2),
    ("a hash tree of dm-verity", "veritysetup", 0, "truncate -s 1M data; veritysetup format data other.img"),
    ("a device of bcache", "make-bcache", 16, "make-bcache -B other.img"),
    ("a device of bcache", "make-bcache", 128, "make-bcache -C other.img"),
    ("the metadata of a device-mapper thin pool", "thin_restore", 4, THIN_POOL),
    ("the metadata of a device-mapper cache", "cache_restore", 4, CACHE),
    ("a tar archive", "tar", 0, "tar -cf other.img tree"),
    ("a cpio archive", "cpio", 0, "find tree | cpio -o -H newc >other.img"),
    ("an LVM physical volume", "pvcreate", 64, PHYSICAL_VOLUME),
];

const LUKS_1: &str =
    "echo x | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 other.img -";
const LUKS_2: &str =
    "echo x | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 other.img -";
const THIN_POOL: &str = r#"echo '<superblock uuid="" time="0" transaction="0" data_block_size="128" nr_data_blocks="0"></superblock>' >x.xml
thin_restore -i x.xml -o other.img"#;
const CACHE: &str = r#"echo '<superblock uuid="" block_size="128" nr_cache_blocks="0" policy="smq" hint_width="4"><mappings></mappings><hints></hints></superblock>' >x.xml
cache_restore -i x.xml -o other.img"#;
const PHYSICAL_VOLUME: &str = r#"loop=$(losetup -f --show other.img)
pvcreate -ff -y --config "devices { filter = [ \"a|$loop|\", \"r|.*|\" ] }" $loop || status=$?
losetup -d $loop
exit ${status-0}"#;

#[test]
fn formats_are_named_as_their_own_programs_make_them() {
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/sub; echo content >tree/sub/file");
    let mut made = 0;
    for (what, program, mib, script) in FORMATS {
        let is_for_root = script == PHYSICAL_VOLUME;
        if tool(program).is_none() || is_for_root && !super::bench::is_root() {
            continue;
        }
        let file = fs::File::create(bench.path("other.img")).expect("image");
        file.set_len(mib << 20).expect("length");
        drop(file);
        bench.shell(&format!("PATH=$PATH:/usr/sbin:/sbin\nexec 2>&1\n{script}"));
        for arguments in [&["info", "other.img"][..], &["ls", "other.img"], &["mkdir", "other.img:/x"]] {
            let said = bench.fails(1, arguments);
            let expected = format!("extant: other.img: {what}, not an ext4 file system; ");
            assert!(said.starts_with(&expected), "{script}: {said}");
        }
        let said = bench.fails(1, &["mkfs", "other.img", "4M"]);
        assert!(said.contains(&format!("contains {what}; use -F")), "{script}: {said}");
        made += 1;
    }
    println!("{made} of {} formats", FORMATS.len());
    assert!(made >= 8, "the programs of the tests' packages make more than {made}");
}

/// A new ext4 leaves what was there before at other places of the device: it is an ext4 nevertheless.
#[test]
fn an_ext4_is_never_taken_for_another_format() {
    let Some(bench) = Bench::new() else { return };
    for (at, mark) in [
        (0, &b"XFSB"[..]),
        (0, b"LUKS\xba\xbe"),
        (512, b"LABELONE"),
        (3, b"NTFS    "),
        (54, b"FAT16"),
        (446, &[0x80, 1, 1, 0, 0x83, 1, 1, 1, 8, 0, 0, 0, 8, 0, 0, 0]),
        (510, &[0x55, 0xaa]),
    ] {
        let mut disk = bench.bytes(super::bench::DISK);
        disk[at..at + mark.len()].copy_from_slice(mark);
        fs::write(bench.path("marked.img"), disk).expect("image");
        assert_eq!(bench.words("cat marked.img:/etc/hostname"), "guest\n");
    }
    let mut disk = bench.bytes(super::bench::DISK);
    let at = disk.len() - 65536;
    disk[at..at + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    fs::write(bench.path("marked.img"), disk).expect("image");
    assert_eq!(bench.words("cat marked.img:/etc/hostname"), "guest\n");
}
