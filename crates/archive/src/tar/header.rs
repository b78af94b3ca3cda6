//! The block that begins each member: its fields, read and written.

use extant_ondisk::mode::S_IALLUGO;

use super::BLOCK;

/// A field: its offset and length.
type Field = (usize, usize);

const NAME: Field = (0, 100);
const MODE: Field = (100, 8);
const UID: Field = (108, 8);
const GID: Field = (116, 8);
const SIZE: Field = (124, 12);
const MTIME: Field = (136, 12);
const CHECKSUM: Field = (148, 8);
const TYPE: usize = 156;
const LINK_NAME: Field = (157, 100);
const MAGIC: Field = (257, 8);
const DEVICE_MAJOR: Field = (329, 8);
const DEVICE_MINOR: Field = (337, 8);
const PREFIX: Field = (345, 155);

/// The first part of the numbers of GNU's sparse maps, in its header and in the blocks that continue it.
const GNU_SPARSE_HEADER: (usize, usize) = (386, 4);
const GNU_SPARSE_IS_CONTINUED: usize = 482;
const GNU_REAL_SIZE: Field = (483, 12);
const GNU_SPARSE_CONTINUATION: (usize, usize) = (0, 21);
const GNU_SPARSE_CONTINUATION_IS_CONTINUED: usize = 504;

/// A header as read.
pub(super) struct Header {
    block: [u8; BLOCK],
}

impl Header {
    /// The header in `block`, if its checksum is right.
    pub fn parse(block: [u8; BLOCK]) -> Option<Self> {
        let header = Self { block };
        let told = number(header.field(CHECKSUM))?;
        // Some old programs summed signed bytes.
        let (unsigned, signed) = sums(&header.block);
        (told == unsigned || told == signed).then_some(header)
    }

    fn field(&self, (at, len): Field) -> &[u8] {
        &self.block[at..at + len]
    }

    fn is_gnu(&self) -> bool {
        self.field(MAGIC) == b"ustar  \0"
    }

    fn is_posix(&self) -> bool {
        self.field((257, 6)) == b"ustar\0"
    }

    /// The kind of member.
    pub fn type_flag(&self) -> u8 {
        self.block[TYPE]
    }

    /// The name, with ustar's prefix.
    pub fn name(&self) -> Vec<u8> {
        let name = text(self.field(NAME));
        let prefix = if self.is_posix() { text(self.field(PREFIX)) } else { &[] };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    /// The target of a link.
    pub fn link_name(&self) -> Vec<u8> {
        text(self.field(LINK_NAME)).to_vec()
    }

    /// Bytes of content in the archive.
    pub fn size(&self) -> Option<u64> {
        u64::try_from(number(self.field(SIZE))?).ok()
    }

    /// Permission bits.
    pub fn mode(&self) -> Option<u16> {
        Some(number(self.field(MODE))? as u16 & S_IALLUGO)
    }

    /// Owner and group.
    pub fn owner(&self) -> (Option<u32>, Option<u32>) {
        let id = |field| number(self.field(field)).and_then(|id| u32::try_from(id).ok());
        (id(UID), id(GID))
    }

    /// Seconds since 1970.
    pub fn mtime(&self) -> Option<i64> {
        number(self.field(MTIME))
    }

    /// Major and minor number.
    pub fn device(&self) -> Option<(u32, u32)> {
        if !self.is_posix() && !self.is_gnu() {
            return None;
        }
        let part = |field| number(self.field(field)).and_then(|part| u32::try_from(part).ok());
        Some((part(DEVICE_MAJOR)?, part(DEVICE_MINOR)?))
    }

    /// The size a GNU sparse file has when unpacked.
    pub fn gnu_real_size(&self) -> Option<u64> {
        u64::try_from(number(self.field(GNU_REAL_SIZE))?).ok()
    }

    /// The ranges of a GNU sparse file, and whether blocks follow with more.
    pub fn gnu_sparse_map(&self) -> Option<(Vec<(u64, u64)>, bool)> {
        Some((gnu_ranges(&self.block, GNU_SPARSE_HEADER)?, self.block[GNU_SPARSE_IS_CONTINUED] != 0))
    }
}

/// The ranges in a block that continues a GNU sparse map, and whether another one follows.
pub(super) fn gnu_sparse_continuation(block: &[u8; BLOCK]) -> Option<(Vec<(u64, u64)>, bool)> {
    Some((gnu_ranges(block, GNU_SPARSE_CONTINUATION)?, block[GNU_SPARSE_CONTINUATION_IS_CONTINUED] != 0))
}

fn gnu_ranges(block: &[u8; BLOCK], (at, count): (usize, usize)) -> Option<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    for raw in block[at..at + count * 24].chunks(24) {
        let (offset, bytes) = raw.split_at(12);
        if offset[0] == 0 {
            break;
        }
        ranges.push((u64::try_from(number(offset)?).ok()?, u64::try_from(number(bytes)?).ok()?));
    }
    Some(ranges)
}

