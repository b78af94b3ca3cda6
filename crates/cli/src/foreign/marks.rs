//! Formats that have a mark at a place which is always the same.

/// A mark of a format.
pub struct Mark {
    /// Where it is, in bytes.
    pub at: u64,
    pub bytes: &'static [u8],
    /// The format, with an article.
    pub what: &'static str,
    /// What to do about it.
    pub advice: &'static str,
}

const fn mark(at: u64, bytes: &'static [u8], what: &'static str, advice: &'static str) -> Mark {
    Mark { at, bytes, what, advice }
}

/// For file systems that the kernel can mount.
pub const KERNEL: &str =
    "only ext4 is read here; mount it with the kernel and copy its files with `extant mkfs -d DIR IMAGE`";
const FAT: &str = "`mcopy -s -i IMAGE ::/ DIR` unpacks it, and `extant mkfs -d DIR` makes a disk of that";
const SQUASHFS: &str = "`unsquashfs -d DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that";
const BSDTAR: &str = "`bsdtar -xf IMAGE -C DIR` unpacks it, and `extant mkfs -d DIR` makes a disk of that";
const UBI: &str =
    "`ubireader_extract_files` unpacks it, and `extant mkfs -d DIR` makes a disk of what comes out";
const MAPPED: &str =
    "`lvs -a` shows which volume it serves; activate that with `vgchange -ay` and use /dev/VG/LV";
const NO_FILES: &str = "it holds no files";
/// For members of an array.
pub const ARRAY: &str = "assemble it with `mdadm --assemble` and use the array";

/// What lies below file systems: encryption, volumes, caches. It is looked for first, since a file system may begin in it.
pub const LAYERS: &[Mark] = &[
    mark(
        0,
        b"LUKS\xba\xbe",
        "a LUKS volume",
        "open it with `cryptsetup open IMAGE NAME` and use /dev/mapper/NAME",
    ),
    mark(
        3,
        b"-FVE-FS-",
        "a BitLocker volume",
        "open it with `cryptsetup open --type bitlk IMAGE NAME` and use /dev/mapper/NAME",
    ),
    mark(0, b"LABELONE", PHYSICAL_VOLUME, VOLUMES),
    mark(512, b"LABELONE", PHYSICAL_VOLUME, VOLUMES),
    mark(1024, b"LABELONE", PHYSICAL_VOLUME, VOLUMES),
    mark(1536, b"LABELONE", PHYSICAL_VOLUME, VOLUMES),
    mark(
        516,
        b"!Stra0tis\x86\xff\x02^",
        "a member of a Stratis pool",
        "start it with `stratis pool start` and use /dev/stratis",
    ),
    mark(4096, &[0xfc, 0x4e, 0x2b, 0xa9], RAID, ARRAY),
    mark(0, &[0xfc, 0x4e, 0x2b, 0xa9], RAID, ARRAY),
    mark(
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
        "a device of bcache",
        "attach it with `bcache-register` and use /dev/bcacheN",
    ),
    mark(
        0,
        b"verity\0\0",
        "a hash tree of dm-verity",
        "open it with its data: `veritysetup open DATA NAME IMAGE ROOT_HASH`",
    ),
    mark(
        0,
        b"integrt\0",
        "a device of dm-integrity",
        "open it with `integritysetup open IMAGE NAME` and use /dev/mapper/NAME",
    ),
    mark(32, &[0xba, 0x52, 0x9c, 0x01, 0, 0, 0, 0], "the metadata of a device-mapper thin pool", MAPPED),
    mark(32, &[0x03, 0xc4, 0x18, 0, 0, 0, 0, 0], "the metadata of a device-mapper cache", MAPPED),
    mark(0, b"dmvdo001", "a VDO volume", MAPPED),
    mark(
        0,
        b"SnAp",
        "the changes of a device-mapper snapshot",
        "`dmsetup` opens it together with its origin",
    ),
    mark(0, b"bluestore block device", "a device of Ceph", "its cluster reads it"),
];

const RAID: &str = "a member of a Linux RAID";
/// What has a label of LVM.
pub const PHYSICAL_VOLUME: &str = "an LVM physical volume";
const VOLUMES: &str = "activate it with `vgchange -ay` and use /dev/VG/LV";

