//! The options of `-o`.

mod linux;

use std::collections::BTreeSet;
use std::path::Path;

use extant::{AccessTimes, QuotaType};
use extant_fuse::MountOptions;

use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::size;
use crate::volume_name::VolumeName;
use linux::Meaning;

/// How to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub read_only: bool,
    pub suid: bool,
    pub dev: bool,
    pub noexec: bool,
    /// None: as suits the user.
    pub allow_other: Option<bool>,
    pub idmap: bool,
    /// None: as suits the user and the disk.
    pub fakeroot: Option<bool>,
    pub access_times: AccessTimes,
    pub nodiratime: bool,
    pub nocontrol: bool,
    pub norecovery: bool,
    /// Stop writing at damage, whatever the superblock says.
    pub stop_on_damage: bool,
    pub discard: bool,
    /// The types whose limits are in force.
    pub quotas: BTreeSet<QuotaType>,
    /// Bytes of written data that may wait for the disk; 0: each write goes there at once. None: as suits the device.
    pub page_cache: Option<u64>,
    /// Blocks are allocated when they are written, which excludes a page cache.
    pub nodelalloc: bool,
    pub offset: Option<u64>,
    pub partition: Option<u32>,
    pub volume: Option<VolumeName>,
}

/// A location as options say it.
pub fn words_of(location: ImageLocation) -> impl Iterator<Item = String> {
    let offset = location.offset.map(|offset| format!("offset={offset}"));
    let partition = location.partition.map(|partition| format!("partition={partition}"));
    let volume = location.volume.map(|volume| format!("volume={volume}"));
    offset.into_iter().chain(partition).chain(volume)
}

impl Options {
    /// Reads words separated by commas.
    ///
    /// # Errors
    /// A word that is not known, by name.
    pub fn parse(lists: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        for word in lists.iter().flat_map(|list| list.split(',')) {
            options.add(word)?;
        }
        let places = [options.offset.is_some(), options.partition.is_some(), options.volume.is_some()];
        if places.iter().filter(|is_named| **is_named).count() > 1 {
            return Err(Failure::usage("offset, partition and volume exclude each other"));
        }
        if options.nodelalloc && *options.page_cache.get_or_insert(0) > 0 {
            return Err(Failure::usage("nodelalloc and page_cache exclude each other"));
        }
        if options.idmap && options.fakeroot == Some(true) {
            return Err(Failure::usage("idmap and fakeroot exclude each other"));
        }
        Ok(options)
    }

