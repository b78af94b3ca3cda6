//! Extended options, spelled as `mke2fs -E` spells them.

use extant_ondisk::QuotaType;

use super::{Error, Result};

/// The options of `-E`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    /// Write no inode tables and leave groups uninitialised; by default if descriptors are summed.
    pub lazy_itable_init: Option<bool>,
    /// Do not zero the journal.
    pub lazy_journal_init: bool,
    /// Discard the device first.
    pub discard: bool,
    /// The device reads as zeros wherever it was not written.
    pub assume_storage_prezeroed: bool,
    pub root_owner: (u32, u32),
    pub stride: u16,
    pub stripe_width: u32,
    /// The size that the disk should be able to grow to, in blocks.
    pub resize_blocks: Option<u64>,
    pub packed_meta_blocks: bool,
    /// Copies of the superblock with `sparse_super2`.
    pub backup_superblocks: Option<u8>,
    pub mmp_update_interval_s: Option<u16>,
    pub orphan_file_blocks: Option<u32>,
    /// What usage is counted by.
    pub quota_types: Option<Vec<QuotaType>>,
}

impl Extended {
    /// Applies `name` or `name=value` words separated by commas. Returns the hash seed, if one was among them.
    pub fn edit(&mut self, words: &str, block_size: u32) -> Result<Option<[u8; 16]>> {
        let mut hash_seed = None;
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if name == "hash_seed" {
                hash_seed = Some(parse_uuid(value.unwrap_or_default())?);
            } else {
                self.set(name, value, block_size)?;
            }
        }
        Ok(hash_seed)
    }

    fn set(&mut self, name: &str, value: Option<&str>, block_size: u32) -> Result<()> {
        match name {
            "lazy_itable_init" => self.lazy_itable_init = Some(switch(value)?),
            "lazy_journal_init" => self.lazy_journal_init = switch(value)?,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "assume_storage_prezeroed" => self.assume_storage_prezeroed = switch(value)?,
            "root_owner" => {
                let owner = value.unwrap_or_default();
                let numbers =
                    owner.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
                self.root_owner =
                    numbers.ok_or_else(|| Error::invalid("owner of the root directory", owner))?;
            }
            "stride" => self.stride = number("stride", value)?,
            "stripe_width" | "stripe-width" => self.stripe_width = number("stripe width", value)?,
            "resize" => self.resize_blocks = Some(number("size to resize to", value)?),
            "packed_meta_blocks" => self.packed_meta_blocks = switch(value)?,
            "num_backup_sb" => {
                let count: u8 = number("number of backup superblocks", value)?;
                if count > 2 {
                    return Err(Error::invalid("number of backup superblocks", count));
                }
                self.backup_superblocks = Some(count);
            }
            "mmp_update_interval" => {
                let seconds: u16 = number("MMP update interval", value)?;
                if seconds > extant_ondisk::mmp::MAX_CHECK_INTERVAL_S {
                    return Err(Error::invalid("MMP update interval", seconds));
                }
                self.mmp_update_interval_s = Some(seconds);
            }
            "orphan_file_size" => {
                self.orphan_file_blocks = Some(blocks("size of the orphan file", value, block_size)?);
            }
            "quotatype" => self.quota_types = Some(quota_types(value.unwrap_or_default())?),
            _ => return Err(Error::UnknownOption(name.to_owned())),
        }
        Ok(())
    }
}

/// `usrquota`, `grpquota` and `prjquota`, or without `quota`, between colons.
fn quota_types(value: &str) -> Result<Vec<QuotaType>> {
    let quota_type = |word: &str| match word {
        "usr" | "usrquota" => Ok(QuotaType::User),
        "grp" | "grpquota" => Ok(QuotaType::Group),
        "prj" | "prjquota" => Ok(QuotaType::Project),
        _ => Err(Error::invalid("type of quotas", word)),
    };
    value.split(':').map(quota_type).collect()
}

fn switch(value: Option<&str>) -> Result<bool> {
    match value {
        None => Ok(true),
        Some(value) => number::<u64>("switch", Some(value)).map(|number| number != 0),
    }
}

fn number<T: std::str::FromStr>(what: &'static str, value: Option<&str>) -> Result<T> {
    let value = value.unwrap_or_default();
    value.parse().map_err(|_| Error::invalid(what, value))
}

/// A number of blocks, or of bytes with a suffix.
fn blocks(what: &'static str, value: Option<&str>, block_size: u32) -> Result<u32> {
    let value = value.unwrap_or_default();
    let shift = match value.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        _ => return number(what, Some(value)),
    };
    let invalid = || Error::invalid(what, value);
    let count: u32 =
        value.get(..value.len() - 1).and_then(|digits| digits.parse().ok()).ok_or_else(invalid)?;
    u32::try_from((u64::from(count) << shift).div_ceil(u64::from(block_size))).map_err(|_| invalid())
}

/// A UUID in its usual form of hexadecimal digits, hyphens anywhere.
pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    match (digits.len(), u128::from_str_radix(&digits, 16)) {
        (32, Ok(number)) => Ok(number.to_be_bytes()),
        _ => Err(Error::invalid("UUID", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_as_mke2fs_takes_them() {
        let mut extended = Extended::default();
        let seed = extended
            .edit("lazy_itable_init=0,root_owner=5:6,stride=8,,discard,hash_seed=00000000-0000-0000-0000-0000000000ff", 4096)
            .expect("known words");
        assert_eq!(seed.map(|seed| seed[15]), Some(255));
        assert_eq!((extended.lazy_itable_init, extended.root_owner), (Some(false), (5, 6)));
        extended.edit("nodiscard,lazy_journal_init,orphan_file_size=1M", 4096).expect("known words");
        assert!(!extended.discard && extended.lazy_journal_init);
        assert_eq!(extended.orphan_file_blocks, Some(256));
    }

    #[test]
    fn unknown_words_and_bad_values_are_refused() {
        for words in
            ["quotatype=owner", "stride=x", "root_owner", "hash_seed=12", "num_backup_sb=3", "stride=70000"]
        {
            assert!(Extended::default().edit(words, 4096).is_err(), "{words}");
        }
    }
}