/// File systems and archives. Longer marks are before shorter ones that they contain.
pub const MARKS: &[Mark] = &[
    mark(0, b"XFSB", "an XFS file system", KERNEL),
    mark(0x1_0040, b"_BHRfS_M", "a btrfs file system", KERNEL),
    mark(
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
        "a bcachefs file system",
        "only ext4 is read here; mount it with `mount -t bcachefs` and copy its files with `extant mkfs -d DIR IMAGE`",
    ),
    mark(3, b"NTFS    ", "an NTFS file system", KERNEL),
    mark(3, b"ReFS\0\0\0\0", "a ReFS file system", "only Windows reads it; copy its files there"),
    mark(3, b"EXFAT   ", "an exFAT file system", KERNEL),
    mark(1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system", KERNEL),
    mark(0x1_0034, b"ReIsEr", "a ReiserFS file system", KERNEL),
    mark(0x2034, b"ReIsEr", "a ReiserFS file system", KERNEL),
    mark(0x1_0000, b"ReIsEr4", "a Reiser4 file system", KERNEL),
    mark(0x8000, b"JFS1", "a JFS file system", KERNEL),
    // The revision, 2.0, and the magic number.
    mark(1024, &[2, 0, 0, 0, 0, 0, 0x34, 0x34], "a NILFS2 file system", KERNEL),
    mark(0x1_0000, &[1, 0x16, 0x19, 0x70, 0, 0, 0, 1], "a GFS2 file system", KERNEL),
    mark(0x2000, b"OCFSV2", OCFS2, KERNEL),
    mark(0x1000, b"OCFSV2", OCFS2, KERNEL),
    mark(0x800, b"OCFSV2", OCFS2, KERNEL),
    mark(0x400, b"OCFSV2", OCFS2, KERNEL),
    mark(0x1_055c, &[0x19, 1, 0x54, 0x19], UFS, KERNEL),
    mark(0x1_055c, &[0x19, 0x54, 1, 0x19], UFS, KERNEL),
    mark(0x255c, &[0x19, 1, 0x54, 0x19], UFS, KERNEL),
    mark(0x255c, &[0x19, 0x54, 1, 0x19], UFS, KERNEL),
    mark(0x255c, &[0x54, 0x19, 1, 0], UFS, KERNEL),
    mark(0x255c, &[0, 1, 0x19, 0x54], UFS, KERNEL),
    mark(0, &[0xce, 0xfa, 0xad, 0x1b], "a BFS file system", KERNEL),
    mark(1024, b"H+\0\x04", "an HFS+ file system", KERNEL),
    mark(1024, b"HX\0\x05", "an HFS+ file system", KERNEL),
    mark(
        32,
        b"NXSB",
        "an APFS container",
        "only ext4 is read here; mount it with `apfs-fuse IMAGE DIR` and copy its files with `extant mkfs -d DIR IMAGE`",
    ),
    mark(0x10_0000, &[0x0d, 0xd0, 1, 0xc0], "a VMFS volume", "mount it with `vmfs-fuse` and copy its files"),
    mark(54, b"FAT1", "a FAT file system", FAT),
    mark(82, b"FAT32", "a FAT file system", FAT),
    mark(0, b"hsqs", "a squashfs file system", SQUASHFS),
    mark(0, b"sqsh", "a squashfs file system", SQUASHFS),
    mark(
        1024,
        &[0xe2, 0xe1, 0xf5, 0xe0],
        "an EROFS file system",
        "`fsck.erofs --extract=DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    mark(
        0,
        &[0x45, 0x3d, 0xcd, 0x28],
        "a cramfs file system",
        "`fsck.cramfs --extract=DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    mark(0, b"-rom1fs-", "a romfs file system", KERNEL),
    mark(0, b"UBI#", "a UBI image", UBI),
    mark(0, &[0x31, 0x18, 0x10, 0x06], "a UBIFS file system", UBI),
    mark(0, &[0x85, 0x19, 0x03, 0x20], JFFS2, JEFFERSON),
    mark(0, &[0x85, 0x19, 0x01, 0xe0], JFFS2, JEFFERSON),
    mark(0, &[0x85, 0x19, 0x02, 0xe0], JFFS2, JEFFERSON),
    mark(0x8001, b"CD001", ISO_9660, BSDTAR),
    mark(0x8001, b"BEA01", "a UDF file system", KERNEL),
    mark(4086, b"SWAPSPACE2", "swap space", NO_FILES),
    mark(4086, b"SWAP-SPACE", "swap space", NO_FILES),
    mark(4086, b"S1SUSPEND", "swap space with a suspended system", NO_FILES),
    // Of hosts with pages of 64 KiB.
    mark(0xfff6, b"SWAPSPACE2", "swap space", NO_FILES),
    mark(0, b"ANDROID!", "a boot image of Android", "`unpack_bootimg` unpacks it"),
    mark(4096, b"gDla", "a super image of Android", "`lpunpack IMAGE DIR` takes the file systems out of it"),
    mark(0, &[0x3a, 0xff, 0x26, 0xed], "an Android sparse image", "unpack it with `simg2img`"),
    mark(
        257,
        b"ustar",
        "a tar archive",
        "`extant mkfs -d ARCHIVE IMAGE` makes a disk of it, `extant import` unpacks it into one",
    ),
    mark(
        0,
        b"070701",
        "a cpio archive",
        "`cpio -idm` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    mark(0, b"PK\x03\x04", "a ZIP archive", "unpack it with `unzip`"),
    mark(0, b"\xfd7zXZ\0", "a file compressed with xz", "unpack it with `unxz -k`"),
    mark(0, &[0x28, 0xb5, 0x2f, 0xfd], "a file compressed with Zstandard", "unpack it with `unzstd`"),
    mark(0, &[4, 0x22, 0x4d, 0x18], "a file compressed with LZ4", "unpack it with `unlz4`"),
    mark(0, b"BZh", "a file compressed with bzip2", "unpack it with `bunzip2 -k`"),
    mark(0, &[0x1f, 0x8b], "a file compressed with gzip", "unpack it with `gunzip -k`"),
    mark(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with `7z x`"),
    mark(512, b"PM\0\0", "an Apple partition map", TABLE),
    mark(512, &[0x57, 0x45, 0x56, 0x82], "a BSD disk label", TABLE),
];

/// It leaves the first 32 KiB to boot sectors, which may have a partition table.
pub const ISO_9660: &str = "an ISO 9660 file system";
const UFS: &str = "a UFS file system";
const OCFS2: &str = "an OCFS2 file system";
const JFFS2: &str = "a JFFS2 file system";
const JEFFERSON: &str = "`jefferson -d DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that";
const TABLE: &str = "`parted IMAGE unit B print` says where its partitions are, and --offset BYTES takes one";
