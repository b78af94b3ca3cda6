//! Disks that Extant grew and shrank grow further while a kernel has them mounted, and the other way round.
//!
//! The kernel is one in a guest, since many hosts refuse to change the size of a mounted disk. After each turn e2fsck finds nothing, and
//! the tree is what it was; the kernel also reads all content before and after each of its steps.

use std::path::Path;

use extant::ShrinkTo;
use extant_testing::{Guest, Setup};

use crate::disk::{Image, MIB};
use crate::tree::{Census, census, difference, small};

/// Arguments of mke2fs, and sizes in MiB: of mke2fs, then of Extant and of the kernel in turn.
const CASES: &[(&[&str], [u64; 6])] = &[
    (&["-b1024"], [16, 60, 200, 90, 300, 500]),
    (&["-b4096", "-i65536"], [16, 100, 1000, 700, 40 << 10, 80 << 10]),
    (&["-b1024", "-Ometa_bg,^resize_inode"], [16, 60, 200, 90, 300, 2000]),
    (&["-b4096", "-O^64bit"], [16, 300, 3000, 200, 700, 9000]),
    (&["-b1024", "-O^flex_bg"], [16, 60, 200, 90, 300, 500]),
    (&["-b4096", "-O^resize_inode"], [16, 300, 20 << 10, 200, 700, 9000]),
    (&["-b1024", "-O^metadata_csum,uninit_bg"], [20, 60, 200, 90, 300, 500]),
    (&["-b1024", "-O^metadata_csum,^uninit_bg,^64bit,^extents"], [20, 60, 120, 70, 130, 200]),
    (&["-b4096", "-Eresize=400000"], [24, 300, 4000, 200, 700, 9000]),
    (&["-b2048", "-I512", "-Oinline_data,orphan_file,fast_commit"], [24, 300, 4000, 200, 700, 2000]),
    (&["-b4096", "-Ometa_bg,^resize_inode,metadata_csum_seed", "-G64"], [24, 300, 4000, 200, 700, 9000]),
    (&["-b4096", "-N160", "-G256"], [32, 50 << 10, 1 << 20, 100 << 10, 2 << 20, 4 << 20]),
    (&["-b4096", "-N160", "-O^resize_inode"], [32, 50 << 10, 600 << 10, 1 << 20, 3 << 20, 6 << 20]),
];

const SETUP: Setup<'_> = Setup {
    programs: &["resize2fs"],
    modules: &[],
    files: &[(
        "grow",
        r#"#!/bin/busybox sh
# grow NUMBER DEVICE SIZE...
number=$1 device=$2
shift 2
said() { echo "disk $number: $*"; }
sums() { (cd /mnt && find . -type f ! -path './kernel/*' | sort | xargs md5sum | md5sum); }
mount -t ext4 $device /mnt || { said failed: mount; exit; }
before=$(sums)
[ "$(find /mnt -type f | wc -l)" -gt 50 ] && md5sum /grow >/dev/null || said failed: no sums
mkdir -p /mnt/kernel
for size; do
    what=$(resize2fs $device $size 2>&1) || said failed: resize2fs $what
    [ "$(sums)" = "$before" ] || said failed: other content after $size
    dd if=/dev/urandom of=/mnt/kernel/$size bs=1k count=700 2>/dev/null || said failed: no write
done
umount /mnt || said failed: umount
said done
"#,
    )],
    commands: "mkdir -p /etc /sys; mount -t sysfs sys /sys; ln -s /proc/mounts /etc/mtab; sh $(ls /dev/vd* | tail -n 1)\n",
};

/// A disk on its way.
struct Disk {
    image: Image,
    arguments: &'static [&'static str],
    sizes: [u64; 6],
    tree: Census,
}

