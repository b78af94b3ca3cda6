//! Types of partitions, by name.
//!
//! Sources: UEFI specification 2.10, table 5.7; the UAPI group's discoverable partitions specification; `sfdisk --list-types`.

use extant_block::PartitionKind;

/// Types of an MBR.
const MBR: [(u8, &str); 16] = [
    (0x01, "FAT"),
    (0x04, "FAT"),
    (0x06, "FAT"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT"),
    (0x0c, "FAT"),
    (0x0e, "FAT"),
    (0x27, "Windows recovery"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xaf, "HFS+"),
    (0xee, "GPT"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

/// Types of a GUID partition table.
const GPT: [(&str, &str); 18] = [
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("44479540-f297-41b2-9af7-d131d5f0458a", "Linux root (x86)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (arm64)"),
    ("69dad710-2ce4-4e3c-b16c-21a1d49abed3", "Linux root (arm)"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("ca7d7ccb-63ed-4c53-861c-1742536059cc", "LUKS"),
    ("9e1a2d38-c612-4316-aa26-8b49521e5a8b", "PReP boot"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft data"),
    ("de94bba4-06d1-4d40-a16a-bfd50179d6ac", "Windows recovery"),
    ("fe3a2a5d-4f32-41a7-b725-accc3285a309", "ChromeOS kernel"),
];

/// The name of a type, or its number.
pub fn name(kind: PartitionKind) -> String {
    let text = kind.to_string();
    let found = match kind {
        PartitionKind::Mbr(kind) => MBR.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name),
        PartitionKind::Gpt(_) => GPT.iter().find(|(known, _)| *known == text).map(|(_, name)| *name),
    };
    found.map_or(text, str::to_owned)
}
