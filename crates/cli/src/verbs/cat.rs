//! `extant cat`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Outcome, for_each};
use crate::address::DiskPath;
use crate::disks::{Disks, Reading, open_for_reading};
use crate::failure::Failure;
use crate::json::put_text;
use crate::metadata::failed_at;
use crate::output::Output;

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Write files on a disk to standard output
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant cat disk.img:/etc/fstab\n  extant cat disk.img:/var/log/syslog | grep oops"
)]
pub struct Cat {
    #[command(flatten)]
    reading: Reading,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

impl Cat {
    /// Writes.
    pub fn run(self) -> Outcome {
        let places = DiskPath::parse_all_below_root(&self.places)?;
        let mut disks = Disks::new(|image: &Path| open_for_reading(image, self.reading));
        let mut output = Output::new();
        let mut documents = Vec::new();
        let exit = for_each(places, self.reading.json, |place| {
            let file = disks.of(&place)?.open(&place.path).map_err(failed_at(&place))?;
            if self.reading.json {
                let content = file.read_to_end_at(0).map_err(failed_at(&place))?;
                let mut object = Map::new();
                put_text(&mut object, "path", place.path.as_os_str().as_encoded_bytes());
                object.insert("size_bytes".to_owned(), content.len().into());
                put_text(&mut object, "content", &content);
                documents.push(Value::Object(object));
                return Ok(());
            }
            copy(&file, &place, &mut output)
        });
        disks.finish()?;
        if self.reading.json {
            output.json(&json!({ "files": documents }))?;
        }
        output.finish()?;
        Ok(exit)
    }
}

fn copy(file: &extant::File, place: &DiskPath, output: &mut Output) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut piece, offset).map_err(failed_at(place))?;
        if read == 0 {
            return Ok(());
        }
        output.bytes(&piece[..read])?;
        offset += read as u64;
    }
}
