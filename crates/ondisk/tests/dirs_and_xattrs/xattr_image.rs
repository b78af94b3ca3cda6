//! Extended attributes of real disks: the kernel's read by Extant, Extant's read by the kernel and
//! `e2fsck`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use extant_ondisk::xattr::{
    self, Xattr, XattrValue, full_name, parse_block, parse_ibody, verify_block_hashes, write_block,
    write_ibody,
};
use extant_ondisk::{Checksums, InodeNumber};

use crate::image::{Image, run};
use crate::rng::Rng;

type Attributes = BTreeMap<String, Vec<u8>>;
/// Attributes by the name of the file.
type Files = BTreeMap<String, Attributes>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The format that `setfattr --restore` reads and `getfattr` writes.
fn dump(files: &Files) -> String {
    let one = |(file, list): (&String, &Attributes)| {
        let lines: String = list.iter().map(|(name, value)| format!("{name}=0x{}\n", hex(value))).collect();
        format!("# file: {file}\n{lines}\n")
    };
    files.iter().map(one).collect()
}

fn random_files(rng: &mut Rng, large: &Range<usize>) -> Files {
    let mut files = Files::new();
    for number in 0..60 {
        let mut list = Attributes::new();
        let mut room = 3000_usize;
        for _ in 0..1 + rng.below(9) {
            let prefix = ["user.", "trusted.", "security."][rng.below(3)];
            let name = format!("{prefix}n{}{}", rng.below(1000), "x".repeat(rng.below(20)));
            let is_large = rng.below(3) == 0;
            let len = if is_large { large.start + rng.below(large.len()) } else { 1 + rng.below(30) };
            // A value longer than a block goes into an inode of its own.
            room = room.saturating_sub(if len > 1024 { 60 } else { len + 60 });
            if room > 0 {
                list.insert(name, rng.bytes(len));
            }
        }
        // Every tenth file is as the one before it, so that the kernel shares their block.
        if number % 10 == 9 {
            list = files.last_key_value().unwrap().1.clone();
        }
        files.insert(format!("f{number:02}"), list);
    }
    files
}

/// The attributes that the kernel reports for the files.
fn kernel_dump(root: &Path) -> String {
    let script = format!("cd {} && getfattr -d -m - -e hex f*", root.display());
    let text = run("sh", &["-c", &script]);
    // Names in order, whichever order the kernel lists them in.
    let mut parts: Vec<String> = text
        .split("# file: ")
        .map(|part| {
            let mut lines: Vec<&str> = part.lines().filter(|l| !l.is_empty()).collect();
            lines.get_mut(1..).unwrap_or_default().sort_unstable();
            lines.join("\n")
        })
        .collect();
    parts.sort_unstable();
    parts.join("\n")
}

fn by_name(list: &[Xattr]) -> Attributes {
    let inline = list.iter().filter_map(|x| Some((x, x.inline_value()?)));
    inline
        .map(|(x, value)| {
            (String::from_utf8(full_name(x.name_index, &x.name).unwrap()).unwrap(), value.to_vec())
        })
        .collect()
}

/// Reads the attributes of a file, checks them, and writes them anew in another arrangement.
fn rewrite(image: &Image, ino: InodeNumber) -> Vec<Xattr> {
    let sums = Checksums::new(&image.superblock());
    let mut inode = image.inode(ino);
    assert!(sums.verify_inode(ino, &inode));
    let mut all = vec![];
    if let Some(region) = inode.xattr_region_mut() {
        let mut list = parse_ibody(region).unwrap();
        all.extend(list.clone());
        list.reverse();
        write_ibody(region, &list).unwrap();
    }
    image.write_inode(ino, &mut inode);
    let place = inode.file_acl();
    if place.0 != 0 {
        let theirs = image.read_block(place);
        assert!(sums.verify_xattr_block(place, &theirs));
        assert!(verify_block_hashes(&theirs).unwrap());
        let list = parse_block(&theirs).unwrap();
        let mut ours = vec![0; theirs.len()];
        write_block(&mut ours, &list, xattr::refcount(&theirs).unwrap()).unwrap();
        assert_eq!(ours[..16], theirs[..16], "header and hash");
        assert_eq!(parse_block(&ours).unwrap(), list, "the kernel's order is ours");
        sums.update_xattr_block(place, &mut ours);
        image.write_block(place, &ours);
        all.extend(list);
    }
    all
}

/// Some attributes have a value of `large` bytes.
fn round_trip(seed: u64, args: &[&str], large: Range<usize>) {
    let mut rng = Rng::new(seed);
    let Some(image) = Image::mkfs(32, args) else {
        return;
    };
    let files = random_files(&mut rng, &large);
    let (inodes, before) = image.mounted(|root| {
        let list = root.with_extension("dump");
        std::fs::write(&list, dump(&files)).unwrap();
        files.keys().for_each(|name| std::fs::write(root.join(name), "").unwrap());
        run("sh", &["-c", &format!("cd {} && setfattr --restore={}", root.display(), list.display())]);
        let inode = |name: &String| InodeNumber(root.join(name).metadata().unwrap().ino() as u32);
        (files.keys().map(|name| (name, inode(name))).collect::<Vec<_>>(), kernel_dump(root))
    });
    image.assert_clean();
    let (mut shared, mut in_inodes) = (0, 0);
    for &(name, ino) in &inodes {
        let place = image.inode(ino).file_acl();
        shared += usize::from(place.0 != 0 && xattr::refcount(&image.read_block(place)).unwrap() > 1);
        let list = rewrite(&image, ino);
        let mut expected = files[name].clone();
        for apart in list.iter().filter(|x| matches!(x.value, XattrValue::Inode { .. })) {
            in_inodes += 1;
            expected.remove(std::str::from_utf8(&full_name(apart.name_index, &apart.name).unwrap()).unwrap());
        }
        assert_eq!(by_name(&list), expected, "{name}");
    }
    assert!(shared > 0, "the kernel shared a block");
    assert_eq!(in_inodes > 0, args.contains(&"ea_inode"), "values in inodes of their own");
    image.assert_clean();
    assert_eq!(image.mounted(kernel_dump), before);
}

#[test]
fn attributes_of_4k_blocks_go_both_ways() {
    round_trip(61, &["-b", "4096"], 1..400);
}

#[test]
fn attributes_of_1k_blocks_and_small_inodes_go_both_ways() {
    round_trip(62, &["-b", "1024", "-I", "128", "-O", "^metadata_csum"], 1..20);
}

#[test]
fn attributes_of_large_inodes_go_both_ways() {
    round_trip(63, &["-b", "4096", "-I", "1024"], 1..900);
}

#[test]
fn values_in_inodes_of_their_own_keep_their_reference() {
    round_trip(64, &["-b", "1024", "-O", "ea_inode"], 1100..1600);
}
