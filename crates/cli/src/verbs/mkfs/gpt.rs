//! A disk with a GUID partition table around a new file system.
//!
//! The table has an EFI system partition, if one is wanted, and the root partition behind it, which is as long as its file system. Both begin
//! at multiples of 1 MiB.

use std::path::Path;

use clap::Args;
use extant::mkfs::Layout;
use extant_block::{BlockDevice, NewPartition, PartitionTable};
use serde_json::{Value, json};

use super::Content;
use super::content::uuid_of;
use crate::failure::Failure;
use crate::output::Output;
use crate::partition_types::{EFI_SYSTEM, LINUX, ROOTS, RootType, name_of_guid};
use crate::size;
use crate::verbs::info::uuid_text;

/// Where partitions begin, and what the size of the disk is a multiple of unless it is given.
const ALIGNMENT: u64 = 1 << 20;
/// The length of a file system that fills a disk of a given size is a multiple of this.
const GRAIN: u64 = 4096;
/// The word for the architecture of the content.
const AUTO: &str = "auto";

/// Whether there is to be a partition table, and with what.
#[derive(Args)]
pub struct GptOptions {
    /// Make a disk with a GUID partition table, whose root partition has the file system and the type of ARCH: x86-64, arm64
    /// and so on, `linux` for none [default: that of a container image, else `linux`]
    #[arg(long, value_name = "ARCH", num_args = 0..=1, require_equals = true, default_missing_value = AUTO,
        value_parser = RootKind::parse, conflicts_with_all = ["from", "partition", "offset", "volume", "verity"])]
    gpt: Option<RootKind>,
    /// With --gpt, an EFI system partition of this size before it, left empty
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes, requires = "gpt")]
    esp: Option<u64>,
}

/// The type of the root partition.
#[derive(Clone, Copy)]
enum RootKind {
    /// That of the content's architecture.
    Auto,
    Guid(u128),
}

impl RootKind {
    fn parse(text: &str) -> Result<Self, String> {
        let names = || ROOTS.iter().map(|root| root.architecture).collect::<Vec<_>>().join(", ");
        match text {
            AUTO => Ok(Self::Auto),
            "linux" => Ok(Self::Guid(LINUX)),
            _ => named(text).map(|root| Self::Guid(root.guid)).ok_or_else(|| {
                format!("no root partition has the type of '{text}'; there are linux, {}", names())
            }),
        }
    }
}

/// The root partition of an architecture, by either of its names.
fn named(architecture: &str) -> Option<&'static RootType> {
    ROOTS.iter().find(|root| [root.architecture, root.go_name].contains(&architecture))
}

/// Where the partitions of a disk are.
#[derive(Clone, Copy)]
pub struct Frame {
    kind: RootKind,
    esp_bytes: u64,
}

impl GptOptions {
    /// What is put around the file system, if anything is.
    pub fn frame(&self) -> Option<Frame> {
        let esp_bytes = self.esp.unwrap_or(0).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        Some(Frame { kind: self.gpt?, esp_bytes })
    }

    /// That a disk with a table can be made there.
    pub fn check_target(&self, may_resize: bool) -> Result<(), Failure> {
        if self.gpt.is_some() && !may_resize {
            return Err(Failure::usage("--gpt makes image files; dd writes one to a device"));
        }
        Ok(())
    }

    /// The bytes of the file system of a disk that has so many.
    pub fn file_system_bytes(&self, image: &Path, disk_bytes: u64) -> Result<u64, Failure> {
        self.frame().map_or(Ok(disk_bytes), |frame| frame.file_system_bytes(image, disk_bytes))
    }

    /// The partitions around a file system, if there are to be some.
    pub fn partitions(&self, layout: &Layout, content: Option<&Content>) -> Option<Partitions> {
        self.frame().map(|frame| frame.partitions(layout, content))
    }
}

impl Frame {
    /// Where the file system begins.
    pub fn offset(self) -> u64 {
        ALIGNMENT.saturating_add(self.esp_bytes)
    }

    /// The bytes of a disk whose file system has so many.
    pub fn disk_bytes(self, bytes: u64) -> u64 {
        let end = self.offset().saturating_add(bytes).saturating_add(PartitionTable::GPT_END_BYTES);
        end.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
    }

    /// The bytes of the file system of a disk that has so many.
    fn file_system_bytes(self, image: &Path, disk_bytes: u64) -> Result<u64, Failure> {
        let bytes = disk_bytes.checked_sub(self.offset().saturating_add(PartitionTable::GPT_END_BYTES));
        bytes.map(|bytes| bytes - bytes % GRAIN).filter(|bytes| *bytes > 0).ok_or_else(|| {
            let message = format!(
                "{} has no room for a root partition, which begins at {}",
                size::show(disk_bytes),
                size::show(self.offset())
            );
            Failure::new("too_small", image.display().to_string(), message)
        })
    }

    fn partitions(self, layout: &Layout, content: Option<&Content>) -> Partitions {
        let superblock = layout.superblock();
        let seed = superblock.s_hash_seed().iter().fold(0, |seed, word| seed << 32 | u128::from(*word));
        // Both are random, or follow from the content.
        let mixed = u128::from_be_bytes(superblock.s_uuid()).wrapping_add(seed.rotate_left(64));
        let guid = |number| u128::from_be_bytes(uuid_of(mixed, number));
        let kind = match self.kind {
            RootKind::Guid(kind) => kind,
            RootKind::Auto => content
                .and_then(Content::architecture)
                .and_then(|name| named(&name))
                .map_or(LINUX, |it| it.guid),
        };
        let label = superblock.volume_name();
        let name =
            if label.is_empty() { "root".to_owned() } else { String::from_utf8_lossy(&label).into_owned() };
        let geometry = layout.geometry();
        let bytes = geometry.blocks_count * u64::from(geometry.block_size);
        let root = NewPartition { kind, guid: guid(1), name, offset: self.offset(), bytes };
        let esp = (self.esp_bytes > 0).then(|| NewPartition {
            kind: EFI_SYSTEM,
            guid: guid(2),
            name: "esp".to_owned(),
            offset: ALIGNMENT,
            bytes: self.esp_bytes,
        });
        Partitions { guid: guid(0), list: esp.into_iter().chain([root]).collect() }
    }
}

/// The partitions of a new disk.
pub struct Partitions {
    guid: u128,
    list: Vec<NewPartition>,
}

impl Partitions {
    /// Writes the table.
    pub fn write(&self, image: &Path, device: &dyn BlockDevice) -> Result<(), Failure> {
        let written = PartitionTable::new_gpt(self.guid, &self.list).write(device);
        written.map_err(|error| Failure::host(image, &error))
    }

    /// For programs.
    pub fn document(&self) -> Value {
        let guid = |guid: u128| uuid_text(guid.to_be_bytes());
        let partition = |(number, it): (u32, &NewPartition)| {
            json!({
                "number": number,
                "type": guid(it.kind),
                "uuid": guid(it.guid),
                "name": it.name,
                "offset_bytes": it.offset,
                "size_bytes": it.bytes,
            })
        };
        json!({
            "uuid": guid(self.guid),
            "partitions": (1..).zip(&self.list).map(partition).collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub fn describe(&self, output: &mut Output) -> Result<(), Failure> {
        for (number, it) in (1..).zip(&self.list) {
            let kind = name_of_guid(it.kind).unwrap_or_default();
            let (bytes, offset) = (size::show(it.bytes), it.offset);
            output.line(format!("partition {number}: {kind}, {bytes} at byte {offset}"))?;
        }
        Ok(())
    }
}
