//! The maps of sparse members, in the four forms that GNU tar has written over the years.

use super::header::{Header, gnu_sparse_continuation};
use super::input::Input;
use super::pax::{Record, decimal};
use super::{BLOCK, padding};
use crate::entry::{DataRange, RANGES_MAX, Shape, TOO_MANY_RANGES};
use crate::error::Error;

/// Digits of a number in the map before the content (format 1.0).
const DIGITS_MAX: usize = 20;

const MALFORMED: &str = "a malformed sparse map";

/// Why a map cannot be read.
pub(super) enum Unreadable {
    /// The archive ends or fails there.
    Input(Error),
    /// What is wrong with the map.
    Map(&'static str),
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self::Input(error)
    }
}

impl From<&'static str> for Unreadable {
    fn from(reason: &'static str) -> Self {
        Self::Map(reason)
    }
}

impl Unreadable {
    /// The error, of which `refused` names the member.
    pub fn at(self, refused: impl FnOnce(&'static str) -> Error) -> Error {
        match self {
            Self::Input(error) => error,
            Self::Map(reason) => refused(reason),
        }
    }
}

/// The fields about holes in the records of a member.
#[derive(Default)]
pub(super) struct SparseRecords {
    /// Its size with holes.
    pub real_size: Option<u64>,
    /// Its real name (formats 0.1 and 1.0).
    pub name: Option<Vec<u8>>,
    /// Offsets and lengths by turns (formats 0.0 and 0.1).
    numbers: Option<Vec<u64>>,
    /// The map precedes the content (format 1.0).
    in_content: bool,
}

impl SparseRecords {
    /// Takes a `GNU.sparse.` record; `keyword` without that.
    fn take(&mut self, keyword: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match keyword {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.in_content = value == b"1",
            b"size" | b"realsize" => self.real_size = decimal(value),
            b"offset" | b"numbytes" => {
                let numbers = self.numbers.get_or_insert_default();
                // The two come by turns.
                if numbers.len().is_multiple_of(2) != (keyword == b"offset") {
                    return Err(MALFORMED);
                }
                numbers.push(decimal(value).ok_or(MALFORMED)?);
            }
            b"map" => {
                let texts = || value.split(|byte| *byte == b',').filter(|number| !number.is_empty());
                if texts().count() > 2 * RANGES_MAX {
                    return Err(TOO_MANY_RANGES);
                }
                self.numbers = Some(texts().map(decimal).collect::<Option<_>>().ok_or(MALFORMED)?);
            }
            // `minor`, and `numblocks`, which the map itself contains.
            _ => {}
        }
        Ok(())
    }

    /// The shape of the member's content, of which `stored` bytes are in the archive. Reads the map from the start
    /// of the content if it is there, and takes its bytes from `stored`. None if the member has no holes.
    pub fn shape(self, input: &mut Input, stored: &mut u64) -> Result<Option<Shape>, Unreadable> {
        let numbers = if self.in_content { Some(read_map(input, stored)?) } else { self.numbers };
        let Some(numbers) = numbers else { return Ok(None) };
        let size = self.real_size.ok_or("a sparse file without a size")?;
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("a sparse map with an odd count".into());
        }
        let ranges = pairs.iter().map(|[offset, bytes]| DataRange { offset: *offset, bytes: *bytes });
        Ok(Some(Shape::sparse(size, ranges)?))
    }
}

/// The shape of a member in GNU's own form, whose map is in its header and in blocks behind it.
pub(super) fn gnu_shape(input: &mut Input, header: &Header) -> Result<Shape, Unreadable> {
    let size = header.gnu_real_size().ok_or(MALFORMED)?;
    let (mut ranges, mut continued) = header.gnu_sparse_map().ok_or(MALFORMED)?;
    while continued {
        let block = input.block()?.ok_or(MALFORMED)?;
        let (more, further) = gnu_sparse_continuation(&block).ok_or(MALFORMED)?;
        ranges.extend(more);
        if ranges.len() > RANGES_MAX {
            return Err(TOO_MANY_RANGES.into());
        }
        continued = further;
    }
    let ranges = ranges.into_iter().map(|(offset, bytes)| DataRange { offset, bytes });
    Ok(Shape::sparse(size, ranges)?)
}

/// The records of a member that begin with `GNU.sparse.`, or what is wrong with one.
pub(super) fn records(records: &[Record]) -> Result<SparseRecords, &'static str> {
    let mut sparse = SparseRecords::default();
    for (keyword, value) in records {
        if let Some(keyword) = keyword.strip_prefix(b"GNU.sparse.") {
            sparse.take(keyword, value)?;
        }
    }
    Ok(sparse)
}

/// The map before the content: a count, then that many offsets and lengths, each number on a line of its own, up to
/// a whole block.
fn read_map(input: &mut Input, stored: &mut u64) -> Result<Vec<u64>, Unreadable> {
    let mut numbers = Vec::new();
    let mut digits = Vec::new();
    let mut wanted = None;
    loop {
        *stored = stored.checked_sub(BLOCK as u64).ok_or(MALFORMED)?;
        for byte in input.block()?.ok_or(MALFORMED)? {
            if byte != b'\n' {
                digits.push(byte);
                if digits.len() > DIGITS_MAX {
                    return Err(MALFORMED.into());
                }
                continue;
            }
            let number = decimal(&digits).ok_or(MALFORMED)?;
            digits.clear();
            if wanted.is_some() {
                numbers.push(number);
            } else {
                if number > RANGES_MAX as u64 {
                    return Err(TOO_MANY_RANGES.into());
                }
                wanted = Some(2 * number);
            }
            if wanted == Some(numbers.len() as u64) {
                return Ok(numbers);
            }
        }
    }
}

/// The map before the content of `shape`, padded to whole blocks.
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
