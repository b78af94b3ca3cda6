//! Logical volumes are read as LVM reads them, and hostile metadata does no harm.

#[path = "common/lvm_image.rs"]
mod lvm_image;

use extant_block::{BlockDevice, LogicalVolume, MemoryDevice, Segment, Segments, VolumeMapping};
use extant_testing::Random;
use lvm_image::{linear, metadata, sum_area, sum_label, volume, write_physical_volume};

const MIB: u64 = 1 << 20;
const UUIDS: [&str; 2] = ["FirstF-aaaa-bbbb-cccc-dddd-eeee-ffffff", "Second-aaaa-bbbb-cccc-dddd-eeee-ffffff"];
/// Two physical volumes on a device.
const PLACES: [Segment; 2] =
    [Segment { offset: 3 * MIB, bytes: 16 * MIB }, Segment { offset: 20 * MIB + 512, bytes: 8 * MIB }];
/// One less on the first than it has room for.
const EXTENTS: [u64; 2] = [14, 7];
const WRITABLE: &str = "\"READ\", \"WRITE\", \"VISIBLE\"";

/// A device with both, with this text, which begins so far in its area.
fn device(text: &str, text_at: usize) -> Vec<u8> {
    let mut device = vec![0; 32 * MIB as usize];
    for (uuid, place) in UUIDS.iter().zip(PLACES) {
        let volume = &mut device[place.offset as usize..][..place.bytes as usize];
        write_physical_volume(volume, uuid, text, text_at);
    }
    device
}

fn read(bytes: &[u8]) -> Vec<LogicalVolume> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).expect("write");
    LogicalVolume::read_all(&device, &PLACES).expect("reads")
}

/// All kinds of volumes.
fn volumes() -> String {
    [
        volume("root", WRITABLE, &[("striped", 4, 2, &linear(1, 3)), ("striped", 0, 4, &linear(0, 1))]),
        volume("frozen", "\"READ\", \"VISIBLE\"", &[("striped", 0, 1, &linear(0, 0))]),
        volume("hidden", "\"READ\", \"WRITE\"", &[("striped", 0, 1, &linear(0, 0))]),
        volume(
            "wide",
            WRITABLE,
            &[("striped", 0, 4, "stripe_count = 2 stripe_size = 128 stripes = [\"pv0\", 6, \"pv1\", 0]")],
        ),
        volume("thin", WRITABLE, &[("thin", 0, 9, "thin_pool = \"pool\" transaction_id = 0 device_id = 1")]),
        volume(
            "safe",
            WRITABLE,
            &[("raid1", 0, 2, "device_count = 2 raids = [\"m0\", \"i0\", \"m1\", \"i1\"]")],
        ),
        volume("moved", WRITABLE, &[("striped", 0, 2, "stripe_count = 1 stripes = [\"pvmove0\", 0]")]),
        volume("base", WRITABLE, &[("striped", 0, 1, &linear(0, 8))]),
        volume("changes", WRITABLE, &[("striped", 0, 1, &linear(0, 9))]),
        volume(
            "snapshot0",
            "\"READ\"",
            &[("snapshot", 0, 1, "chunk_size = 8 origin = \"base\" cow_store = \"changes\"")],
        ),
        volume("long", WRITABLE, &[("striped", 0, 1, &linear(0, 14))]),
        volume("gap", WRITABLE, &[("striped", 1, 1, &linear(0, 0))]),
    ]
    .concat()
}

