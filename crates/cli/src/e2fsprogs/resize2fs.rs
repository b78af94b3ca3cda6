//! `resize2fs`, of disks that are not mounted.

use extant::{Mount, ShrinkTo};
use extant_block::DeviceAccess;
use extant_ondisk::Superblock;

use super::letters::Letters;
use super::place::Place;
use super::{Call, dumpe2fs};
use crate::disks::open_located;
use crate::failure::Failure;
use crate::output::Output;
use crate::size;
use crate::verbs::{Outcome, outcome};

/// Makes a disk larger or smaller.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, "fFpPMV", "bsdSz")?;
    call.banner("resize2fs");
    if letters.has('V') {
        return Ok(0);
    }
    let (place, size) = match letters.places.as_slice() {
        [place] => (Place::parse(place)?, None),
        [place, size] => (Place::parse(place)?, Some(size.to_string_lossy())),
        _ => return Err(Failure::usage("usage: resize2fs [-fFpPM] device [size]")),
    };
    let before = dumpe2fs::superblock(&place)?;
    let block = u64::from(before.block_size());
    let mut output = Output::new();
    if letters.has('P') {
        output.line(format!(
            "Estimated minimum size of the filesystem: {}",
            minimum(&place)?.div_ceil(block)
        ))?;
        output.finish()?;
        return Ok(0);
    }
    let bytes = match (&size, letters.has('M')) {
        (Some(_), true) => return Err(Failure::usage("a size and -M exclude each other")),
        (Some(text), false) => size::parse(text, block).map_err(Failure::usage)?,
        (None, true) => minimum(&place)?,
        (None, false) => open_located(&place.image, DeviceAccess::read_only(), place.location())?.0.size(),
    };
    let blocks = bytes / block;
    if blocks == before.blocks_count() {
        eprintln!("The filesystem is already {}.  Nothing to do!\n", long(&before));
        return Ok(0);
    }
    let [name, kib] = [place.image.display().to_string(), (block / 1024).to_string()];
    output.line(format!("Resizing the filesystem on {name} to {blocks} ({kib}k) blocks."))?;
    output.finish()?;
    let bytes = (blocks * block).to_string().into();
    outcome(std::iter::once("resize".into()).chain(place.words()).chain([bytes]))?;
    let mut output = Output::new();
    output.line(format!("The filesystem on {name} is now {}.\n", long(&dumpe2fs::superblock(&place)?)))?;
    output.finish()?;
    Ok(0)
}

fn long(superblock: &Superblock) -> String {
    format!("{} ({}k) blocks long", superblock.blocks_count(), superblock.block_size() / 1024)
}

/// The bytes of the smallest disk that holds what is on it.
fn minimum(place: &Place) -> Result<u64, Failure> {
    let (device, _) = open_located(&place.image, DeviceAccess::read_only(), place.location())?;
    let plan = Mount::new().plan_shrink(&device, ShrinkTo::Minimum);
    Ok(plan.map_err(|error| Failure::opening(&place.image, &error))?.min_bytes)
}
