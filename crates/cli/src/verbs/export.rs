//! `extant export`.

mod file;
mod image;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use extant::Filesystem;
use extant_archive::oci::{Changes, LayerWriter, Packing};
use extant_archive::{Difference, DiskWalk, Extent, Sink, Source, TarWriter, pour_concurrently};
use serde_json::{Map, Value};

use super::Outcome;
use crate::address::{DiskPath, is_same_image};
use crate::disks::{Reading, open_for_reading};
use crate::failure::Failure;
use crate::metadata::failed_at;
use crate::output::{self, Output};
use crate::progress::{Progress, ProgressForm};

/// Pack a disk, or a directory on it, into a tar archive or a container image
///
/// The archive is in PAX form and keeps everything but sockets, which archives cannot hold. The same disk gives the
/// same bytes. The disk is not written to.
///
/// --base packs only what differs from another disk, as a layer of a container image: names that are gone are whiteouts (.wh.NAME).
/// --oci adds an image to an OCI image layout: with --base the layer goes over an image that is there, else it is an image of one
/// layer.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant export disk.img -o rootfs.tar\n  extant export disk.img:/etc | tar -tv\n  extant export --layer --base base.img guest.img -o layer.tar.gz\n  extant export --oci images:guest --base base.img --image base guest.img"
)]
pub struct Export {
    #[command(flatten)]
    reading: Reading,
    /// Where the archive goes, instead of to standard output
    #[arg(short, long, value_name = "TAR")]
    output: Option<PathBuf>,
    /// Write a layer of a container image: holes as zeros, access control lists as attributes
    #[arg(long)]
    layer: bool,
    /// Write only what differs from this disk
    #[arg(long, value_name = "BASE")]
    base: Option<PathBuf>,
    /// Read and compare the contents of all files, whatever their inodes say
    #[arg(short, long, requires = "base")]
    checksum: bool,
    /// Add an image to this OCI image layout; without TAG it is `latest`
    #[arg(long, value_name = "DIR[:TAG]", conflicts_with_all = ["output", "layer"])]
    oci: Option<OsString>,
    /// The image of the layout that was made into BASE; it need not be named if it is the only one
    #[arg(long, value_name = "TAG", requires_all = ["oci", "base"])]
    image: Option<String>,
    /// How a layer is packed [default: by the name of TAR, else gzip in a layout and not at all in an archive]
    #[arg(long, value_enum, value_name = "KIND")]
    compress: Option<Compress>,
    /// The disk, or a directory on it
    #[arg(value_name = "IMAGE[:/DIR]")]
    source: OsString,
}

/// How a layer is packed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compress {
    /// Not at all
    None,
    /// As every program reads it
    Gzip,
    /// Faster
    Zstd,
}

impl Compress {
    fn packing(self) -> Packing {
        match self {
            Self::None => Packing::None,
            Self::Gzip => Packing::Gzip,
            Self::Zstd => Packing::Zstd,
        }
    }
}

/// Counts of what was packed, and the digests of a layer.
#[derive(Default)]
struct Packed {
    entries: u64,
    content_bytes: u64,
    sockets: usize,
    digests: Vec<(&'static str, String)>,
}

impl Export {
    /// Packs.
    pub fn run(self) -> Outcome {
        self.check_usage()?;
        let source = DiskPath::parse(&self.source);
        let fs = open_for_reading(&source.image, self.reading)?;
        // Before what is there is overwritten.
        fs.lookup(&source.path).map_err(failed_at(&source))?;
        let base = self.base.as_deref().map(|base| open_for_reading(base, self.reading)).transpose()?;
        let packed = match (&self.oci, self.output.as_deref().filter(|path| *path != Path::new("-"))) {
            (Some(layout), _) => {
                image::add(&self, layout, &source, self.changes(&fs, base.as_ref(), &source))?
            }
            (None, Some(path)) => {
                let images = [Some(source.image.as_path()), self.base.as_deref()];
                if images.into_iter().flatten().any(|image| is_same_image(path, image)) {
                    return Err(Failure::usage("the archive would take the place of the disk"));
                }
                file::write(path, |out| self.pack(&fs, base.as_ref(), &source, out))?
            }
            (None, None) => {
                if io::IsTerminal::is_terminal(&io::stdout()) {
                    return Err(Failure::usage(
                        "an archive is not written to a terminal; use -o TAR or a pipe",
                    ));
                }
                self.pack(&fs, base.as_ref(), &source, &mut io::stdout().lock())?
            }
        };
        self.tell(&source, packed)
    }