#[test]
fn volumes_are_where_the_metadata_says() {
    let text = metadata("vg", UUIDS, EXTENTS, &volumes());
    for text_at in [512, 4096, (64 << 10) - 100] {
        let found = read(&device(&text, text_at));
        let other = |kind: &str| VolumeMapping::Other(kind.to_owned());
        let place = |index: usize, extent: u64, count| Segment {
            offset: PLACES[index].offset + (1 + extent) * MIB,
            bytes: count * MIB,
        };
        let expected = [
            ("base", 1, other("origin of a snapshot"), false),
            ("changes", 1, other("snapshot"), false),
            ("frozen", 1, VolumeMapping::Linear(vec![place(0, 0, 1)]), true),
            ("gap", 1, VolumeMapping::Damaged, false),
            ("long", 1, VolumeMapping::Damaged, false),
            ("moved", 2, other("pvmove"), false),
            ("root", 6, VolumeMapping::Linear(vec![place(0, 1, 4), place(1, 3, 2)]), false),
            ("safe", 2, other("raid1"), false),
            ("thin", 9, other("thin"), false),
            ("wide", 4, other("striped"), false),
        ];
        let expected = expected.map(|(name, mib, mapping, is_read_only)| LogicalVolume {
            group: "vg".to_owned(),
            name: name.to_owned(),
            bytes: mib * MIB,
            mapping,
            is_read_only,
        });
        assert_eq!(found, expected, "{text_at}");
    }
}

#[test]
fn a_volume_past_the_end_of_its_physical_volume_is_damaged() {
    let mapping = |extent: u64| {
        let text = metadata(
            "vg",
            UUIDS,
            [900, 7],
            &volume("long", WRITABLE, &[("striped", 0, 1, &linear(0, extent))]),
        );
        read(&device(&text, 512)).first().expect("the volume").mapping.clone()
    };
    assert!(matches!(mapping(14), VolumeMapping::Linear(_)));
    assert_eq!(mapping(15), VolumeMapping::Damaged);
}

#[test]
fn a_physical_volume_that_is_elsewhere_is_named() {
    let text = metadata("vg", UUIDS, EXTENTS, &volumes());
    let mut bytes = device(&text, 512);
    bytes[PLACES[1].offset as usize + 512] = 0;
    let found = read(&bytes);
    let root = found.iter().find(|volume| volume.name == "root").expect("the volume");
    assert_eq!(root.mapping, VolumeMapping::Missing(UUIDS[1].to_owned()));
    let frozen = found.iter().find(|volume| volume.name == "frozen").expect("the volume");
    assert!(matches!(frozen.mapping, VolumeMapping::Linear(_)));
}

#[test]
fn the_newest_metadata_counts_and_damaged_metadata_does_not() {
    let text = metadata("vg", UUIDS, EXTENTS, &volumes());
    let newer =
        metadata("vg", UUIDS, EXTENTS, &volume("only", WRITABLE, &[("striped", 0, 1, &linear(0, 0))]))
            .replace("seqno = 3", "seqno = 10");
    for newest in [0, 1] {
        let mut bytes = device(&text, 512);
        let place = PLACES[newest];
        let range = place.offset as usize..(place.offset + place.bytes) as usize;
        write_physical_volume(&mut bytes[range.clone()], UUIDS[newest], &newer, 512);
        let names = |bytes: &[u8]| read(bytes).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&bytes), ["only"]);
        // Its text is damaged: the other copy counts.
        bytes[range.start + 4096 + 600] ^= 1;
        assert_eq!(names(&bytes).len(), 10);
    }
    let mut bytes = device(&text, 512);
    for place in PLACES {
        bytes[place.offset as usize + 4096] ^= 1;
    }
    assert_eq!(read(&bytes), []);
    let read_only =
        metadata("vg", UUIDS, EXTENTS, &volumes()).replace("\"RESIZEABLE\", \"READ\", \"WRITE\"", "\"READ\"");
    assert!(read(&device(&read_only, 512)).iter().all(|volume| volume.is_read_only));
}

