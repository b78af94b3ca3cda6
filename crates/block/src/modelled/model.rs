//! The parameters of a modelled device: figures in a file, each with its source.

use crate::Error;

/// A device's figures. Rates are per second, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Requests that are worked on at once; further ones wait in the order in which they came.
    pub queue_depth: u64,
    /// The time of a read besides the transfer of its bytes.
    pub read_latency_ns: u64,
    /// The time of a write besides the transfer of its bytes.
    pub write_latency_ns: u64,
    /// The time of a flush when nothing is left to write.
    pub flush_latency_ns: u64,
    /// Rate of all reads together.
    pub read_bytes_per_s: u64,
    /// Rate of all writes together.
    pub write_bytes_per_s: u64,
    /// Rate of a single read.
    pub stream_read_bytes_per_s: u64,
    /// Rate of a single write.
    pub stream_write_bytes_per_s: u64,
    /// Reads at most.
    pub read_requests_per_s: u64,
    /// Writes at most.
    pub write_requests_per_s: u64,
    /// Further parameters of a rotating disk.
    pub rotating: Option<Rotating>,
}

/// Parameters of the heads and platters of a rotating disk, and of its write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotating {
    /// To a random place, on average.
    pub seek_average_ns: u64,
    /// To the next track.
    pub seek_track_ns: u64,
    /// Time of one revolution; a request away from the heads' position waits for half of one.
    pub revolution_ns: u64,
    /// The whole disk, of which the device before it may be a small part.
    pub capacity_bytes: u64,
    /// Written bytes that need not be on the platters yet.
    pub cache_bytes: u64,
}

/// The figures by name, as they are in the file.
struct Figures<'a> {
    list: Vec<(&'a str, u64)>,
}

impl Figures<'_> {
    /// Takes one out. None is zero, for some are divided by.
    fn take(&mut self, name: &str) -> Result<u64, Error> {
        let at = self.list.iter().position(|(listed, _)| *listed == name);
        let at = at.ok_or_else(|| Error::Model(format!("{name} is missing")))?;
        Ok(self.list.swap_remove(at).1)
    }
}

/// A line without its comment: a name and a number.
fn parse_line<'a>(line: &'a str, section: &str) -> Result<(&'a str, u64), Error> {
    let wrong = || Error::Model(format!("not a name and a number above 0: {line}"));
    let (name, number) = line.split_once('=').ok_or_else(wrong)?;
    let number =
        number.trim().replace('_', "").parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let name = name.trim();
    let belongs = matches!(
        name,
        "seek_average_ns" | "seek_track_ns" | "revolution_ns" | "capacity_bytes" | "cache_bytes"
    );
    if belongs != (section == ROTATING) {
        return Err(Error::Model(format!("{name} does not stand in its section")));
    }
    Ok((name, number))
}

const ROTATING: &str = "[rotating]";

impl Model {
    /// The devices whose figures are kept with this crate, by name.
    pub const KEPT: [(&'static str, &'static str); 4] = [
        ("bm1743", include_str!("../../models/bm1743.toml")),
        ("pm9a3", include_str!("../../models/pm9a3.toml")),
        ("pmem", include_str!("../../models/pmem.toml")),
        ("disk-7200", include_str!("../../models/disk-7200.toml")),
    ];

    /// The kept device of this name.
    ///
    /// # Errors
    /// `Model` if there is none.
    pub fn kept(name: &str) -> Result<Self, Error> {
        let found = Self::KEPT.iter().find(|(kept, _)| *kept == name);
        let (_, text) = found.ok_or_else(|| Error::Model(format!("no device {name}")))?;
        Self::parse(text)
    }

