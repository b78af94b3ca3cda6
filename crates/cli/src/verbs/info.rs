//! `extant info`.

use std::path::PathBuf;

use clap::Args;
use extant::{Filesystem, Timestamp};
use extant_block::DeviceAccess;
use extant_diskimage::Layer;
use extant_ondisk::{State, Superblock};
use serde_json::{Map, Value, json};

use super::Outcome;
use crate::devices::OpenImage;
use crate::disks::{self, Reading, reading_mount};
use crate::json::put_text;
use crate::output::{Output, escape, hex};
use crate::size;

/// Tell about a file system
#[derive(Args)]
#[command(after_help = "Examples:\n  extant info disk.img\n  extant info --json --partition 2 /dev/sdb")]
pub struct Info {
    #[command(flatten)]
    reading: Reading,
    /// The image
    image: PathBuf,
}

impl Info {
    /// Tells.
    pub fn run(self) -> Outcome {
        let opened = OpenImage::open(&self.image, DeviceAccess::read_only(), self.reading.location.wait())?;
        let form = Form::of(&opened);
        let device = opened.into_device(&self.image);
        let location = self.reading.location.choose(&self.image, &*device)?;
        let device = location.locate(&self.image, device)?;
        let fs = disks::mount(&self.image, device, reading_mount(self.reading))?;
        let mut output = Output::new();
        if self.reading.json {
            let mut object = Map::new();
            object.insert("image".to_owned(), self.image.display().to_string().into());
            object.extend(form.document());
            object.insert("partition".to_owned(), location.partition.into());
            object.insert("volume".to_owned(), location.volume.map(|name| name.to_string()).into());
            object.extend(document(&fs));
            output.json(&Value::Object(object))?;
        } else {
            let partition = location.partition.map(|number| ("partition", number.to_string()));
            let volume = location.volume.map(|name| ("volume", name.to_string()));
            for (key, value) in form.line().into_iter().chain(partition).chain(volume).chain(lines(&fs)) {
                output.line(format!("{key:<18} {value}"))?;
            }
        }
        output.finish()?;
        Ok(0)
    }
}

/// The formats of the files that a disk is in.
struct Form {
    packing: Option<&'static str>,
    /// None of a raw image that is not packed.
    layers: Vec<Layer>,
}

impl Form {
    fn of(image: &OpenImage) -> Self {
        match image {
            OpenImage::Raw(_) | OpenImage::Network(_) => Self { packing: None, layers: Vec::new() },
            OpenImage::Container(container) => {
                Self { packing: container.packing, layers: container.layers.clone() }
            }
        }
    }

    fn document(&self) -> Map<String, Value> {
        let layers = self.layers.iter().map(|layer| {
            json!({
                "path": layer.path.display().to_string(),
                "format": layer.format.word(),
                "size_bytes": layer.bytes,
                "compression": layer.compression,
            })
        });
        let format = self.layers.first().map_or("raw", |layer| layer.format.word());
        let mut object = Map::new();
        object.insert("format".to_owned(), format.into());
        object.insert("packing".to_owned(), self.packing.into());
        object.insert("layers".to_owned(), layers.collect());
        object
    }

    /// The line of it, unless the image is raw.
    fn line(&self) -> Option<(&'static str, String)> {
        let first = self.layers.first()?;
        let mut text = format!("{} of {}", first.format, size::show(first.bytes));
        if let Some(compression) = first.compression {
            text += &format!(", clusters packed by {compression}");
        }
        if let Some(packing) = self.packing {
            text += &format!(", packed by {packing}");
        }
        for layer in &self.layers[1..] {
            text +=
                &format!(", over {} ({})", escape(layer.path.as_os_str().as_encoded_bytes()), layer.format);
        }
        Some(("format", text))
    }
}

/// A UUID in its usual form.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex = hex(&uuid);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn features(superblock: &Superblock) -> Vec<String> {
    let (compat, incompat, ro_compat) = (superblock.compat(), superblock.incompat(), superblock.ro_compat());
    compat.all_names().chain(incompat.all_names()).chain(ro_compat.all_names()).collect()
}

