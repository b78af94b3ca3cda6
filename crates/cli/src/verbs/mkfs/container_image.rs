//! Container images in their storage format: a disk made from one would hold blobs instead of a root file system.

use std::path::Path;

use extant_archive::{Entry, Result, Sink};

use crate::failure::Failure;

/// A sink that looks for the marks of a container image among the names that pass.
pub struct Marks<S> {
    sink: S,
    has_layout: bool,
    has_index: bool,
    has_manifest: bool,
    has_layers: bool,
}

impl<S: Sink> Marks<S> {
    /// Passes on to `sink`.
    pub fn new(sink: S) -> Self {
        Self { sink, has_layout: false, has_index: false, has_manifest: false, has_layers: false }
    }

    /// The sink behind it.
    pub fn into_inner(self) -> S {
        self.sink
    }

    /// Refuses what is a container image by its marks.
    pub fn refuse(&self, content: &Path) -> std::result::Result<(), Failure> {
        let place = content.display();
        let message = if self.has_layout && self.has_index {
            format!(
                "an OCI image layout, not a root file system; `umoci unpack --rootless --image {place}:TAG BUNDLE` \
                 unpacks its layers, then use -d BUNDLE/rootfs"
            )
        } else if self.has_manifest && self.has_layers {
            format!(
                "an image as `docker save` writes it, not a root file system; use `docker export CONTAINER | extant \
                 mkfs -d - IMAGE`, or `skopeo copy docker-archive:{place} oci:LAYOUT:TAG` and `umoci unpack`"
            )
        } else {
            return Ok(());
        };
        Err(Failure::new("container_image", place.to_string(), message))
    }
}

impl<S: Sink> Sink for Marks<S> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        match entry.path.components()[..] {
            [name] => match name {
                b"oci-layout" => self.has_layout = true,
                b"index.json" => self.has_index = true,
                b"manifest.json" => self.has_manifest = true,
                b"repositories" => self.has_layers = true,
                _ => {}
            },
            [_, name] if name == b"layer.tar" => self.has_layers = true,
            [blobs, algorithm, _] if blobs == b"blobs" && algorithm == b"sha256" => self.has_layers = true,
            _ => {}
        }
        self.sink.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.sink.content(offset, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.sink.finish()
    }
}
