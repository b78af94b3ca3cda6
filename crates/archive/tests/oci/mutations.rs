//! Mutated container images whose digests are right: no panic, no hang, nothing outside of the target, a consistent disk.
//!
//! Layers get bytes of their headers changed, members swapped, repeated and renamed to whiteouts; packed ones are damaged or cut
//! off; documents get bytes changed. `EXTANT_MUTATIONS_FROM=N` begins with another.

use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_archive::oci::{Image, ImageChoice, ReadLayers};
use extant_archive::{Census, DiskFormat, Extent, Import, Manner, Result, Source, pour_concurrently};
use extant_block::MemoryDevice;
use extant_testing::Random;
use serde_json::json;

use crate::build::{archive, member, record, seal};
use crate::layout::{CONFIG, LAYER, Layout, MANIFEST, digest, gzip, link, zstd};

const COUNT: u64 = 1000;

fn layers() -> [Vec<Vec<u8>>; 3] {
    [
        vec![
            member(b"d/", b'5', b""),
            member(b"d/a", b'0', &[b'a'; 700]),
            member(b"d/e/f", b'0', b"f"),
            link(b"l", b'2', b"d/e"),
            link(b"h", b'1', b"d/a"),
        ],
        vec![
            member(b"d/.wh.a", b'0', b""),
            member(b"l/g", b'0', b"g"),
            member(b"x", b'x', &record("SCHILY.xattr.user.note", b"value")),
            link(b"k", b'1', b"h"),
            member(b"null", b'3', b""),
        ],
        vec![
            member(b"d/.wh..wh..opq", b'0', b""),
            member(b"h", b'0', b"new"),
            member(b"d/a", b'5', b""),
            member(b"l", b'5', b""),
        ],
    ]
}

const NAMES: [&[u8]; 12] = [
    b"d",
    b"d/a",
    b"h",
    b"l",
    b".wh.d",
    b".wh.h",
    b"d/.wh..wh..opq",
    b"l/.wh.f",
    b"d/e",
    b"..",
    b".wh..wh.x/y",
    b"h/x",
];

fn mutate_layers(layers: &mut [Vec<Vec<u8>>], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let layer = random.index(layers.len());
        let members = &mut layers[layer];
        let chosen = random.index(members.len());
        match random.below(6) {
            0 => members.swap(chosen, 0),
            1 => members.push(members[chosen].clone()),
            2 => {
                let at = random.index(512);
                members[chosen][at] ^= 1 << random.below(8);
            }
            3 => members[chosen][156] = b"0123456"[random.index(7)],
            field => {
                let (at, name) = (if field == 4 { 0 } else { 157 }, NAMES[random.index(NAMES.len())]);
                members[chosen][at..at + 100].fill(0);
                members[chosen][at..at + name.len()].copy_from_slice(name);
            }
        }
        seal(&mut members[chosen][..512]);
    }
}

fn mutate_text(text: String, random: &mut Random) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    if random.below(4) == 0 {
        let at = random.index(bytes.len());
        bytes[at] = b"0129\"{}[],:x\\\x80"[random.index(14)];
    }
    bytes
}

/// A layout with right digests, whatever is in it.
fn mutated(random: &mut Random) -> Layout {
    let layout = Layout::new();
    let mut layers = layers();
    mutate_layers(&mut layers, random);
    let mut archives: Vec<_> = layers.iter().map(|members| archive(members)).collect();
    let diff_ids: Vec<_> = archives.iter().map(|archive| digest(archive)).collect();
    let blobs = archives.iter_mut().map(|archive| {
        let mut packed = match random.below(3) {
            0 => archive.clone(),
            1 => gzip(archive),
            _ => zstd(archive),
        };
        if random.below(20) == 0 {
            packed.truncate(random.index(packed.len()));
        } else if random.below(20) == 0 {
            let at = random.index(packed.len());
            packed[at] ^= 1 << random.below(8);
        }
        layout.blob(LAYER, &packed)
    });
    let blobs: Vec<_> = blobs.collect();
    let config = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let config = layout.blob(CONFIG, &mutate_text(config.to_string(), random));
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": blobs });
    let manifest = layout.blob(MANIFEST, &mutate_text(manifest.to_string(), random));
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    std::fs::write(layout.path().join("index.json"), mutate_text(index.to_string(), random)).unwrap();
    layout
}

fn empty_disk() -> Filesystem {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Mkfs::new().format(&*device).unwrap();
    Mount::new().background(false).open_device(device).unwrap()
}

fn try_image(layout: &Layout) -> Result<()> {
    let options = ReadLayers { directory: layout.path(), layer_bytes_max: 1 << 20, progress: &|_| {} };
    let image = Image::in_directory(layout.path(), &ImageChoice::default(), &options)?;
    let mut image = Arc::new(image.expect("an image"));
    let mut census = Census::new(DiskFormat { block_size: 4096, cluster_size: 4096, inode_size: 256 });
    image.pour(&mut census, Extent::Entries)?;
    let fs = empty_disk();
    fs.create_dir("/target").unwrap();
    let mut import = Import::new(&fs, "/target", Manner::Unpack, None)?;
    let poured = pour_concurrently(image, &mut import, Extent::Everything);
    drop(import);
    fs.sync().unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 2, "the image has left its directory");
    assert_eq!(fs.check(&mut |_| {}).unwrap(), []);
    poured
}

#[test]
fn mutated_images_are_read_or_refused() {
    let from = std::env::var("EXTANT_MUTATIONS_FROM").map_or(0, |text| text.parse().expect("a number"));
    let mut served = 0;
    for number in from..from + COUNT {
        let layout = mutated(&mut Random::new(number));
        let tried = std::panic::catch_unwind(|| try_image(&layout).is_ok());
        served += u64::from(tried.unwrap_or_else(|_| panic!("EXTANT_MUTATIONS_FROM={number}")));
    }
    println!("{served} of {COUNT} images were read");
    // Damage to one part would otherwise hide what the others do.
    assert!(served > COUNT / 10, "only {served} of {COUNT} images were read whole");
}
