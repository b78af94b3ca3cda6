//! The journal's blocks: superblock, descriptor with its tags, revoke, commit. Big-endian.
//!
//! Leaves out: where the log is, which transactions it holds, recovery (crate `journal`).
//!
//! Invariant: every length and offset read from a block is checked against the block before it is used.
//!
//! Source: `include/linux/jbd2.h`, `fs/jbd2/{journal,commit,recovery,revoke}.c`. Checked by
//! `crates/journal/tests/interop.rs` against `debugfs` and `e2fsck`.

use bitflags::bitflags;

use crate::{FsBlock, TransactionId, crc32c};

/// `JBD2_MAGIC_NUMBER`, the first four bytes of every block of the log that is not a copy.
pub const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the superblock (`journal_superblock_t`); the rest of its block is free.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `JBD2_CRC32C_CHKSUM`, the only checksum type of CSUM_V2 and CSUM_V3.
pub const CRC32C_TYPE: u8 = 4;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`, when `s_num_fc_blks` is 0.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

const HEADER_BYTES: usize = 12;
const REVOKE_HEADER_BYTES: usize = 16;
const COMMIT_HEADER_BYTES: usize = 64;
const UUID_BYTES: usize = 16;
const TAIL_BYTES: usize = 4;
const CRC32_TYPE: u8 = 1;
const CRC32_BYTES: u8 = 4;

bitflags! {
    /// `s_feature_compat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// The commit block sums descriptors and copies (checksum version 1).
        const CHECKSUM = 1;
    }

    /// `s_feature_incompat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// The log may hold revoke blocks.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const BIT64 = 2;
        /// Commit blocks are written without waiting for the rest.
        const ASYNC_COMMIT = 4;
        /// Checksums, version 2.
        const CSUM_V2 = 8;
        /// Checksums, version 3.
        const CSUM_V3 = 0x10;
        /// The end of the log is a fast-commit area.
        const FAST_COMMIT = 0x20;
    }

    /// Flags of a tag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The copy began with the magic number, which the log holds as zero.
        const ESCAPE = 1;
        /// No UUID follows.
        const SAME_UUID = 2;
        /// Never written.
        const DELETED = 4;
        /// The last of its descriptor.
        const LAST_TAG = 8;
    }
}

/// The type of a block of the log (`h_blocktype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Tags of the copies that follow.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The superblock as ext3 first wrote it: no features.
    SuperblockV1,
    /// The superblock.
    SuperblockV2,
    /// Blocks of which older copies are void.
    Revoke,
}

impl BlockType {
    fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    fn raw(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// `journal_header_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// `h_blocktype`; `None` if unknown.
    pub block_type: Option<BlockType>,
    /// `h_sequence`.
    pub sequence: TransactionId,
}

impl Header {
    /// The header of a block, or `None` without the magic number.
    #[must_use]
    pub fn parse(block: &[u8]) -> Option<Self> {
        if be32(block, 0)? != MAGIC {
            return None;
        }
        Some(Self {
            block_type: BlockType::from_raw(be32(block, 4)?),
            sequence: TransactionId(be32(block, 8)?),
        })
    }

    fn write(block_type: BlockType, sequence: TransactionId, block: &mut [u8]) {
        put32(block, 0, MAGIC);
        put32(block, 4, block_type.raw());
        put32(block, 8, sequence.0);
    }
}

/// A fault of a journal superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuperblockFault {
    /// Too short, no magic number, or not a superblock.
    NotASuperblock,
    /// Incompatible or read-only-compatible features that are not known, or features that exclude each other.
    Features(u32),
    /// Wrong checksum, or a checksum type that is not known.
    Checksum,
}

