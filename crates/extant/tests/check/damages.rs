//! One damage at a time, made by `debugfs`, which keeps checksums right.

use std::fs;

use extant_testing::{has_e2fsprogs, scratch};

use crate::tools::{debugfs, make_disk};
use crate::{Agreement, compare};

/// Damages of one disk, each a list of commands.
const DAMAGES: &[&[&str]] = &[
    // Inodes.
    &["sif /big links_count 5"],
    &["sif /big links_count 1"],
    &["sif /big mode 0"],
    &["sif /big mode 0170644"],
    &["sif /big size 10"],
    &["sif /big size 0xffffffffffff"],
    &["sif /big blocks 2"],
    &["sif /big blocks_hi 1"],
    &["sif /big dtime 1700000000"],
    &["sif /big faddr 1"],
    &["sif /big file_acl 7"],
    &["sif /big file_acl 16777000"],
    &["sif /big flags 0"],
    &["sif /big flags 0x81000"],
    &["sif /big flags 0x82000"],
    &["sif /big flags 0x10080000"],
    &["sif /big flags 0x40080000"],
    &["sif /big extra_isize 3"],
    &["sif /big extra_isize 200"],
    &["sif /big generation 77"],
    &["sif /sparse generation 77"],
    &["sif /big block[0] 0"],
    &["sif /big block[1] 5"],
    &["sif /big block[5] 1"],
    &["sif /big block[5] 16777000"],
    &["sif /sub mode 0100755"],
    &["sif /sub links_count 9"],
    &["sif /sub links_count 1"],
    &["sif /sub links_count 0"],
    &["sif /sub size 0"],
    &["sif /sub size 1000"],
    &["sif /sub size 4096000"],
    &["sif /sub generation 5"],
    &["sif /sub flags 0"],
    &["sif /sub flags 0x81000"],
    &["sif /many flags 0x80000"],
    &["sif /many generation 5"],
    &["sif /many size 3072"],
    &["sif /many links_count 1"],
    &["sif /pipe size 5"],
    &["sif /pipe flags 0x10"],
    &["sif /pipe flags 0x80000"],
    &["sif /dev flags 0x20"],
    &["sif /dev blocks 8"],
    &["sif /short size 3"],
    &["sif /short size 0"],
    &["sif /short size 70"],
    &["sif /short flags 0x80000"],
    &["sif /short flags 0x10"],
    &["sif /long size 3"],
    &["sif /long size 100"],
    &["sif /long size 5000"],
    &["sif / mode 0100755"],
    &["sif / dtime 5"],
    &["sif / links_count 2"],
    &["sif /attributes file_acl 0"],
    &["sif /attributes blocks 2"],
    // Inodes with a purpose.
    &["sif <1> mode 0100644"],
    &["sif <5> mode 040755"],
    &["sif <6> mode 0100644"],
    &["sif <7> mode 0"],
    &["sif <7> links_count 0"],
    &["sif <7> block[0] 99"],
    &["sif <7> block[13] 99"],
    &["sif <7> blocks 2"],
    &["sif <8> mode 040755"],
    &["sif <8> blocks 2"],
    &["sif <8> block[1] 0"],
    &["sif <8> links_count 0"],
    &["clri <2>"],
    &["clri <7>"],
    &["clri <8>"],
    &["clri <11>"],
    &["clri /big"],
    &["clri /sub"],
    &["clri /many"],
    &["clri /short"],
    // Names.
    &["unlink /big"],
    &["unlink /sub"],
    &["unlink /sub/deep"],
    &["unlink /short"],
    &["unlink /lost+found"],
    &["kill_file /big"],
    &["ln /big /again"],
    &["ln /sub /again"],
    &["ln / /again"],
    &["ln <7> /again"],
    &["ln <8> /again"],
    &["ln <1000> /again"],
    &["ln /sub /sub/deep/again"],
    &["unlink /sub/deep", "ln /sub /sub/again"],
    &["cd /sub", "unlink /sub"],
    // Bitmaps.
    &["freeb 1000 2000"],
    &["setb 15000 3"],
    &["freei /big"],
    &["freei <8>"],
    &["seti <2000>"],
    &["freei <2>"],
    // Descriptors.
    &["set_bg 0 free_blocks_count 5"],
    &["set_bg 0 free_inodes_count 5"],
    &["set_bg 0 used_dirs_count 50"],
    &["set_bg 0 itable_unused 3"],
    &["set_bg 1 itable_unused 3", "set_bg 1 checksum calc"],
    &["set_bg 0 itable_unused 60000", "set_bg 0 checksum calc"],
    &["set_bg 0 itable_unused 2040", "set_bg 0 checksum calc"],
    &["set_bg 0 flags 0", "set_bg 0 checksum calc"],
    &["set_bg 0 flags 1", "set_bg 0 checksum calc"],
    &["set_bg 0 flags 2", "set_bg 0 checksum calc"],
    &["set_bg 0 flags 7", "set_bg 0 checksum calc"],
    &["set_bg 1 flags 7", "set_bg 1 checksum calc"],
    &["set_bg 0 checksum 0x1234"],
    &["set_bg 0 block_bitmap 77", "set_bg 0 checksum calc"],
    &["set_bg 0 inode_bitmap 77", "set_bg 0 checksum calc"],
    &["set_bg 0 inode_table 77", "set_bg 0 checksum calc"],
    &["set_bg 1 inode_table 77", "set_bg 1 checksum calc"],
    &["set_bg 1 inode_table 99999999", "set_bg 1 checksum calc"],
    &["set_bg 0 block_bitmap_csum 5", "set_bg 0 checksum calc"],
    &["set_bg 0 inode_bitmap_csum 5", "set_bg 0 checksum calc"],
    // The superblock.
    &["ssv free_blocks_count 5"],
    &["ssv free_inodes_count 5"],
    &["ssv blocks_count 99999999"],
    &["ssv blocks_count 16000"],
    &["ssv inodes_count 99"],
    &["ssv r_blocks_count 12000"],
    &["ssv first_ino 5"],
    &["ssv first_ino 40"],
    &["ssv first_data_block 0"],
    &["ssv log_block_size 9"],
    &["ssv log_block_size 1"],
    &["ssv log_cluster_size 3"],
    &["ssv inode_size 100"],
    &["ssv inode_size 512"],
    &["ssv desc_size 32"],
    &["ssv blocks_per_group 4096"],
    &["ssv inodes_per_group 1024"],
    &["ssv reserved_gdt_blocks 9999"],
    &["ssv reserved_gdt_blocks 3"],
    &["ssv magic 0"],
    &["ssv checksum 5"],
    &["ssv checksum_type 9"],
    &["ssv journal_inum 0"],
    &["ssv journal_inum 12"],
    &["ssv last_orphan 3"],
    &["ssv last_orphan 99999"],
    &["ssv mtime 99999999999"],
    &["ssv wtime 4200000000"],
    &["ssv uuid 11111111-2222-3333-4444-555555555555"],
    &["ssv uuid null"],
    &["ssv hash_seed 11111111-2222-3333-4444-555555555555"],
    &["ssv flags 1"],
    &["ssv flags 2"],
    &["ssv state 2"],
    &["ssv block_group_nr 3"],
    &["ssv log_groups_per_flex 40"],
    &["ssv log_groups_per_flex 3"],
    &["ssv feature_compat 0"],
    &["ssv rev_level 0"],
    &["ssv rev_level 9"],
    &["ssv creator_os 3"],
    &["feature -has_journal"],
    &["feature -resize_inode"],
    &["feature -dir_index"],
    &["feature -ext_attr"],
    &["feature -filetype"],
    &["feature -extent"],
    &["feature -64bit"],
    &["feature -flex_bg"],
    &["feature -sparse_super"],
    &["feature -large_file"],
    &["feature -huge_file"],
    &["feature -dir_nlink"],
    &["feature -extra_isize"],
    &["feature -metadata_csum"],
    &["feature needs_recovery"],
    &["feature meta_bg"],
    &["feature uninit_bg"],
    &["feature metadata_csum_seed"],
    &["feature sparse_super2"],
    &["feature orphan_file"],
    &["feature large_dir"],
    // The journal's superblock and the attributes.
    &["zap_block -f /sparse 0"],
    &["zap_block -f <8> 0"],
    &["zap_block -f /sub 0"],
    &["zap_block -f /many 0"],
    &["zap_block -f /many 1"],
    &["zap_block -f /long 0"],
    &["punch /sub 0 0"],
    &["punch /many 2 2"],
    &["fallocate /sub 3 4"],
    &["copy_inode /big /sub/inner"],
    &["copy_inode /attributes /sub/inner"],
];