impl Disk {
    fn made((arguments, sizes): (&'static [&'static str], [u64; 6])) -> Option<Self> {
        let image = Image::made(sizes[0] * MIB, arguments)?;
        let fs = image.mount();
        small(&fs, sizes[1]);
        fs.create_dir("/kernel").expect("a directory");
        let tree = of_ours(&census(&fs).expect("a census"));
        fs.unmount().expect("unmount");
        Some(Self { image, arguments, sizes, tree })
    }

    /// Extant gives it another size.
    fn resize(&self, to: ShrinkTo) {
        let case = format!("{:?} to {to:?}", self.arguments);
        let blocks = |image: &Image| image.mount().superblock().blocks_count();
        let before = blocks(&self.image);
        match to {
            ShrinkTo::Bytes(bytes)
                if bytes > std::fs::metadata(&self.image.path).expect("the image").len() =>
            {
                self.image.grow(bytes).unwrap_or_else(|e| panic!("{case}: {e}"));
                assert!(blocks(&self.image) > before, "{case}");
            }
            _ => {
                let shrunk = self.image.shrink(to).unwrap_or_else(|e| panic!("{case}: {e}"));
                self.image.cut(&shrunk);
                assert!(blocks(&self.image) < before, "{case}");
            }
        }
        self.assert_whole(&case);
    }

    fn assert_whole(&self, case: &str) {
        self.image.assert_clean(case);
        let fs = self.image.mount();
        let other = difference(&self.tree, &of_ours(&census(&fs).expect("a census")));
        assert!(other.is_none(), "{case}: {other:?}");
        fs.unmount().expect("unmount");
    }
}

/// Without what the kernel wrote.
fn of_ours(tree: &Census) -> Census {
    tree.iter().filter(|(path, ..)| !path.starts_with("/kernel")).cloned().collect()
}

/// The kernel grows each disk to these sizes in MiB.
fn grow_by_kernel(guest: &Guest, disks: &[&Disk], sizes: impl Fn(&Disk) -> Vec<u64>) {
    let mut script = String::new();
    for (number, (disk, letter)) in disks.iter().zip('a'..).enumerate() {
        let sizes = sizes(disk);
        let file = std::fs::OpenOptions::new().write(true).open(&disk.image.path).expect("the image");
        file.set_len(sizes.last().expect("a size") * MIB).expect("a length");
        let sizes: Vec<String> = sizes.iter().map(|size| format!("{size}M")).collect();
        script += &format!("sh /grow {number} /dev/vd{letter} {}\n", sizes.join(" "));
    }
    let images: Vec<&Path> = disks.iter().map(|disk| disk.image.path.as_path()).collect();
    let said = guest.run(&images, &script);
    assert!(!said.contains("failed:"), "{said}");
    for (number, disk) in disks.iter().enumerate() {
        let case = format!("{:?}, grown by the kernel to {:?} MiB", disk.arguments, sizes(disk));
        assert!(said.contains(&format!("disk {number}: done")), "{case}: {said}");
        let superblock = disk.image.mount().superblock();
        let bytes = superblock.blocks_count() * u64::from(superblock.block_size());
        let asked = sizes(disk).last().expect("a size") * MIB;
        assert!(bytes > asked / 100 * 99, "{case}: {bytes} bytes: {said}");
        disk.assert_whole(&case);
    }
}

#[test]
fn mounted_disks_grow_by_the_kernel_after_extant_and_by_extant_after_the_kernel() {
    let Some(guest) = Guest::find(&SETUP) else { return };
    let Some(disks) = CASES.iter().map(|case| Disk::made(*case)).collect::<Option<Vec<_>>>() else { return };
    let all: Vec<&Disk> = disks.iter().collect();
    // The kernel has every other disk first.
    let first: Vec<&Disk> = all.iter().copied().step_by(2).collect();
    grow_by_kernel(&guest, &first, |disk| vec![disk.sizes[0] * 5 / 4, disk.sizes[0] * 3 / 2]);
    for disk in &all {
        disk.resize(ShrinkTo::Bytes(disk.sizes[1] * MIB));
        disk.resize(ShrinkTo::Minimum);
    }
    grow_by_kernel(&guest, &all, |disk| vec![disk.sizes[1], disk.sizes[2]]);
    for disk in &all {
        disk.resize(ShrinkTo::Bytes(disk.sizes[3] * MIB));
        disk.resize(ShrinkTo::Bytes(disk.sizes[4] * MIB));
    }
    grow_by_kernel(&guest, &all, |disk| vec![disk.sizes[5]]);
    all.iter().for_each(|disk| disk.resize(ShrinkTo::Minimum));
    println!("{} disks, in three turns of the kernel and three of Extant", all.len());
}