/// `journal_superblock_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes per block.
    pub s_blocksize: u32,
    /// Blocks of the log with its superblock.
    pub s_maxlen: u32,
    /// The first block of the log that may hold transactions.
    pub s_first: u32,
    /// The first transaction to expect.
    pub s_sequence: TransactionId,
    /// The first block of the log that is in use; 0 if the log is empty.
    pub s_start: u32,
    /// Why the journal was aborted, as a negative errno; 0 if it was not.
    pub s_errno: i32,
    /// Compatible features.
    pub s_feature_compat: Compat,
    /// Incompatible features.
    pub s_feature_incompat: Incompat,
    /// Read-only-compatible features; none is defined.
    pub s_feature_ro_compat: u32,
    /// The journal's UUID.
    pub s_uuid: [u8; UUID_BYTES],
    /// File systems that use it.
    pub s_nr_users: u32,
    /// `JBD2_CRC32C_CHKSUM` with CSUM_V2 or CSUM_V3.
    pub s_checksum_type: u8,
    /// Blocks of the fast-commit area; 0 means the default.
    pub s_num_fc_blks: u32,
    /// Where the log ended at a clean unmount.
    pub s_head: u32,
}

impl Superblock {
    /// Reads and checks what a superblock can say about itself. Its numbers are not yet compared with anything.
    ///
    /// # Errors
    /// The fault found in it.
    pub fn parse(block: &[u8]) -> Result<Self, SuperblockFault> {
        let sb = block.get(..SUPERBLOCK_BYTES).ok_or(SuperblockFault::NotASuperblock)?;
        let version = Header::parse(sb).and_then(|header| header.block_type);
        let v2 = match version {
            Some(BlockType::SuperblockV1) => false,
            Some(BlockType::SuperblockV2) => true,
            _ => return Err(SuperblockFault::NotASuperblock),
        };
        let field = |at| be32(sb, at).unwrap_or(0);
        let extended = |at| if v2 { field(at) } else { 0 };
        let raw_incompat = extended(0x28);
        let incompat = Incompat::from_bits(raw_incompat)
            .ok_or(SuperblockFault::Features(raw_incompat & !Incompat::all().bits()))?;
        if incompat.contains(Incompat::CSUM_V2 | Incompat::CSUM_V3) {
            return Err(SuperblockFault::Features(raw_incompat));
        }
        // No read-only-compatible feature is defined, and the kernel refuses a journal with any.
        if extended(0x2C) != 0 {
            return Err(SuperblockFault::Features(extended(0x2C)));
        }
        let mut s_uuid = [0; UUID_BYTES];
        if v2 {
            s_uuid.copy_from_slice(&sb[0x30..0x30 + UUID_BYTES]);
        }
        let parsed = Self {
            s_blocksize: field(0x0C),
            s_maxlen: field(0x10),
            s_first: field(0x14),
            s_sequence: TransactionId(field(0x18)),
            s_start: field(0x1C),
            s_errno: field(0x20) as i32,
            s_feature_compat: Compat::from_bits_retain(extended(0x24)),
            s_feature_incompat: incompat,
            s_feature_ro_compat: extended(0x2C),
            s_uuid,
            s_nr_users: extended(0x40),
            s_checksum_type: if v2 { sb[0x50] } else { 0 },
            s_num_fc_blks: extended(0x54),
            s_head: extended(0x58),
        };
        if incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3)
            && (parsed.s_checksum_type != CRC32C_TYPE || field(0xFC) != Self::checksum(sb))
        {
            return Err(SuperblockFault::Checksum);
        }
        Ok(parsed)
    }

    /// Writes the fields and the checksum into a block, as version 2. Bytes of the block that are no field of
    /// this type keep their value, unless the block held a version 1 superblock, which has garbage there.
    ///
    /// # Panics
    /// If the block is shorter than a superblock.
    pub fn write(&self, block: &mut [u8]) {
        if !matches!(Header::parse(block), Some(Header { block_type: Some(BlockType::SuperblockV2), .. })) {
            block[..SUPERBLOCK_BYTES].fill(0);
        }
        Header::write(BlockType::SuperblockV2, TransactionId(0), block);
        put32(block, 0x0C, self.s_blocksize);
        put32(block, 0x10, self.s_maxlen);
        put32(block, 0x14, self.s_first);
        put32(block, 0x18, self.s_sequence.0);
        put32(block, 0x1C, self.s_start);
        put32(block, 0x20, self.s_errno as u32);
        put32(block, 0x24, self.s_feature_compat.bits());
        put32(block, 0x28, self.s_feature_incompat.bits());
        put32(block, 0x2C, self.s_feature_ro_compat);
        block[0x30..0x30 + UUID_BYTES].copy_from_slice(&self.s_uuid);
        put32(block, 0x40, self.s_nr_users);
        block[0x50] = self.s_checksum_type;
        put32(block, 0x54, self.s_num_fc_blks);
        put32(block, 0x58, self.s_head);
        let checksummed = self.s_feature_incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3);
        let sum = if checksummed { Self::checksum(&block[..SUPERBLOCK_BYTES]) } else { 0 };
        put32(block, 0xFC, sum);
    }

    fn checksum(sb: &[u8]) -> u32 {
        let sum = crc32c(!0, &sb[..0xFC]);
        let sum = crc32c(sum, &[0; 4]);
        crc32c(sum, &sb[0x100..])
    }

    /// Blocks at the end of the log that belong to the fast-commit area.
    #[must_use]
    pub fn fast_commit_blocks(&self) -> u32 {
        match (self.s_feature_incompat.contains(Incompat::FAST_COMMIT), self.s_num_fc_blks) {
            (false, _) => 0,
            (true, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, blocks) => blocks,
        }
    }

    /// How blocks of this log are written.
    #[must_use]
    pub fn format(&self) -> Format {
        Format {
            block_bytes: self.s_blocksize as usize,
            incompat: self.s_feature_incompat,
            uuid: self.s_uuid,
            seed: crc32c(!0, &self.s_uuid),
        }
    }
}

