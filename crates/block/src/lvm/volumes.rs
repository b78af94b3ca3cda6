//! The volumes of a group, and their places on the device.

use std::collections::BTreeMap;

use super::label::PhysicalVolume;
use super::text::{Node, Section};
use super::{LogicalVolume, VolumeMapping};
use crate::Segment;

const SECTOR_BYTES: u64 = 512;

/// A volume group, as a copy of its metadata has it.
pub struct Group {
    pub id: Vec<u8>,
    pub sequence_number: u64,
    name: Vec<u8>,
    section: Section,
}

/// A physical volume of a group, as the metadata has it.
struct Member<'a> {
    /// On the device, if it is there.
    found: Option<&'a PhysicalVolume>,
    id: String,
    /// Where its first extent begins, in bytes from its start.
    first_extent: u64,
    extents: u64,
}

impl Group {
    /// Reads a text of metadata. `None` if it is malformed, or of another format.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let whole = Section::parse(text)?;
        if whole.text("contents")? != b"Text Format Volume Group" || whole.number("version")? != 1 {
            return None;
        }
        let (name, section) = whole.sections().next()?;
        Some(Self {
            id: section.text("id")?.to_vec(),
            sequence_number: section.number("seqno")?,
            name: name.to_vec(),
            section: section.clone(),
        })
    }

    fn extent_bytes(&self) -> Option<u64> {
        self.section.number("extent_size")?.checked_mul(SECTOR_BYTES)
    }

    /// Its volumes that programs see, with their places on these physical volumes.
    pub fn volumes(&self, physical: &[PhysicalVolume]) -> Vec<LogicalVolume> {
        let Some(all) = self.section.section("logical_volumes") else { return Vec::new() };
        let is_read_only = !self.section.has("status", "WRITE");
        let snapshots = snapshots(all);
        let visible = all.sections().filter(|(_, volume)| volume.has("status", "VISIBLE"));
        let volume = |(name, volume): (&[u8], &Section)| {
            let mapping = match snapshots.get(name) {
                Some(kind) => Some(VolumeMapping::Other((*kind).to_owned())),
                None => self.mapping(volume, physical),
            };
            LogicalVolume {
                group: text(&self.name),
                name: text(name),
                bytes: self.bytes_of(volume).unwrap_or(0),
                mapping: mapping.unwrap_or(VolumeMapping::Damaged),
                is_read_only: is_read_only || !volume.has("status", "WRITE"),
            }
        };
        visible.map(volume).collect()
    }

    /// The bytes of a volume.
    fn bytes_of(&self, volume: &Section) -> Option<u64> {
        let mut counts = segments(volume).map(|segment| segment.number("extent_count"));
        let count = counts.try_fold(0_u64, |sum, count| sum.checked_add(count?))?;
        count.checked_mul(self.extent_bytes()?)
    }

    /// Where the bytes of a volume are. `None` if it is damaged.
    fn mapping(&self, volume: &Section, physical: &[PhysicalVolume]) -> Option<VolumeMapping> {
        let extent_bytes = self.extent_bytes()?;
        let (mut places, mut next) = (Vec::new(), 0);
        let mut segments: Vec<_> = segments(volume).collect();
        segments.sort_by_key(|segment| segment.number("start_extent"));
        for segment in segments {
            let kind = segment.text("type")?;
            let stripes = segment.number("stripe_count");
            if kind != b"striped" || stripes != Some(1) {
                return Some(VolumeMapping::Other(text(kind)));
            }
            let [Node::Text(member), Node::Number(start)] = segment.list("stripes")? else { return None };
            let Some(member) = self.member(member, physical)? else {
                // Of another volume, from which an array or a move is made.
                return Some(VolumeMapping::Other("pvmove".to_owned()));
            };
            let Some(found) = member.found else { return Some(VolumeMapping::Missing(member.id)) };
            let count = segment.number("extent_count")?;
            let end = start.checked_add(count)?;
            if segment.number("start_extent")? != next || count == 0 || end > member.extents {
                return None;
            }
            next = next.checked_add(count)?;
            let place = Segment {
                offset: member.first_extent.checked_add(start.checked_mul(extent_bytes)?)?,
                bytes: count.checked_mul(extent_bytes)?,
            };
            if place.offset.checked_add(place.bytes)? > found.place.bytes {
                return None;
            }
            places.push(Segment { offset: found.place.offset.checked_add(place.offset)?, ..place });
        }
        (!places.is_empty()).then_some(VolumeMapping::Linear(places))
    }

    /// The physical volume of this name in the metadata; inside, `None` if there is none of the name.
    fn member<'a>(&self, name: &[u8], physical: &'a [PhysicalVolume]) -> Option<Option<Member<'a>>> {
        let Some(member) = self.section.section("physical_volumes")?.section(name) else { return Some(None) };
        let id: Vec<u8> = member.text("id")?.iter().copied().filter(|byte| *byte != b'-').collect();
        Some(Some(Member {
            found: physical.iter().find(|it| it.id == id),
            id: text(member.text("id")?),
            first_extent: member.number("pe_start")?.checked_mul(SECTOR_BYTES)?,
            extents: member.number("pe_count")?,
        }))
    }
}

/// The segments of a volume.
fn segments(volume: &Section) -> impl Iterator<Item = &Section> {
    volume.sections().filter(|(name, _)| name.starts_with(b"segment")).map(|(_, segment)| segment)
}

/// What volumes are to snapshots, by their names. Writing into an origin would change the snapshot, and the other holds only what differs.
fn snapshots(all: &Section) -> BTreeMap<&[u8], &'static str> {
    let mut kinds = BTreeMap::new();
    let of_snapshots = all.sections().flat_map(|(_, volume)| segments(volume));
    for segment in of_snapshots.filter(|segment| segment.text("type") == Some(b"snapshot")) {
        for (role, kind) in
            [("origin", "origin of a snapshot"), ("cow_store", "snapshot"), ("merging_store", "snapshot")]
        {
            kinds.extend(segment.text(role).map(|name| (name, kind)));
        }
    }
    kinds
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