    /// Reads the figures from TOML: every name once with a whole number above 0, those of a disk with heads in the
    /// section `[rotating]`.
    ///
    /// # Errors
    /// `Model`, which says what is missing, unknown, double or no number.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (mut figures, mut section) = (Figures { list: Vec::new() }, "");
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line == ROTATING && section.is_empty() {
                section = ROTATING;
            } else if !line.is_empty() {
                let (name, number) = parse_line(line, section)?;
                if figures.list.iter().any(|(listed, _)| *listed == name) {
                    return Err(Error::Model(format!("{name} stands twice")));
                }
                figures.list.push((name, number));
            }
        }
        let rotating = if section == ROTATING { Some(Rotating::take(&mut figures)?) } else { None };
        let model = Self {
            queue_depth: figures.take("queue_depth")?,
            read_latency_ns: figures.take("read_latency_ns")?,
            write_latency_ns: figures.take("write_latency_ns")?,
            flush_latency_ns: figures.take("flush_latency_ns")?,
            read_bytes_per_s: figures.take("read_bytes_per_s")?,
            write_bytes_per_s: figures.take("write_bytes_per_s")?,
            stream_read_bytes_per_s: figures.take("stream_read_bytes_per_s")?,
            stream_write_bytes_per_s: figures.take("stream_write_bytes_per_s")?,
            read_requests_per_s: figures.take("read_requests_per_s")?,
            write_requests_per_s: figures.take("write_requests_per_s")?,
            rotating,
        };
        match figures.list.first() {
            Some((name, _)) => Err(Error::Model(format!("{name} is unknown"))),
            None => Ok(model),
        }
    }
}

impl Rotating {
    fn take(figures: &mut Figures<'_>) -> Result<Self, Error> {
        let rotating = Self {
            seek_average_ns: figures.take("seek_average_ns")?,
            seek_track_ns: figures.take("seek_track_ns")?,
            revolution_ns: figures.take("revolution_ns")?,
            capacity_bytes: figures.take("capacity_bytes")?,
            cache_bytes: figures.take("cache_bytes")?,
        };
        if rotating.seek_track_ns > rotating.seek_average_ns {
            return Err(Error::Model("a track is further away than the average".to_owned()));
        }
        Ok(rotating)
    }

    /// The time of the heads over `distance` bytes: it grows with the root of the distance, from a track's, so that
    /// random places take the average (the mean root of the distance of two of them is 8/15 of the whole's).
    #[must_use]
    pub fn seek_ns(&self, distance: u64) -> u64 {
        let root = (distance.min(self.capacity_bytes) as f64 / self.capacity_bytes as f64).sqrt();
        let above = (self.seek_average_ns - self.seek_track_ns) as f64;
        self.seek_track_ns + (above * root * 15.0 / 8.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_devices_have_all_their_figures() {
        for (name, _) in Model::KEPT {
            let model = Model::kept(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(model.rotating.is_some(), name == "disk-7200");
        }
        assert_eq!(Model::kept("bm1743").expect("kept").write_bytes_per_s, 2_000_000_000);
        assert_eq!(Model::kept("floppy").expect_err("none").to_string(), "device model: no device floppy");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named() {
        let (_, good) = Model::KEPT[0];
        let told = |text: String| Model::parse(&text).expect_err("wrong").to_string();
        for (text, error) in [
            (good.replace("queue_depth = 256", ""), "queue_depth is missing"),
            (format!("{good}\nqueue_depth = 2"), "queue_depth stands twice"),
            (format!("{good}\ncolour = 2"), "colour is unknown"),
            (good.replace("= 256", "= 0"), "not a name and a number above 0: queue_depth = 0"),
            (format!("{good}\nseek_track_ns = 2"), "seek_track_ns does not stand in its section"),
            (format!("{good}\n[rotating]\nseek_track_ns = 2"), "seek_average_ns is missing"),
            (format!("{good}\n[else]"), "not a name and a number above 0: [else]"),
        ] {
            assert_eq!(told(text), format!("device model: {error}"));
        }
    }

    #[test]
    fn random_seeks_take_the_average() {
        let rotating = Model::kept("disk-7200").expect("kept").rotating.expect("heads");
        let places: u64 = 300;
        let place = |index| rotating.capacity_bytes / places * index;
        let pairs = (0..places * places).map(|pair| place(pair / places).abs_diff(place(pair % places)));
        let mean = pairs.map(|distance| rotating.seek_ns(distance)).sum::<u64>() / (places * places);
        let error = mean.abs_diff(rotating.seek_average_ns) as f64 / rotating.seek_average_ns as f64;
        assert!(error < 0.01, "{mean} ns");
    }
}
