//! Physical volumes of LVM2, written byte by byte from a text of metadata.

/// Where the metadata area of each begins, and its bytes.
const AREA: (usize, usize) = (4096, 64 << 10);
const SECTOR_BYTES: usize = 512;

/// Writes the label, the metadata area and its text into a physical volume. `text_at` is where in the area the text begins, at 512 or later;
/// it goes around at the end of the area.
///
/// # Panics
/// If the volume or the area is too small.
pub fn write_physical_volume(volume: &mut [u8], uuid: &str, text: &str, text_at: usize) {
    let (area_at, area_bytes) = AREA;
    let bytes = volume.len() as u64;
    let label = &mut volume[SECTOR_BYTES..2 * SECTOR_BYTES];
    label[..8].copy_from_slice(b"LABELONE");
    label[8..16].copy_from_slice(&1_u64.to_le_bytes());
    label[20..24].copy_from_slice(&32_u32.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(uuid.replace('-', "").as_bytes());
    label[64..72].copy_from_slice(&bytes.to_le_bytes());
    // One area of data, up to the end, and one of metadata.
    label[72..80].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    label[104..112].copy_from_slice(&(area_at as u64).to_le_bytes());
    label[112..120].copy_from_slice(&(area_bytes as u64).to_le_bytes());
    sum_label(volume);
    let area = &mut volume[area_at..area_at + area_bytes];
    area[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    area[20..24].copy_from_slice(&1_u32.to_le_bytes());
    area[24..32].copy_from_slice(&(area_at as u64).to_le_bytes());
    area[32..40].copy_from_slice(&(area_bytes as u64).to_le_bytes());
    area[40..48].copy_from_slice(&(text_at as u64).to_le_bytes());
    area[48..56].copy_from_slice(&(text.len() as u64).to_le_bytes());
    area[56..60].copy_from_slice(&checksum(text.as_bytes()).to_le_bytes());
    let first = text.len().min(area_bytes - text_at);
    area[text_at..text_at + first].copy_from_slice(&text.as_bytes()[..first]);
    area[SECTOR_BYTES..SECTOR_BYTES + text.len() - first].copy_from_slice(&text.as_bytes()[first..]);
    sum_area(volume);
}

/// Makes the checksum of a label right again.
pub fn sum_label(volume: &mut [u8]) {
    let sum = checksum(&volume[SECTOR_BYTES + 20..2 * SECTOR_BYTES]);
    volume[SECTOR_BYTES + 16..SECTOR_BYTES + 20].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the checksum of the header of a metadata area right again.
pub fn sum_area(volume: &mut [u8]) {
    let sum = checksum(&volume[AREA.0 + 4..AREA.0 + SECTOR_BYTES]);
    volume[AREA.0..AREA.0 + 4].copy_from_slice(&sum.to_le_bytes());
}

/// A text of metadata for two physical volumes, `uuids`, with extents of 1 MiB and so many of them each. `volumes` is what is in
/// `logical_volumes`.
pub fn metadata(group: &str, uuids: [&str; 2], extents: [u64; 2], volumes: &str) -> String {
    let physical = |index: usize| {
        format!(
            "pv{index} {{ id = \"{}\" device = \"/dev/x{index}\" status = [\"ALLOCATABLE\"] flags = []\n\
             dev_size = {} pe_start = 2048 pe_count = {} }}\n",
            uuids[index],
            (extents[index] + 1) * 2048,
            extents[index]
        )
    };
    format!(
        "{group} {{\nid = \"GroupG-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa\"\nseqno = 3\nformat = \"lvm2\" # informational\n\
         status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\nflags = []\nextent_size = 2048\nmax_lv = 0\nmax_pv = 0\nmetadata_copies = 0\n\
         physical_volumes {{\n{}{}}}\nlogical_volumes {{\n{volumes}}}\n}}\n# Made by a test\ncontents = \"Text Format Volume Group\"\n\
         version = 1\ndescription = \"\"\ncreation_host = \"test\"\ncreation_time = 1700000000\n\0",
        physical(0),
        physical(1)
    )
}

/// A volume for [`metadata`], of segments of a type: its words, the first extent, how many, and the words for its place.
pub fn volume(name: &str, status: &str, segments: &[(&str, u64, u64, &str)]) -> String {
    let list = segments.iter().zip(1..).map(|((kind, start, count, place), number)| {
        format!(
            "segment{number} {{ start_extent = {start} extent_count = {count} type = \"{kind}\" {place} }}\n"
        )
    });
    // A UUID has six characters, five times four, and six.
    let id = format!("{name:x<6}").chars().take(6).collect::<String>() + "-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa";
    format!(
        "{name} {{ id = \"{id}\" status = [{status}] flags = [] creation_time = 1700000000 creation_host = \"test\"\n\
         segment_count = {}\n{}}}\n",
        segments.len(),
        list.collect::<String>()
    )
}

/// The words for a linear segment.
pub fn linear(physical: usize, extent: u64) -> String {
    format!("stripe_count = 1 stripes = [\n\"pv{physical}\", {extent}\n]")
}

/// The checksum of LVM, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}