fn document(fs: &Filesystem) -> Map<String, Value> {
    let superblock = fs.superblock();
    let statistics = fs.statistics();
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(statistics.block_size));
    let mut object = Map::new();
    put_text(&mut object, "label", &superblock.volume_name());
    let known = json!({
        "uuid": uuid_text(superblock.s_uuid()),
        "size_bytes": bytes(superblock.blocks_count()),
        "usable_bytes": bytes(statistics.blocks),
        "free_bytes": bytes(statistics.free_blocks),
        "available_bytes": bytes(statistics.available_blocks),
        "block_size_bytes": statistics.block_size,
        "blocks": superblock.blocks_count(),
        "reserved_blocks": superblock.r_blocks_count(),
        "inodes": statistics.inodes,
        "free_inodes": statistics.free_inodes,
        "inode_size_bytes": superblock.inode_size(),
        "features": features(&superblock),
        "is_clean": is_clean(fs, &superblock),
        "journal_replay_blocks": fs.mounted().replayed_blocks,
        "journal_skipped_transactions": fs.mounted().skipped_transactions,
        "in_use": disks::used_elsewhere(fs).map(|by| json!({
            "node": by.node,
            "device": by.device,
            "time_s": by.time_s,
            "is_fsck": by.is_fsck,
        })),
        "has_errors": disks::errors_met(fs).is_some(),
        "mounts": superblock.s_mnt_count(),
        "made_s": superblock.mkfs_time(),
        "last_mounted_s": superblock.mount_time(),
        "last_written_s": superblock.write_time(),
    });
    if let Value::Object(known) = known {
        object.extend(known);
    }
    object
}

/// Whether it was unmounted.
fn is_clean(fs: &Filesystem, superblock: &Superblock) -> bool {
    let needs_recovery = superblock.incompat().contains(extant_ondisk::IncompatFeatures::RECOVER);
    superblock.state().contains(State::VALID) && !needs_recovery && fs.mounted().replayed_blocks == 0
}

fn lines(fs: &Filesystem) -> Vec<(&'static str, String)> {
    let superblock = fs.superblock();
    let statistics = fs.statistics();
    let bytes = |blocks: u64| size::show(blocks.saturating_mul(u64::from(statistics.block_size)));
    let time = |seconds: u64| match i64::try_from(seconds) {
        Ok(0) | Err(_) => "never".to_owned(),
        Ok(seconds) => format!("{} UTC", Timestamp { seconds, nanoseconds: 0 }.date_time()),
    };
    let state = match (disks::errors_met(fs), is_clean(fs, &superblock)) {
        (Some(met), _) => met,
        (None, true) => "clean".to_owned(),
        (None, false) => {
            format!("not unmounted; {} blocks in the journal to replay", fs.mounted().replayed_blocks)
        }
    };
    let state = match disks::journal_skipped(fs) {
        Some(skipped) => format!("{state}; {skipped}"),
        None => state,
    };
    let state = match disks::used_elsewhere(fs) {
        Some(by) => format!("{state}; {by}"),
        None => state,
    };
    vec![
        ("label", escape(&superblock.volume_name())),
        ("uuid", uuid_text(superblock.s_uuid())),
        ("state", state),
        (
            "size",
            format!(
                "{} ({} blocks of {})",
                bytes(superblock.blocks_count()),
                superblock.blocks_count(),
                statistics.block_size
            ),
        ),
        ("free", format!("{} ({} blocks)", bytes(statistics.free_blocks), statistics.free_blocks)),
        (
            "available",
            format!("{} ({} blocks)", bytes(statistics.available_blocks), statistics.available_blocks),
        ),
        (
            "inodes",
            format!(
                "{} of {} bytes, {} free",
                statistics.inodes,
                superblock.inode_size(),
                statistics.free_inodes
            ),
        ),
        ("features", features(&superblock).join(" ")),
        ("made", time(superblock.mkfs_time())),
        ("last mounted", time(superblock.mount_time())),
        ("last written", time(superblock.write_time())),
    ]
}
