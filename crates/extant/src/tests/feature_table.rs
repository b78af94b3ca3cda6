//! The table of `docs/reference/ondisk.md` says what the code does.

use std::collections::BTreeMap;

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, Superblock};
use extant_rt::Arc;

use crate::api::Mount;
use crate::error::Error;
use crate::mkfs::Mkfs;
use crate::mount::features::{INCOMPAT_READ, INCOMPAT_READ_ONLY, RO_COMPAT_WRITE};

const PAGE: &str = include_str!("../../../../docs/reference/ondisk.md");

/// Word, mount and mkfs of each feature named.
fn table() -> BTreeMap<&'static str, [&'static str; 3]> {
    let rows = PAGE.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, word, mount, mkfs, _, _] = cells[..] else { return None };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        ["compat", "incompat", "ro_compat"].contains(&word).then_some((name, [word, mount, mkfs]))
    });
    let mut table = BTreeMap::new();
    for (name, cells) in rows {
        assert!(table.insert(name, cells).is_none(), "{name} stands twice in the table");
    }
    table
}

#[test]
fn every_feature_stands_in_the_table_as_the_code_treats_it() {
    let mut table = table();
    let mut expect = |name: &'static str, word: &str, mounts: &[&str]| {
        let [said_word, said_mount, said_mkfs] =
            table.remove(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(said_word, word, "{name}");
        assert!(mounts.contains(&said_mount), "{name} is {mounts:?}, not {said_mount}");
        let made = if Mkfs::new().features(name).is_ok() { "yes" } else { "no" };
        assert_eq!(said_mkfs, made, "mkfs -O {name}");
    };
    for flag in CompatFeatures::all().iter() {
        flag.names().for_each(|name| expect(name, "compat", &["kept up", "ignored"]));
    }
    for flag in IncompatFeatures::all().iter() {
        let mount = match flag {
            _ if !INCOMPAT_READ.contains(flag) => "refused",
            _ if INCOMPAT_READ_ONLY.contains(flag) => "read only",
            _ => "written",
        };
        flag.names().for_each(|name| expect(name, "incompat", &[mount]));
    }
    for flag in RoCompatFeatures::all().iter() {
        let mount = if RO_COMPAT_WRITE.contains(flag) { "written" } else { "read only" };
        flag.names().for_each(|name| expect(name, "ro_compat", &[mount]));
    }
    assert!(table.is_empty(), "features that do not exist: {:?}", table.keys());
}

/// Mounts a disk with these bits; for writing or not.
fn mount_with(bits: impl Fn(&mut Superblock), read_only: bool) -> Result<(), Error> {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Mkfs::new().format(&*device).expect("a disk");
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("a superblock");
    let mut superblock = Superblock::parse(&bytes).expect("a superblock");
    bits(&mut superblock);
    superblock.update_checksum();
    device.write_at(1024, superblock.as_bytes()).expect("a superblock");
    Mount::new().read_only(read_only).open_device(device).map(drop)
}

#[test]
fn an_unknown_bit_is_treated_as_its_word_says() {
    const BIT: u32 = 0x4000_0000;
    let compat = |sb: &mut Superblock| sb.set_s_feature_compat(sb.s_feature_compat() | BIT);
    let incompat = |sb: &mut Superblock| sb.set_s_feature_incompat(sb.s_feature_incompat() | BIT);
    let ro_compat = |sb: &mut Superblock| sb.set_s_feature_ro_compat(sb.s_feature_ro_compat() | BIT);
    assert!(mount_with(compat, false).is_ok());
    assert!(mount_with(ro_compat, true).is_ok());
    let said = |result: Result<(), Error>| result.expect_err("refused").to_string();
    assert!(said(mount_with(ro_compat, false)).contains("FEATURE_R30"));
    assert!(said(mount_with(incompat, true)).contains("FEATURE_I30"));
}