/// The bytes up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A number: octal digits between blanks, or two's complement with the first bit set (GNU). Blanks alone are zero.
fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let start: i128 = if negative { -1 } else { 0 };
        let head = if negative { first } else { first & 0x7f };
        let rest = field.get(1..)?;
        // 12 bytes at most, so that 128 bits hold it.
        let value =
            rest.iter().fold(start << 8 | i128::from(head), |value, byte| value << 8 | i128::from(*byte));
        return i64::try_from(value).ok();
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0_i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

/// The sum of the block with its checksum as blanks, of unsigned and of signed bytes.
fn sums(block: &[u8; BLOCK]) -> (i64, i64) {
    let blanked = block.iter().enumerate().map(|(at, byte)| match at {
        148..156 => b' ',
        _ => *byte,
    });
    blanked
        .fold((0, 0), |(unsigned, signed), byte| (unsigned + i64::from(byte), signed + i64::from(byte as i8)))
}

/// A header as written: what does not fit its fields is in PAX records before it.
pub(super) struct Fields<'a> {
    pub name: &'a [u8],
    pub type_flag: u8,
    pub mode: u16,
    pub uid: u64,
    pub gid: u64,
    pub size: u64,
    pub mtime: u64,
    pub link_name: &'a [u8],
    pub device: Option<(u32, u32)>,
}

impl Fields<'_> {
    /// The block. Numbers too large for their fields become 0, names are cut.
    pub fn to_block(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        put(&mut block, NAME, self.name);
        put_number(&mut block, MODE, self.mode.into());
        put_number(&mut block, UID, self.uid);
        put_number(&mut block, GID, self.gid);
        put_number(&mut block, SIZE, self.size);
        put_number(&mut block, MTIME, self.mtime);
        block[TYPE] = self.type_flag;
        put(&mut block, LINK_NAME, self.link_name);
        put(&mut block, MAGIC, b"ustar\x0000");
        let (major, minor) = self.device.unwrap_or_default();
        put_number(&mut block, DEVICE_MAJOR, major.into());
        put_number(&mut block, DEVICE_MINOR, minor.into());
        let checksum = format!("{:06o}\0 ", sums(&block).0);
        put(&mut block, CHECKSUM, checksum.as_bytes());
        block
    }
}

/// The largest number that the octal digits of a header hold.
pub(super) const ID_MAX: u64 = 0o7_777_777;
/// The largest size or time that a header holds.
pub(super) const SIZE_MAX: u64 = 0o77_777_777_777;
/// Bytes of a name that a header holds.
pub(super) const NAME_BYTES_MAX: usize = NAME.1;

fn put(block: &mut [u8; BLOCK], (at, len): Field, bytes: &[u8]) {
    let len = len.min(bytes.len());
    block[at..at + len].copy_from_slice(&bytes[..len]);
}

fn put_number(block: &mut [u8; BLOCK], field: Field, value: u64) {
    let digits = field.1 - 1;
    let max = (1_u64 << (3 * digits)) - 1;
    let value = if value > max { 0 } else { value };
    put(block, field, format!("{value:0digits$o}").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_twos_complement() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 1, 0]), Some(256));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0]), None);
    }

    #[test]
    fn written_headers_are_read_back() {
        let fields = Fields {
            name: b"a/b",
            type_flag: b'3',
            mode: 0o4755,
            uid: 7,
            gid: ID_MAX,
            size: SIZE_MAX,
            mtime: 12,
            link_name: b"t",
            device: Some((5, 1)),
        };
        let header = Header::parse(fields.to_block()).unwrap();
        assert_eq!((header.name(), header.type_flag(), header.mode()), (b"a/b".to_vec(), b'3', Some(0o4755)));
        assert_eq!((header.owner(), header.size()), ((Some(7), Some(ID_MAX as u32)), Some(SIZE_MAX)));
        assert_eq!((header.mtime(), header.device()), (Some(12), Some((5, 1))));
        let mut damaged = fields.to_block();
        damaged[3] ^= 1;
        assert!(Header::parse(damaged).is_none());
    }
}
