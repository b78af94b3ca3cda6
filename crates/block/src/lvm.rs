//! Reads the logical volumes of LVM2 whose physical volumes are on one device.
//!
//! A physical volume has a label in one of its first sectors, which says where its data and its copies of the metadata are. The metadata is
//! a text that describes the whole volume group; of several copies the one with the highest sequence number counts. A volume whose segments
//! are linear is a list of places on the device ([`Segment`]).
//!
//! All of it is hostile: areas, texts, nesting and segments are bounded, checksums are compared, and what reaches past its physical volume
//! makes its volume unreadable.
//!
//! Leaves out: the metadata of LVM1; volumes that are striped, mirrored, thin, cached or snapshots, which are named; locks of clusters;
//! writing metadata. Sources: LVM2's `lib/format_text/{layout.h,format-text.c}`, `lib/label/label.h`. Test: `tests/lvm.rs`, where `lvs`
//! judges.

mod label;
mod text;
mod volumes;

use std::collections::BTreeSet;
use std::io;

use crate::{BlockDevice, Error, Segment, Segments};
use label::PhysicalVolume;

/// Bytes of all texts together that are read; on usual disks they are copies of one.
const TEXT_BYTES_MAX: u64 = 32 << 20;

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    /// The name of its group.
    pub group: String,
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where its bytes are.
    pub mapping: VolumeMapping,
    /// Whether its metadata refuses writes.
    pub is_read_only: bool,
}

/// Where the bytes of a logical volume are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeMapping {
    /// At these places of the device, one after the other.
    Linear(Vec<Segment>),
    /// The volume is of another kind, as LVM calls it: `striped`, `thin`, `raid1`.
    Other(String),
    /// On a physical volume that is not on the device, of this UUID.
    Missing(String),
    /// Its segments contradict each other or their physical volumes.
    Damaged,
}

impl LogicalVolume {
    /// The volume as a device, if its bytes are at known places of `device`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device has become shorter.
    pub fn open<D: BlockDevice>(&self, device: D) -> Option<Result<Segments<D>, Error>> {
        match &self.mapping {
            VolumeMapping::Linear(segments) => Some(Segments::new(device, segments, self.is_read_only)),
            _ => None,
        }
    }

    /// The logical volumes on `device` whose physical volumes are at these places, which are in bytes, and nowhere else, by the names
    /// in their groups.
    ///
    /// # Errors
    /// The device's own.
    pub fn read_all(device: &(impl BlockDevice + ?Sized), places: &[Segment]) -> io::Result<Vec<Self>> {
        let mut physical = Vec::new();
        for place in places {
            physical.extend(PhysicalVolume::read(device, *place)?);
        }
        let (mut texts, mut budget) = (BTreeSet::new(), TEXT_BYTES_MAX);
        for volume in &physical {
            texts.extend(volume.texts(device, &mut budget)?);
        }
        let mut groups: Vec<volumes::Group> = Vec::new();
        for group in texts.iter().filter_map(|text| volumes::Group::parse(text)) {
            match groups.iter_mut().find(|known| known.id == group.id) {
                Some(known) if known.sequence_number >= group.sequence_number => {}
                Some(known) => *known = group,
                None => groups.push(group),
            }
        }
        Ok(groups.iter().flat_map(|group| group.volumes(&physical)).collect())
    }
}
