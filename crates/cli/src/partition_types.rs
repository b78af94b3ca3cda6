//! Types of partitions, by name.
//!
//! Sources: UEFI specification 2.10, table 5.7; the UAPI group's discoverable partitions specification. Test: `tests/command/gpt.rs` holds
//! the GUIDs against `sfdisk --list-types`.

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

/// The EFI system partition.
pub const EFI_SYSTEM: u128 = 0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b;
/// Any file system of Linux.
pub const LINUX: u128 = 0x0fc63daf_8483_4772_8e79_3d69d8477de4;

/// Types of a GUID partition table, but those of [`ROOTS`].
const GPT: [(u128, &str); 14] = [
    (EFI_SYSTEM, "EFI system"),
    (LINUX, "Linux"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "Linux extended boot"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "Linux LVM"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "Linux RAID"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "LUKS"),
    (0x9e1a2d38_c612_4316_aa26_8b49521e5a8b, "PReP boot"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft data"),
    (0xde94bba4_06d1_4d40_a16a_bfd50179d6ac, "Windows recovery"),
    (0xfe3a2a5d_4f32_41a7_b725_accc3285a309, "ChromeOS kernel"),
];

/// The root partition of an architecture.
pub struct RootType {
    /// The architecture, as the discoverable partitions specification spells it.
    pub architecture: &'static str,
    /// The same as Go and container images spell it.
    pub go_name: &'static str,
    /// The GUID of the type.
    pub guid: u128,
}

/// Every architecture that has a type of root partitions and is in use.
pub const ROOTS: [RootType; 11] = [
    root("x86-64", "amd64", 0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709),
    root("x86", "386", 0x44479540_f297_41b2_9af7_d131d5f0458a),
    root("arm64", "arm64", 0xb921b045_1df0_41c3_af44_4c6f280d3fae),
    root("arm", "arm", 0x69dad710_2ce4_4e3c_b16c_21a1d49abed3),
    root("riscv64", "riscv64", 0x72ec70a6_cf74_40e6_bd49_4bda08e8f224),
    root("s390x", "s390x", 0x5eead9a9_fe09_4a1e_a1d7_520d00531306),
    root("ppc64-le", "ppc64le", 0xc31c45e6_3f39_412e_80fb_4809c4980599),
    root("ppc64", "ppc64", 0x912ade1d_a839_4913_8964_a10eee08fbd2),
    root("loongarch64", "loong64", 0x77055800_792c_4f94_b39a_98c91b762bb6),
    root("mips64-le", "mips64le", 0x700bda43_7a34_4507_b179_eeb93d7a7ca3),
    root("mips-le", "mipsle", 0x37c58c8a_d913_4156_a25f_48b1b64e07f0),
];

const fn root(architecture: &'static str, go_name: &'static str, guid: u128) -> RootType {
    RootType { architecture, go_name, guid }
}

/// The name of a type, or its number.
pub fn name(kind: PartitionKind) -> String {
    let text = kind.to_string();
    match kind {
        PartitionKind::Mbr(kind) => {
            let found = MBR.iter().find(|(known, _)| *known == kind);
            found.map_or(text, |(_, name)| (*name).to_owned())
        }
        PartitionKind::Gpt(_) => {
            let guid = u128::from_str_radix(&text.replace('-', ""), 16);
            guid.ok().and_then(name_of_guid).unwrap_or(text)
        }
    }
}

/// The name of a type of a GUID partition table.
pub fn name_of_guid(guid: u128) -> Option<String> {
    let found = GPT.iter().find(|(known, _)| *known == guid).map(|(_, name)| (*name).to_owned());
    let root = || ROOTS.iter().find(|root| root.guid == guid);
    found.or_else(|| root().map(|root| format!("Linux root ({})", root.architecture)))
}
