//! The logical volumes of a disk, and what each of them holds.

use std::fmt;

use extant_block::{BlockDevice, LogicalVolume, Segment, VolumeMapping};

use super::content::{Content, content};
use crate::output::escape;
use crate::size;
use crate::volume_name::VolumeName;

/// A logical volume.
pub struct Volume {
    /// Where it is.
    pub volume: LogicalVolume,
    /// What it holds, if it can be read.
    pub content: Option<Content>,
}

impl Volume {
    /// Whether it has an ext4 file system.
    pub fn is_ext4(&self) -> bool {
        matches!(self.content, Some(Content::Ext4(_)))
    }

    /// Its name.
    pub fn name(&self) -> VolumeName {
        VolumeName::new(&self.volume.group, &self.volume.name)
    }

    /// Why it cannot be read, and what to do. `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        let LogicalVolume { group, name, .. } = &self.volume;
        Some(match &self.volume.mapping {
            VolumeMapping::Linear(_) => return None,
            VolumeMapping::Other(kind) => format!(
                "of the type {kind}, and only linear ones are read; activate it with `vgchange -ay {group}` and use \
                 /dev/{group}/{name}"
            ),
            VolumeMapping::Missing(uuid) => format!(
                "partly on the physical volume {uuid}, which is not in this image; attach all disks, activate it with \
                 `vgchange -ay {group}` and use /dev/{group}/{name}"
            ),
            _ => format!("damaged in the metadata of its group; `vgck {group}` checks that"),
        })
    }
}

impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogicalVolume { group, name, bytes, mapping, .. } = &self.volume;
        let [group, name] = [group, name].map(|text| escape(text.as_bytes()));
        write!(f, "{group}/{name} ({}, ", size::show(*bytes))?;
        match (&self.content, mapping) {
            (Some(Content::Unknown), _) => f.write_str("no known format)"),
            (Some(content), _) => write!(f, "{content})"),
            (None, VolumeMapping::Other(kind)) => write!(f, "{})", escape(kind.as_bytes())),
            (None, VolumeMapping::Missing(_)) => f.write_str("partly on another disk)"),
            (None, _) => f.write_str("damaged)"),
        }
    }
}

/// The logical volumes whose physical volumes are at these places of a device.
pub fn volumes(device: &dyn BlockDevice, places: &[Segment]) -> Vec<Volume> {
    // A device that cannot be read fails later, with the place.
    let found = LogicalVolume::read_all(device, places).unwrap_or_default();
    let with_content = |volume: LogicalVolume| {
        let content = volume.open(device).and_then(Result::ok).map(|opened| content(&opened));
        Volume { volume, content }
    };
    found.into_iter().map(with_content).collect()
}

/// What to do with these volumes where a file system was expected. `None` if there are none.
pub fn advice(volumes: &[Volume]) -> Option<String> {
    let list = volumes.iter().map(Volume::to_string).collect::<Vec<_>>().join(", ");
    if volumes.iter().any(Volume::is_ext4) {
        return Some(format!("choose one with --volume: {list}"));
    }
    let groups = volumes.iter().find(|volume| volume.obstacle().is_some()).map(|volume| &volume.volume.group);
    let step = groups.map(|group| format!("; `vgchange -ay {group}` activates those that are not read here"));
    let list = format!("none of its logical volumes is one: {list}{}", step.unwrap_or_default());
    (!volumes.is_empty()).then_some(list)
}
