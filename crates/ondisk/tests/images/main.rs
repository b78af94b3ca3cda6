//! The formats against disks that others made: `mke2fs` and the kernel write, `dumpe2fs` and `debugfs` say what
//! is on the disk, and this crate must say the same. Tests whose tools are missing print "skipped".

mod disk;
mod files;
mod groups;
#[cfg(target_os = "linux")]
mod kernel;
mod sums;
mod tools;

use disk::Disk;
use tools::Image;

/// Feature sets and sizes: the name of the test and the options of `mke2fs`.
macro_rules! disks {
    ($($name:ident: $($option:literal)*;)*) => {$(
        #[test]
        fn $name() {
            check(&[$($option),*]);
        }
    )*};
}

disks! {
    ext4_as_made_by_default: "-t" "ext4" "64M";
    ext4_with_blocks_of_1k: "-t" "ext4" "-b" "1024" "64M";
    ext4_with_blocks_of_2k: "-t" "ext4" "-b" "2048" "64M";
    ext4_with_blocks_of_64k: "-t" "ext4" "-b" "65536" "256M";
    ext2: "-t" "ext2" "-b" "1024" "200M";
    ext3: "-t" "ext3" "-b" "1024" "200M";
    revision_0: "-r" "0" "-t" "ext2" "-b" "1024" "16M";
    inodes_of_128_bytes: "-t" "ext4" "-I" "128" "32M";
    inodes_of_512_bytes: "-t" "ext4" "-I" "512" "-b" "1024" "32M";
    descriptors_of_32_bytes_with_crc32c: "-t" "ext4" "-O" "^64bit" "-b" "1024" "64M";
    descriptors_of_32_bytes_with_crc16: "-t" "ext4" "-O" "^64bit,^metadata_csum,uninit_bg" "-b" "1024" "64M";
    descriptors_of_64_bytes_with_crc16: "-t" "ext4" "-O" "64bit,^metadata_csum,uninit_bg" "-b" "1024" "64M";
    descriptors_of_128_bytes: "-t" "ext4" "-E" "desc_size=128" "-b" "1024" "64M";
    no_checksums: "-t" "ext4" "-O" "^metadata_csum,^uninit_bg" "-b" "1024" "64M";
    stored_checksum_seed: "-t" "ext4" "-O" "metadata_csum_seed" "-b" "1024" "64M";
    meta_bg: "-t" "ext4" "-O" "meta_bg,^resize_inode" "-b" "1024" "200M";
    meta_bg_with_descriptors_of_32_bytes: "-t" "ext4" "-O" "meta_bg,^resize_inode,^64bit" "-b" "1024" "400M";
    sparse_super2: "-t" "ext4" "-O" "sparse_super2,^resize_inode" "-b" "1024" "100M";
    every_group_with_a_super: "-t" "ext4" "-O" "^sparse_super,^resize_inode" "-b" "1024" "100M";
    no_flex_groups: "-t" "ext4" "-O" "^flex_bg" "-b" "1024" "64M";
    flex_groups_of_4: "-t" "ext4" "-G" "4" "-b" "1024" "100M";
    small_groups: "-t" "ext4" "-g" "1024" "-b" "1024" "60M";
    clusters_of_16k: "-t" "ext4" "-O" "bigalloc" "-C" "16384" "256M";
    clusters_of_16k_with_blocks_of_1k: "-t" "ext4" "-O" "bigalloc" "-b" "1024" "-C" "16384" "256M";
    clusters_of_2k_with_blocks_of_1k: "-t" "ext4" "-O" "bigalloc" "-b" "1024" "-C" "2048" "64M";
    orphan_file_and_mmp: "-t" "ext4" "-O" "orphan_file,mmp" "-b" "1024" "64M";
    hidden_quota_inodes: "-t" "ext4" "-O" "quota,project" "-b" "1024" "64M";
    odd_features: "-t" "ext4" "-O" "large_dir,ea_inode,verity,stable_inodes,encrypt,fast_commit" "64M";
    casefold: "-t" "ext4" "-O" "casefold" "-b" "1024" "64M";
    inline_data: "-t" "ext4" "-O" "inline_data" "-b" "1024" "64M";
    no_journal: "-t" "ext4" "-O" "^has_journal" "-b" "4096" "40M";
    many_groups: "-t" "ext4" "-b" "4096" "-N" "70000" "300G";
}

fn check(options: &[&str]) {
    let Some(image) = Image::make(options) else {
        println!("skipped: mke2fs {options:?} did not run");
        return;
    };
    let disk = Disk::open(&image);
    groups::compare_superblock(&disk, &image);
    groups::compare_groups(&disk, &image);
    groups::count_free_bits(&disk);
    sums::check_superblock(&disk);
    sums::check_descriptors(&disk);
    sums::check_bitmaps(&disk);
    sums::check_inodes(&disk);
    sums::check_special_blocks(&disk);
    files::compare(&disk, &image);
    files::search_agrees_with_the_whole_node(&disk);
}