    fn add(&mut self, word: &str) -> Result<(), Failure> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            "idmap" => self.idmap = true,
            "fakeroot" => self.fakeroot = Some(true),
            "nofakeroot" => self.fakeroot = Some(false),
            "noatime" => self.access_times = AccessTimes::None,
            "relatime" => self.access_times = AccessTimes::Relative,
            "strictatime" => self.access_times = AccessTimes::Strict,
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            "nocontrol" => self.nocontrol = true,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "usrquota" | "quota" => drop(self.quotas.insert(QuotaType::User)),
            "grpquota" => drop(self.quotas.insert(QuotaType::Group)),
            "prjquota" => drop(self.quotas.insert(QuotaType::Project)),
            "noquota" => self.quotas.clear(),
            "norecovery" | "noload" => self.norecovery = true,
            "errors=remount-ro" => self.stop_on_damage = true,
            "errors=continue" => self.stop_on_damage = false,
            _ => return self.add_with_value(word),
        }
        Ok(())
    }

    fn add_with_value(&mut self, word: &str) -> Result<(), Failure> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let invalid = |_| Failure::usage(format!("-o {word}: not a number"));
        let bytes =
            || size::parse_bytes(value).map_err(|error| Failure::usage(format!("-o {word}: {error}")));
        match key {
            "offset" => self.offset = Some(bytes()?),
            "page_cache" => self.page_cache = Some(bytes()?),
            "partition" => self.partition = Some(value.parse().map_err(invalid)?),
            "volume" => {
                let invalid = |error| Failure::usage(format!("-o {word}: {error}"));
                self.volume = Some(value.parse().map_err(invalid)?);
            }
            _ => return self.add_of_linux(word),
        }
        Ok(())
    }

    /// A word of Linux that changes nothing here, or that is refused.
    fn add_of_linux(&mut self, word: &str) -> Result<(), Failure> {
        if word.is_empty() || word.starts_with("x-") || word.starts_with("X-") {
            return Ok(());
        }
        match linux::find(word) {
            Some((_, Meaning::Accepted(_))) => {
                self.nodelalloc |= word == "nodelalloc";
                Ok(())
            }
            Some((_, Meaning::Refused(reason))) => Err(Failure::usage(format!("-o {word}: {reason}"))),
            None => Err(Failure::usage(format!("unknown mount option '{word}'"))),
        }
    }

    /// Where on the image the file system is.
    pub fn location(&self) -> ImageLocation {
        ImageLocation {
            offset: self.offset,
            partition: self.partition,
            volume: self.volume,
            ..ImageLocation::default()
        }
    }

    /// What of them is for the kernel.
    pub fn of_mount(&self, image: &Path) -> MountOptions {
        MountOptions {
            source: image.to_owned(),
            read_only: self.read_only,
            suid: self.suid,
            dev: self.dev,
            noexec: self.noexec,
            allow_other: self.allow_other == Some(true),
            asks_for_links: self.access_times == AccessTimes::Strict,
            claims: None,
        }
    }

    /// The options in force, as `mount` writes them.
    pub fn describe(&self) -> String {
        let mut words = vec![if self.read_only { "ro" } else { "rw" }.to_owned()];
        let mut add = |holds: bool, word: &str| {
            if holds {
                words.push(word.to_owned());
            }
        };
        add(!self.suid, "nosuid");
        add(!self.dev, "nodev");
        add(self.noexec, "noexec");
        add(self.allow_other == Some(true), "allow_other");
        add(self.idmap, "idmap");
        add(self.fakeroot == Some(true), "fakeroot");
        add(self.access_times == AccessTimes::None, "noatime");
        add(self.access_times == AccessTimes::Strict, "strictatime");
        add(self.nodiratime, "nodiratime");
        add(self.norecovery, "norecovery");
        add(self.discard, "discard");
        add(self.stop_on_damage, "errors=remount-ro");
        add(self.quotas.contains(&QuotaType::User), "usrquota");
        add(self.quotas.contains(&QuotaType::Group), "grpquota");
        add(self.quotas.contains(&QuotaType::Project), "prjquota");
        words.extend(self.page_cache.map(|bytes| format!("page_cache={bytes}")));
        words.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(text: &str) -> Result<Options, String> {
        Options::parse(&[text.to_owned()]).map_err(|failure| failure.to_string())
    }

    #[test]
    fn words_of_fstab_are_read() {
        let options =
            parse("defaults,noauto,x-systemd.automount,ro,norecovery,offset=1M,page_cache=64k").unwrap();
        assert!(options.read_only && options.norecovery);
        assert_eq!(options.offset, Some(1 << 20));
        assert_eq!(options.describe(), "ro,nosuid,nodev,norecovery,page_cache=65536");
    }

    #[test]
    fn a_page_cache_is_as_suits_the_device_unless_words_say_else() {
        for (text, bytes, words) in [
            ("rw", None, ""),
            ("page_cache=0", Some(0), ",page_cache=0"),
            ("nodelalloc", Some(0), ",page_cache=0"),
            ("delalloc,page_cache=1M", Some(1 << 20), ",page_cache=1048576"),
        ] {
            let options = parse(text).unwrap();
            assert_eq!(options.page_cache, bytes);
            assert_eq!(options.describe(), format!("rw,nosuid,nodev{words}"));
        }
    }

    #[test]
    fn of_words_that_exclude_each_other_the_last_counts() {
        for (text, words) in [
            ("noatime,relatime", ""),
            ("relatime,noatime", ",noatime"),
            ("noatime,strictatime", ",strictatime"),
            ("diratime,strictatime,nodiratime", ",strictatime,nodiratime"),
            ("grpquota,quota", ",usrquota,grpquota"),
            ("usrquota,noquota,prjquota", ",prjquota"),
        ] {
            assert_eq!(parse(text).unwrap().describe(), format!("rw,nosuid,nodev{words}"));
        }
    }

    #[test]
    fn unknown_and_contradictory_words_are_refused_by_name() {
        assert!(parse("rw,barrier=7").unwrap_err().contains("barrier=7"));
        assert!(parse("writeback").unwrap_err().contains("page_cache=BYTES"));
        assert!(parse("nodelalloc,page_cache=1M").is_err() && parse("nodelalloc,page_cache=0").is_ok());
        assert!(parse("idmap,fakeroot").is_err());
        assert!(parse("partition=x").is_err() && parse("partition=1,volume=vg/lv").is_err());
        assert!(parse("volume=vg").unwrap_err().contains("named as VG/LV, not 'vg'"));
        assert!(parse("page_cache=much").unwrap_err().contains("page_cache=much"));
    }
}