/// How the blocks of one log are laid out: it follows from the features, the UUID and the block size.
#[derive(Clone, Debug)]
pub struct Format {
    block_bytes: usize,
    incompat: Incompat,
    uuid: [u8; UUID_BYTES],
    seed: u32,
}

/// The descriptor's record of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Where the block lives.
    pub block: FsBlock,
    /// Its flags.
    pub flags: TagFlags,
    /// The copy's checksum: 16 bits of it with CSUM_V2, nothing without checksums.
    pub checksum: u32,
}

/// A commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Seconds after 1970 when it was written.
    pub seconds: u64,
    /// The version 1 checksum of the transaction, if it has one.
    pub crc32: Option<u32>,
    /// Whether the version 1 checksum's fields are valid.
    pub crc32_fields_valid: bool,
}

impl Format {
    /// Bytes per block of the log.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Whether descriptors, revokes, commits and copies are summed (CSUM_V2 or CSUM_V3).
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3)
    }

    /// `journal_tag_bytes()`: with CSUM_V2 a tag is two bytes longer than its fields.
    fn tag_bytes(&self) -> usize {
        if self.incompat.contains(Incompat::CSUM_V3) {
            return 16;
        }
        let wide = if self.incompat.contains(Incompat::BIT64) { 12 } else { 8 };
        wide + if self.incompat.contains(Incompat::CSUM_V2) { 2 } else { 0 }
    }

    fn tail_bytes(&self) -> usize {
        if self.has_checksums() { TAIL_BYTES } else { 0 }
    }

    fn record_bytes(&self) -> usize {
        if self.incompat.contains(Incompat::BIT64) { 8 } else { 4 }
    }

    /// Where tags and records end.
    fn end(&self, block: &[u8]) -> usize {
        block.len().min(self.block_bytes).saturating_sub(self.tail_bytes())
    }

    /// Tags that one descriptor holds.
    #[must_use]
    pub fn tags_per_descriptor(&self) -> usize {
        let room = self.block_bytes.saturating_sub(HEADER_BYTES + UUID_BYTES + self.tail_bytes());
        room / self.tag_bytes()
    }

    /// Records that one revoke block holds.
    #[must_use]
    pub fn records_per_revoke(&self) -> usize {
        self.block_bytes.saturating_sub(REVOKE_HEADER_BYTES + self.tail_bytes()) / self.record_bytes()
    }

    /// The checksum of a copy, as it lies in the log (escaped).
    #[must_use]
    pub fn copy_checksum(&self, sequence: TransactionId, copy: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.0.to_be_bytes()), copy)
    }

    /// Whether a copy matches its tag; true without checksums.
    #[must_use]
    pub fn copy_matches(&self, sequence: TransactionId, copy: &[u8], tag: &Tag) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let sum = self.copy_checksum(sequence, copy);
        if self.incompat.contains(Incompat::CSUM_V3) {
            sum == tag.checksum
        } else {
            sum & 0xFFFF == tag.checksum
        }
    }

    /// Whether the tail of a descriptor or revoke block matches; true without checksums.
    #[must_use]
    pub fn tail_matches(&self, block: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let end = self.end(block);
        be32(block, end) == Some(self.tail_checksum(block, end))
    }

    fn tail_checksum(&self, block: &[u8], end: usize) -> u32 {
        crc32c(crc32c(self.seed, &block[..end]), &[0; TAIL_BYTES])
    }

    fn seal(&self, block: &mut [u8]) {
        if self.has_checksums() {
            let end = self.end(block);
            let sum = self.tail_checksum(block, end);
            put32(block, end, sum);
        }
    }

    /// The tags of a descriptor, up to the last or to the end of the block.
    pub fn tags<'a>(&'a self, descriptor: &'a [u8]) -> impl Iterator<Item = Tag> + 'a {
        let mut at = HEADER_BYTES;
        let mut last = false;
        std::iter::from_fn(move || {
            if last || at + self.tag_bytes() > self.end(descriptor) {
                return None;
            }
            let tag = self.tag_at(descriptor, at)?;
            last = tag.flags.contains(TagFlags::LAST_TAG);
            at += self.tag_bytes();
            if !tag.flags.contains(TagFlags::SAME_UUID) {
                at += UUID_BYTES;
            }
            Some(tag)
        })
    }

    fn tag_at(&self, block: &[u8], at: usize) -> Option<Tag> {
        let low = u64::from(be32(block, at)?);
        let wide = self.incompat.contains(Incompat::BIT64);
        let high = if wide { u64::from(be32(block, at + 8)?) } else { 0 };
        let (flags, checksum) = if self.incompat.contains(Incompat::CSUM_V3) {
            (be32(block, at + 4)?, be32(block, at + 12)?)
        } else {
            (u32::from(be16(block, at + 6)?), u32::from(be16(block, at + 4)?))
        };
        Some(Tag { block: FsBlock(low | high << 32), flags: TagFlags::from_bits_retain(flags), checksum })
    }

    /// A descriptor of `tags`, whose flags SAME_UUID and LAST_TAG are set here.
    ///
    /// # Panics
    /// With more tags than [`Format::tags_per_descriptor`].
    #[must_use]
    pub fn descriptor(&self, sequence: TransactionId, tags: &[Tag]) -> Box<[u8]> {
        let mut block = vec![0; self.block_bytes].into_boxed_slice();
        Header::write(BlockType::Descriptor, sequence, &mut block);
        let mut at = HEADER_BYTES;
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = tag.flags - TagFlags::SAME_UUID - TagFlags::LAST_TAG;
            flags.set(TagFlags::SAME_UUID, index > 0);
            flags.set(TagFlags::LAST_TAG, index + 1 == tags.len());
            put32(&mut block, at, tag.block.0 as u32);
            if self.incompat.contains(Incompat::BIT64) {
                put32(&mut block, at + 8, (tag.block.0 >> 32) as u32);
            }
            if self.incompat.contains(Incompat::CSUM_V3) {
                put32(&mut block, at + 4, flags.bits());
                put32(&mut block, at + 12, tag.checksum);
            } else {
                let sum = if self.incompat.contains(Incompat::CSUM_V2) { tag.checksum } else { 0 };
                put32(&mut block, at + 4, sum << 16 | flags.bits());
            }
            at += self.tag_bytes();
            if index == 0 {
                block[at..at + UUID_BYTES].copy_from_slice(&self.uuid);
                at += UUID_BYTES;
            }
        }
        self.seal(&mut block);
        block
    }

    /// The records of a revoke block, or `None` if its length is impossible.
    #[must_use]
    pub fn revokes<'a>(&self, block: &'a [u8]) -> Option<impl Iterator<Item = FsBlock> + 'a + use<'a>> {
        let end = usize::try_from(be32(block, HEADER_BYTES)?).ok()?;
        if end > self.end(block) {
            return None;
        }
        let records = block.get(REVOKE_HEADER_BYTES..end).unwrap_or(&[]);
        let bytes = self.record_bytes();
        Some(
            records
                .chunks_exact(bytes)
                .map(|record| FsBlock(record.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))),
        )
    }

    /// A revoke block of `blocks`.
    ///
    /// # Panics
    /// With more blocks than [`Format::records_per_revoke`].
    #[must_use]
    pub fn revoke(&self, sequence: TransactionId, blocks: &[FsBlock]) -> Box<[u8]> {
        let mut block = vec![0; self.block_bytes].into_boxed_slice();
        Header::write(BlockType::Revoke, sequence, &mut block);
        let mut at = REVOKE_HEADER_BYTES;
        for freed in blocks {
            let number = freed.0.to_be_bytes();
            let record = &number[8 - self.record_bytes()..];
            block[at..at + record.len()].copy_from_slice(record);
            at += record.len();
        }
        put32(&mut block, HEADER_BYTES, at as u32);
        self.seal(&mut block);
        block
    }

    /// A commit block, written at a wall-clock time.
    #[must_use]
    pub fn commit(&self, sequence: TransactionId, seconds: i64, nanoseconds: u32) -> Box<[u8]> {
        let mut block = vec![0; self.block_bytes].into_boxed_slice();
        Header::write(BlockType::Commit, sequence, &mut block);
        block[0x30..0x38].copy_from_slice(&seconds.to_be_bytes());
        put32(&mut block, 0x38, nanoseconds);
        if self.has_checksums() {
            let sum = crc32c(self.seed, &block);
            put32(&mut block, 0x10, sum);
        }
        block
    }

    /// The fields of a commit block.
    #[must_use]
    pub fn parse_commit(&self, block: &[u8]) -> Option<Commit> {
        let seconds = u64::from(be32(block, 0x30)?) << 32 | u64::from(be32(block, 0x34)?);
        let (kind, bytes, sum) = (*block.get(0x0C)?, *block.get(0x0D)?, be32(block, 0x10)?);
        let summed = kind == CRC32_TYPE && bytes == CRC32_BYTES;
        Some(Commit {
            seconds,
            crc32: summed.then_some(sum),
            crc32_fields_valid: summed || (kind == 0 && bytes == 0 && sum == 0),
        })
    }

    /// Whether a commit block's checksum is right; true without checksums. As in the kernel, one whose bytes
    /// behind the header did not reach the disk counts as right.
    #[must_use]
    pub fn commit_matches(&self, block: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let (Some(found), Some(header)) = (be32(block, 0x10), block.get(..COMMIT_HEADER_BYTES)) else {
            return false;
        };
        let start = crc32c(crc32c(crc32c(self.seed, &header[..0x10]), &[0; 4]), &header[0x14..]);
        let rest = &block[COMMIT_HEADER_BYTES..];
        found == crc32c(start, rest) || found == crc32c(start, &vec![0; rest.len()])
    }
}

/// One step of the version 1 checksum (`crc32_be`), which starts at all ones and covers every descriptor and
/// copy of a transaction.
#[must_use]
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    static CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);
    let mut digest = CRC.digest_with_initial(seed);
    digest.update(bytes);
    digest.finalize()
}

/// Makes a copy fit for the log: one that begins with the magic number is changed. Returns whether it was.
pub fn escape(copy: &mut [u8]) -> bool {
    let escaped = needs_escape(copy);
    if escaped {
        put32(copy, 0, 0);
    }
    escaped
}

/// Whether [`escape`] would change it.
#[must_use]
pub fn needs_escape(copy: &[u8]) -> bool {
    be32(copy, 0) == Some(MAGIC)
}

/// Undoes [`escape`].
pub fn unescape(copy: &mut [u8]) {
    if copy.len() >= 4 {
        put32(copy, 0, MAGIC);
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