    fn check_usage(&self) -> Result<(), Failure> {
        let is_image = self.oci.is_some();
        if self.reading.json && self.output.is_none() && !is_image {
            return Err(Failure::usage("--json needs -o TAR, for standard output takes one of them only"));
        }
        if !self.layer && !is_image && (self.base.is_some() || self.compress.is_some()) {
            return Err(Failure::usage("--base and --compress are for layers; add --layer or --oci DIR"));
        }
        Ok(())
    }

    fn changes(&self, fs: &Filesystem, base: Option<&Filesystem>, source: &DiskPath) -> Changes {
        let difference = base.map_or_else(|| Difference::from_nothing(fs), |base| Difference::new(base, fs));
        Changes::new(difference.root(&source.path).reads_all(self.checksum))
    }

    /// Writes an archive or a layer.
    fn pack(
        &self,
        fs: &Filesystem,
        base: Option<&Filesystem>,
        source: &DiskPath,
        out: &mut dyn io::Write,
    ) -> Result<Packed, Failure> {
        if !self.layer {
            let mut writer = TarWriter::new(out);
            let packed = self.pour(DiskWalk::new(fs, &source.path), &mut writer, source)?;
            return Ok(Packed { sockets: writer.sockets_left_out(), ..packed });
        }
        let mut writer = LayerWriter::new(out, self.packing());
        let packed = self.pour(self.changes(fs, base, source), &mut writer, source)?;
        let (layer, _) = writer.complete().map_err(|error| self.failed(source, error))?;
        let digests = vec![("diff_id", layer.diff_id), ("digest", layer.digest)];
        Ok(Packed { sockets: layer.sockets_left_out, digests, ..packed })
    }

    /// Counts what goes from `from` to `sink`.
    fn pour(
        &self,
        from: impl Source + Send + 'static,
        sink: &mut dyn Sink,
        source: &DiskPath,
    ) -> Result<Packed, Failure> {
        let mut progress = Progress::new(sink, None, ProgressForm::new(self.reading.json, false));
        let poured = pour_concurrently(from, &mut progress, Extent::Everything);
        let (entries, content_bytes) = progress.counted();
        drop(progress);
        poured.map_err(|error| self.failed(source, error))?;
        Ok(Packed { entries, content_bytes, ..Packed::default() })
    }

    fn failed(&self, source: &DiskPath, error: extant_archive::Error) -> Failure {
        let base = self.base.as_deref().unwrap_or(&source.image);
        Failure::comparing(base, &source.image, &source.path, error)
    }

    /// How a layer is packed, by the option or the name of the archive.
    fn packing(&self) -> Packing {
        let extension = self.output.as_deref().and_then(Path::extension).and_then(|end| end.to_str());
        match (self.compress, extension) {
            (Some(compress), _) => compress.packing(),
            (None, Some("gz" | "tgz")) => Packing::Gzip,
            (None, Some("zst" | "tzst")) => Packing::Zstd,
            _ if self.oci.is_some() => Packing::default(),
            _ => Packing::None,
        }
    }

    fn tell(&self, source: &DiskPath, packed: Packed) -> Outcome {
        if packed.sockets > 0 {
            output::note(&format!("{source}: {} sockets left out", packed.sockets));
        }
        if self.reading.json {
            let mut object = Map::new();
            object.insert("entries".to_owned(), packed.entries.into());
            object.insert("content_bytes".to_owned(), packed.content_bytes.into());
            object.insert("sockets_left_out".to_owned(), packed.sockets.into());
            object.extend(packed.digests.into_iter().map(|(key, digest)| (key.to_owned(), digest.into())));
            let mut output = Output::new();
            output.json(&Value::Object(object))?;
            output.finish()?;
        }
        Ok(0)
    }
}