/// Damages that `e2fsck` does not mind, and why they are findings here.
const STRICTER: &[(&str, &str)] = &[
    ("sif <8> links_count 0", "the kernel refuses a journal without links"),
    ("ssv last_orphan 3", "`-n` does not read the list, but every mount does"),
    ("ssv last_orphan 99999", "`-n` does not read the list, but every mount does"),
];

fn compare_all(options: &[&str]) {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let base = make_disk(dir.path(), options, 16 << 10).expect("a disk");
    let (agreement, said) = compare(&base);
    assert_eq!(agreement, Agreement::BothClean, "{said}");
    let image = dir.path().join("damaged");
    let mut differences = Vec::new();
    let mut damaged = 0;
    for commands in DAMAGES {
        fs::copy(&base, &image).expect("a copy");
        for command in *commands {
            debugfs(&image, command);
        }
        let (agreement, said) = compare(&image);
        let expected = match agreement {
            Agreement::BothClean => true,
            Agreement::BothDamaged => {
                damaged += 1;
                true
            }
            Agreement::Stricter => STRICTER.iter().any(|(command, _)| *command == commands.join("; ")),
            Agreement::Laxer => false,
        };
        if !expected {
            differences.push(format!("{commands:?}: {agreement:?}\n{said}"));
        }
    }
    println!("{damaged} of {} damages found by both", DAMAGES.len());
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn every_damage_is_found_on_a_disk_with_checksums() {
    compare_all(&["-b", "1024"]);
}

#[test]
fn every_damage_is_found_on_a_disk_without_checksums() {
    compare_all(&["-b", "1024", "-O", "^metadata_csum,uninit_bg"]);
}

#[test]
fn every_damage_is_found_on_a_disk_of_block_maps() {
    compare_all(&["-b", "4096", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"]);
}
