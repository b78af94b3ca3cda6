//! The maps of sparse members, in the four forms that GNU tar has written over the years.

use super::input::Input;
use super::pax::{Record, decimal};
use super::{BLOCK, padding};
use crate::entry::{DataRange, Shape};
use crate::error::{Error, Result};

/// Digits of a number in the map that stands before the content (format 1.0).
const DIGITS_MAX: usize = 20;

/// What the records of a member say about holes.
#[derive(Default)]
pub(super) struct SparseRecords {
    /// Its size with holes.
    pub real_size: Option<u64>,
    /// Its real name (formats 0.1 and 1.0).
    pub name: Option<Vec<u8>>,
    /// Offsets and lengths by turns (formats 0.0 and 0.1).
    numbers: Option<Vec<u64>>,
    /// The map stands before the content (format 1.0).
    in_content: bool,
}

impl SparseRecords {
    /// Takes a `GNU.sparse.` record; `keyword` without that. False if it is malformed.
    pub fn take(&mut self, keyword: &[u8], value: &[u8]) -> bool {
        match keyword {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.in_content = value == b"1",
            b"size" | b"realsize" => self.real_size = decimal(value),
            b"offset" | b"numbytes" => {
                let numbers = self.numbers.get_or_insert_default();
                // The two come by turns.
                if numbers.len().is_multiple_of(2) != (keyword == b"offset") {
                    return false;
                }
                let Some(number) = decimal(value) else { return false };
                numbers.push(number);
            }
            b"map" => {
                let numbers = value.split(|byte| *byte == b',').filter(|number| !number.is_empty());
                let Some(numbers) = numbers.map(decimal).collect() else { return false };
                self.numbers = Some(numbers);
            }
            // `minor`, and `numblocks`, which the map itself tells.
            _ => {}
        }
        true
    }

    /// The shape of the member's content, of which `stored` bytes are in the archive. Reads the map off the
    /// content if it stands there, and takes its bytes from `stored`. None if the member has no holes.
    pub fn shape(&self, input: &mut Input, stored: &mut u64) -> Result<Option<Shape>> {
        let offset = input.offset();
        let malformed = |reason| Error::Format { offset, reason };
        let numbers = if self.in_content { Some(read_map(input, stored)?) } else { self.numbers.clone() };
        let Some(numbers) = numbers else { return Ok(None) };
        let size = self.real_size.ok_or_else(|| malformed("a sparse file without a size"))?;
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(malformed("a sparse map with an odd count"));
        }
        let ranges = pairs.iter().map(|[offset, bytes]| DataRange { offset: *offset, bytes: *bytes });
        Shape::sparse(size, ranges).map(Some).map_err(malformed)
    }
}

/// The records of a member that begin with `GNU.sparse.`; none if one is malformed.
pub(super) fn records(records: &[Record]) -> Option<SparseRecords> {
    let mut sparse = SparseRecords::default();
    for (keyword, value) in records {
        if let Some(keyword) = keyword.strip_prefix(b"GNU.sparse.")
            && !sparse.take(keyword, value)
        {
            return None;
        }
    }
    Some(sparse)
}

/// The map before the content: a count, then that many offsets and lengths, each number on a line of its own, up to
/// a whole block.
fn read_map(input: &mut Input, stored: &mut u64) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let mut digits = Vec::new();
    let mut wanted = None;
    loop {
        let offset = input.offset();
        let malformed = || Error::Format { offset, reason: "malformed sparse map" };
        *stored = stored.checked_sub(BLOCK as u64).ok_or_else(malformed)?;
        for byte in input.block()?.ok_or_else(malformed)? {
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > DIGITS_MAX {
                    return Err(malformed());
                }
                continue;
            }
            let number = decimal(&digits).ok_or_else(malformed)?;
            digits.clear();
            if wanted.is_some() {
                numbers.push(number);
            } else {
                wanted = Some(number.checked_mul(2).ok_or_else(malformed)?);
            }
            if wanted == Some(numbers.len() as u64) {
                return Ok(numbers);
            }
        }
    }
}

/// The map that stands before the content of `shape`, padded to whole blocks.
pub(super) fn format_map(shape: &Shape) -> Vec<u8> {
    let mut ranges: Vec<_> = shape.ranges.iter().map(|range| (range.offset, range.bytes)).collect();
    // A trailing hole needs an empty range at its end, or readers stop before it.
    if shape.ranges.last().is_none_or(|last| last.offset + last.bytes < shape.size) {
        ranges.push((shape.size, 0));
    }
    let mut map = format!("{}\n", ranges.len()).into_bytes();
    for (offset, bytes) in ranges {
        map.extend(format!("{offset}\n{bytes}\n").bytes());
    }
    let padded = map.len() + padding(map.len() as u64) as usize;
    map.resize(padded, 0);
    map
}
