//! `extant stat`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use extant::{File, FileType};
use serde_json::{Map, Value, json};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::{document, failed_at, kind, permissions, xattr_documents};
use crate::output::{Output, hex};

/// Tell everything about files on a disk
///
/// A symbolic link is told of itself, not what it names. Times are in UTC.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant stat disk.img:/etc/shadow\n  extant stat --json disk.img:/bin/ping"
)]
pub struct Stat {
    #[command(flatten)]
    reading: Reading,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Stat {
    /// Tells.
    pub fn run(self) -> Outcome {
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut output = Output::new();
        let mut documents = Vec::new();
        let places = self.places.iter().map(|place| DiskPath::parse(place));
        let exit = for_each(places, self.reading.json, |place| {
            let file = disks.of(&place)?.symlink_lookup(&place.path).map_err(failed_at(&place))?;
            if self.reading.json {
                let mut object = Map::new();
                object.insert("image".to_owned(), place.image.display().to_string().into());
                put_text(&mut object, "path", place.path.as_os_str().as_encoded_bytes());
                object.extend(document(&file).map_err(failed_at(&place))?);
                object.insert("xattrs".to_owned(), xattr_documents(&file).map_err(failed_at(&place))?.into());
                documents.push(Value::Object(object));
                return Ok(());
            }
            write(&place, &file, &mut output)
        });
        disks.finish()?;
        if self.reading.json {
            output.json(&json!({ "files": documents }))?;
        }
        output.finish()?;
        Ok(exit)
    }
}

fn write(place: &DiskPath, file: &File, output: &mut Output) -> Result<(), Failure> {
    let metadata = file.metadata();
    let mut name = output.name(place.path.as_os_str().as_encoded_bytes());
    if metadata.file_type == FileType::Symlink {
        let target = file.read_link().map_err(failed_at(place))?;
        name.extend([b" -> ".as_slice(), &output.name(&target)].concat());
    }
    output.line([b"  File: ".as_slice(), &name].concat())?;
    let device = match metadata.file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("  Device: {},{}", metadata.device.0, metadata.device.1)
        }
        _ => String::new(),
    };
    output.line(format!(
        "  Size: {}  Blocks: {}  Inode: {}  Links: {}  Type: {}{device}",
        metadata.size,
        metadata.blocks_512,
        metadata.inode.0,
        metadata.links,
        kind(metadata.file_type),
    ))?;
    let (uid, gid) = (metadata.uid, metadata.gid);
    output.line(format!(
        "Access: ({:04o}/{})  Uid: {uid}  Gid: {gid}",
        metadata.mode,
        permissions(&metadata)
    ))?;
    let times = [
        ("Access", Some(metadata.atime)),
        ("Modify", Some(metadata.mtime)),
        ("Change", Some(metadata.ctime)),
        (" Birth", metadata.crtime),
    ];
    for (which, time) in times {
        if let Some(time) = time {
            output.line(format!("{which}: {}.{:09} UTC", time.date_time(), time.nanoseconds))?;
        }
    }
    let mut names = file.list_xattrs().map_err(failed_at(place))?;
    names.sort_unstable();
    for name in names {
        let value = file.xattr(&name).map_err(failed_at(place))?;
        output
            .line([b" Xattr: ".as_slice(), &output.name(&name), b"=0x", hex(&value).as_bytes()].concat())?;
    }
    Ok(())
}