#[test]
fn any_damage_is_survived() {
    let rounds =
        std::env::var("EXTANT_LVM_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(1000);
    let seed = 91;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let text = metadata("vg", UUIDS, EXTENTS, &volumes());
    let words = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "=",
        ",",
        "#",
        "18446744073709551615",
        "0",
        "pv1",
        "segment1",
        "\0",
        "-1",
    ];
    let numbers =
        ["extent_size = 2048", "pe_start = 2048", "pe_count = 14", "extent_count = 4", "start_extent = 4"];
    let (mut readable, device) = (0, MemoryDevice::new(32 * MIB));
    for round in 0..rounds {
        let mut changed = text.clone();
        for _ in 0..random.below(4) {
            if random.below(2) == 0 {
                let word = words[random.below(words.len() as u64) as usize];
                changed.insert_str(random.below(changed.len() as u64) as usize, word);
            } else {
                let number = numbers[random.below(numbers.len() as u64) as usize];
                let value = [u64::MAX, 1 << 55, 0, random.below(100)][random.below(4) as usize];
                let name = number.split(' ').next().expect("a name");
                changed = changed.replace(number, &format!("{name} = {value}"));
            }
        }
        for (uuid, place) in UUIDS.iter().zip(PLACES) {
            // Label and metadata.
            let mut volume = vec![0; 80 << 10];
            write_physical_volume(&mut volume, uuid, &changed, 512 + random.below(60_000) as usize);
            for _ in 0..random.below(3) {
                let area = random.below(2) as usize;
                let at = [512 + 20, 4096 + 4][area] + random.below(120) as usize;
                let field = [u64::MAX, 0, 1, random.below(u64::MAX)][random.below(4) as usize].to_le_bytes();
                volume[at..at + 8].copy_from_slice(&field);
            }
            sum_label(&mut volume);
            sum_area(&mut volume);
            device.write_at(place.offset, &volume).expect("write");
        }
        for volume in LogicalVolume::read_all(&device, &PLACES).expect("reads") {
            if let Some(opened) = volume.open(&device) {
                let opened = opened.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
                assert_eq!(opened.size(), volume.bytes, "seed {seed}, round {round}");
                readable += 1;
            }
        }
    }
    println!("{readable} volumes of {rounds} damaged groups can be read");
    assert!(readable > rounds / 4, "{readable}");
}

/// Reads and writes of the pieces are those of the bytes that they have together.
#[test]
fn segments_are_one_device() {
    let seed = 5;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let pieces = [(40_000, 5000), (100, 1), (9000, 0), (512, 20_000), (60_000, 5536)];
    let pieces = pieces.map(|(offset, bytes)| Segment { offset, bytes });
    let device = MemoryDevice::new(65_536);
    let segments = Segments::new(&device, &pieces, false).expect("in range");
    let mut model = vec![0; segments.size() as usize];
    assert_eq!(model.len(), 30_537);
    for round in 0..2000_u32 {
        let at = random.below(model.len() as u64);
        let bytes = random.below((model.len() as u64 - at).min(9000) + 1);
        let range = at as usize..(at + bytes) as usize;
        let value = round.to_le_bytes()[0];
        match random.below(5) {
            0 => {
                let cut = random.below(bytes + 1) as usize;
                let content = vec![value; bytes as usize];
                let bufs = [&content[..cut], &[], &content[cut..]].map(std::io::IoSlice::new);
                segments.write_vectored_at(at, &bufs).expect("written");
                model[range.clone()].fill(value);
            }
            1 => {
                let content: Vec<u8> = (0..bytes).map(|index| value.wrapping_add(index as u8)).collect();
                segments.write_fua(at, &content).expect("written");
                model[range.clone()].copy_from_slice(&content);
            }
            2 => {
                segments.write_zeroes(at, bytes).expect("zeroed");
                model[range.clone()].fill(0);
            }
            _ => {}
        }
        let mut found = vec![1; bytes as usize];
        segments.read_at(at, &mut found).expect("read");
        assert!(found == model[range], "seed {seed}, round {round}");
    }
    let last = segments.size() - 1;
    assert!(segments.read_at(last, &mut [0; 2]).is_err() && segments.write_at(last, &[0; 2]).is_err());
    assert!(segments.read_at(u64::MAX, &mut [0; 2]).is_err());
    let before = device.snapshot();
    let frozen = Segments::new(&device, &pieces, true).expect("in range");
    assert!(frozen.is_read_only() && frozen.write_at(0, &[1]).is_err() && frozen.discard(0, 1).is_err());
    let contents = [&before, &device].map(|device| {
        let mut bytes = vec![0; 65_536];
        device.read_at(0, &mut bytes).expect("read");
        bytes
    });
    assert!(contents[0] == contents[1]);
    assert!(Segments::new(&device, &[Segment { offset: 65_530, bytes: 7 }], false).is_err());
    assert!(Segments::new(&device, &[Segment { offset: 8, bytes: u64::MAX }], false).is_err());
}
