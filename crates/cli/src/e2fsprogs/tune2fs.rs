//! `tune2fs` and `e2label`.

use std::ffi::{OsStr, OsString};

use super::letters::Letters;
use super::mke2fs::truncated_label;
use super::place::Place;
use super::superblock_lines::lines;
use super::{Call, dumpe2fs, only_device, version};
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::{Outcome, outcome};

const SERVED: &str = "lc:C:e:fi:jJ:L:m:M:o:O:r:T:U:E:V";
const REFUSED: &str = "gusQIz";

/// Changes a disk, and lists its superblock.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, SERVED, REFUSED)?;
    let mut output = Output::new();
    output.line(version("tune2fs"))?;
    if letters.has('V') {
        output.finish()?;
        return Ok(0);
    }
    let place = only_device(&letters.places, "tune2fs [letters] device")?;
    // `tune` changes mounted and damaged disks under no letter.
    let mut words: Vec<_> = letters.without("lfL").collect();
    if let Some(label) = letters.value('L') {
        words.push(joined("-L", truncated_label(call, label)));
    }
    if words.is_empty() && !letters.has('l') {
        return Err(Failure::usage("usage: tune2fs [letters] device"));
    }
    output.finish()?;
    if !words.is_empty() {
        tune(words, &place)?;
    }
    if letters.has('l') {
        let mut output = Output::new();
        output.bytes(lines(&dumpe2fs::superblock(&place)?).text().as_bytes())?;
        output.finish()?;
    }
    Ok(0)
}

/// Shows or sets a label.
pub(super) fn e2label(call: &Call) -> Outcome {
    match call.arguments {
        [image] => {
            let mut output = Output::new();
            output.line(dumpe2fs::superblock(&Place::parse(image)?)?.volume_name())?;
            output.finish()?;
            Ok(0)
        }
        [image, label] => tune(vec![joined("-L", truncated_label(call, label))], &Place::parse(image)?),
        _ => Err(Failure::usage("usage: e2label device [newlabel]")),
    }
}

fn joined(letter: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(letter);
    // An empty value has to be told from a missing one.
    word.push("=");
    word.push(value);
    word
}

fn tune(words: Vec<OsString>, place: &Place) -> Outcome {
    // Without an offset `tune` would look for the only file system on partitions.
    let offset = format!("--offset={}", place.offset()).into();
    let places = [offset, "--".into(), place.image.as_os_str().to_owned()];
    outcome(std::iter::once("tune".into()).chain(words).chain(places))
}
