//! The manifest, the configuration and the layers of one image, found in the documents of its layout.
//!
//! Documents are small, and their digests are checked as they are read. Layers are only found here.
//!
//! Sources: OCI image specification 1.1, `image-layout.md`, `image-index.md`, `manifest.md`; Docker image specification
//! 1.2, "Combined Image JSON + Filesystem Changeset Format".

use std::collections::BTreeSet;

use oci_spec::image::{
    Descriptor, Digest, ImageConfiguration, ImageIndex, ImageManifest, MediaType, OciLayout,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::choice::{ImageChoice, Platform, is_attestation, is_named, list, names};
use super::digest::Hasher;
use super::media_type::of_oci;
use super::store::{Form, Store};
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::window::Window;

/// Indexes inside one another.
const INDEX_DEPTH_MAX: usize = 8;

/// Layers of an image, each with an open file. Docker takes 127.
const LAYERS_MAX: usize = 512;

/// One image, found.
#[derive(Debug)]
pub(super) struct Found {
    /// Its configuration, as it is.
    pub config: Vec<u8>,
    /// Its layers, the lowest first.
    pub layers: Vec<FoundLayer>,
}

/// A layer before it is read.
#[derive(Debug)]
pub(super) struct FoundLayer {
    /// Its digest, or its path where the image has none.
    pub name: String,
    pub blob: Window,
    /// The digest of the blob, if a manifest says it.
    pub digest: Option<Digest>,
    /// The digest of the archive in it.
    pub diff_id: Digest,
}

/// An image in the list of an older `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Store {
    /// Finds the image that is meant.
    pub fn find(&self, form: Form, choice: &ImageChoice) -> Result<Found> {
        match form {
            Form::Layout => self.find_in_layout(choice),
            Form::DockerArchive => self.find_in_docker_archive(choice),
        }
    }

    /// Whether the store is one of an image: other directories, too, have a `manifest.json`.
    pub fn is_image(&self, form: Form) -> bool {
        form == Form::Layout || self.json::<Vec<DockerImage>>("manifest.json").is_ok()
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        parse(name, &self.document(&place(name)?)?)
    }

    fn find_in_layout(&self, choice: &ImageChoice) -> Result<Found> {
        let layout: OciLayout = self.json("oci-layout")?;
        let version = layout.image_layout_version();
        if !version.starts_with("1.") {
            return Err(Error::image("oci-layout", format!("version {version:.20}, where 1 is known")));
        }
        let index: ImageIndex = self.json("index.json")?;
        let mut candidates = index.manifests().clone();
        candidates.retain(|candidate| !is_attestation(candidate));
        let named = |candidates: &[Descriptor]| candidates.iter().flat_map(names).collect::<Vec<_>>();
        let all = named(&candidates);
        if let Some(wanted) = &choice.name {
            candidates.retain(|candidate| names(candidate).iter().any(|name| is_named(name, wanted)));
            if candidates.is_empty() {
                return Err(no_such_image(wanted, all));
            }
        }
        let digests: BTreeSet<_> =
            candidates.iter().map(|candidate| candidate.digest().to_string()).collect();
        let called: BTreeSet<_> = candidates.iter().filter_map(|candidate| names(candidate).pop()).collect();
        if digests.len() > 1 && called.len() > 1 {
            return Err(several_images(named(&candidates)));
        }
        let manifest = self.manifest_among(candidates, choice, 0)?;
        self.read_manifest(&manifest, choice)
    }

    /// The manifest for the platform, among these and those in indexes among these.
    fn manifest_among(
        &self,
        mut candidates: Vec<Descriptor>,
        choice: &ImageChoice,
        depth: usize,
    ) -> Result<Descriptor> {
        candidates.retain(|candidate| !is_attestation(candidate));
        let offered = || candidates.iter().filter_map(Platform::of).map(|platform| platform.to_string());
        let wanted = choice.platform.clone().unwrap_or_else(Platform::host);
        let no_platform = || {
            let offered = list(offered().collect());
            Error::Choice(format!("no image for {wanted}, but for: {offered}; choose one with --platform"))
        };
        let chosen = match &candidates[..] {
            [] => return Err(Error::image("index", "lists no image")),
            [only] => {
                let is_other = Platform::of(only).is_some_and(|offered| !wanted.takes(&offered));
                if choice.platform.is_some() && is_other {
                    return Err(no_platform());
                }
                only
            }
            several => several
                .iter()
                .find(|candidate| Platform::of(candidate).is_some_and(|offered| wanted.takes(&offered)))
                .or_else(|| several.iter().find(|candidate| Platform::of(candidate).is_none()))
                .ok_or_else(no_platform)?,
        };
        match of_oci(chosen.media_type()) {
            MediaType::ImageManifest => Ok(chosen.clone()),
            MediaType::ImageIndex if depth == INDEX_DEPTH_MAX => {
                Err(Error::image(chosen.digest().as_ref(), "indexes more than 8 deep in one another"))
            }
            MediaType::ImageIndex => {
                let index: ImageIndex = parse(chosen.digest().as_ref(), &self.verified(chosen)?)?;
                self.manifest_among(index.manifests().clone(), choice, depth + 1)
            }
            other => Err(unknown_type(chosen, &other, "an image")),
        }
    }

    fn read_manifest(&self, descriptor: &Descriptor, choice: &ImageChoice) -> Result<Found> {
        let manifest: ImageManifest = parse(descriptor.digest().as_ref(), &self.verified(descriptor)?)?;
        if of_oci(manifest.config().media_type()) != MediaType::ImageConfig {
            return Err(unknown_type(manifest.config(), manifest.config().media_type(), "a container image"));
        }
        let config = self.verified(manifest.config())?;
        let diff_ids = diff_ids(manifest.config().digest().as_ref(), &config, choice)?;
        if diff_ids.len() != manifest.layers().len() {
            let reason = format!(
                "{} layers, of which the configuration names {}",
                manifest.layers().len(),
                diff_ids.len()
            );
            return Err(Error::image(descriptor.digest().as_ref(), reason));
        }
        let layers = manifest.layers().iter().zip(diff_ids);
        let layers = layers.map(|(layer, diff_id)| self.find_layer(layer, diff_id)).collect::<Result<_>>()?;
        Ok(Found { config, layers })
    }

    fn find_layer(&self, layer: &Descriptor, diff_id: Digest) -> Result<FoundLayer> {
        let name = layer.digest().to_string();
        let is_foreign = is_layer(layer)?;
        let blob = match self.blob(layer) {
            Err(Error::Image { .. }) if is_foreign => {
                let url = layer.urls().as_ref().and_then(|urls| urls.first());
                let url = url.map_or("where its publisher has it", String::as_str);
                let reason = format!(
                    "a foreign layer, not part of the image; fetch it from {url:.200} into {}",
                    blob_path(layer.digest())
                );
                return Err(Error::image(name, reason));
            }
            other => other?,
        };
        Ok(FoundLayer { name, blob, digest: Some(layer.digest().clone()), diff_id })
    }

    fn find_in_docker_archive(&self, choice: &ImageChoice) -> Result<Found> {
        let mut images: Vec<DockerImage> = self.json("manifest.json")?;
        let tags = |images: &[DockerImage]| {
            images.iter().flat_map(|image| image.repo_tags.clone().unwrap_or_default()).collect::<Vec<_>>()
        };
        let all = tags(&images);
        if let Some(wanted) = &choice.name {
            images.retain(|image| tags(std::slice::from_ref(image)).iter().any(|tag| is_named(tag, wanted)));
            if images.is_empty() {
                return Err(no_such_image(wanted, all));
            }
        }
        let [image] = &images[..] else {
            return Err(match images[..] {
                [] => Error::image("manifest.json", "lists no image"),
                _ => several_images(tags(&images)),
            });
        };
        let config = self.document(&place(&image.config)?)?;
        let named =
            image.config.rsplit('/').next().and_then(|name| name.strip_suffix(".json").or(Some(name)));
        // The configuration is called by its digest.
        if let Some(digest) = named.and_then(|name| format!("sha256:{name}").parse::<Digest>().ok()) {
            check_digest(&image.config, &config, &digest)?;
        }
        let diff_ids = diff_ids(&image.config, &config, choice)?;
        if diff_ids.len() != image.layers.len() {
            let reason =
                format!("{} layers, of which the configuration names {}", image.layers.len(), diff_ids.len());
            return Err(Error::image("manifest.json", reason));
        }
        let layers = image.layers.iter().zip(diff_ids).map(|(name, diff_id)| {
            let blob = self.open(&place(name)?)?;
            Ok(FoundLayer { name: name.clone(), blob, digest: None, diff_id })
        });
        Ok(Found { config, layers: layers.collect::<Result<_>>()? })
    }

    /// The blob of a descriptor, of the right size.
    fn blob(&self, descriptor: &Descriptor) -> Result<Window> {
        let name = descriptor.digest().as_ref();
        if Hasher::new(descriptor.digest().algorithm()).is_none() {
            return Err(Error::image(name, "a digest that is neither SHA-256 nor SHA-512"));
        }
        let blob = self.open(&place(&blob_path(descriptor.digest()))?)?;
        if blob.size() != descriptor.size() {
            let reason = format!("{} bytes, where {} are declared", blob.size(), descriptor.size());
            return Err(Error::image(name, reason));
        }
        Ok(blob)
    }

    /// A document, whose size and digest are right.
    fn verified(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        self.blob(descriptor)?;
        let document = self.document(&place(&blob_path(descriptor.digest()))?)?;
        check_digest(descriptor.digest().as_ref(), &document, descriptor.digest())?;
        Ok(document)
    }
}

pub(super) fn blob_path(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm(), digest.digest())
}

/// A place in the store, by a name that a document says.
pub(super) fn place(name: &str) -> Result<TreePath> {
    TreePath::parse(name.as_bytes())
}

fn parse<T: DeserializeOwned>(name: &str, document: &[u8]) -> Result<T> {
    serde_json::from_slice(document).map_err(|error| Error::image(name, error.to_string()))
}

pub(super) fn check_digest(name: &str, bytes: &[u8], digest: &Digest) -> Result<()> {
    let unknown = || Error::image(name, "a digest that is neither SHA-256 nor SHA-512");
    let mut hasher = Hasher::new(digest.algorithm()).ok_or_else(unknown)?;
    hasher.update(bytes);
    let found = hasher.finish();
    if found == digest.as_ref() { Ok(()) } else { Err(wrong_digest(name, &found)) }
}

/// The error that what is called `name` has another digest.
pub(super) fn wrong_digest(name: &str, found: &str) -> Error {
    Error::image(name, format!("its digest is {found}; copy or save the image again"))
}

/// The digests of the layers' archives, of an image for the platform that is wanted.
fn diff_ids(name: &str, config: &[u8], choice: &ImageChoice) -> Result<Vec<Digest>> {
    let config: ImageConfiguration = parse(name, config)?;
    let offered = Platform::new(config.os(), config.architecture(), config.variant().as_deref());
    if let Some(wanted) = choice.platform.as_ref().filter(|wanted| !wanted.takes(&offered)) {
        return Err(Error::Choice(format!("the image is for {offered}, not for {wanted}")));
    }
    let diff_ids = config.rootfs().diff_ids();
    if diff_ids.len() > LAYERS_MAX {
        return Err(Error::image(name, "more than 512 layers"));
    }
    let digest = |text: &String| {
        let digest = text.parse::<Digest>().ok().filter(|digest| Hasher::new(digest.algorithm()).is_some());
        digest.ok_or_else(|| Error::image(name, format!("the malformed diff_id {text:.100}")))
    };
    diff_ids.iter().map(digest).collect()
}

/// Whether the layer is of a known type and may lie elsewhere.
fn is_layer(layer: &Descriptor) -> Result<bool> {
    match of_oci(layer.media_type()) {
        MediaType::ImageLayer | MediaType::ImageLayerGzip | MediaType::ImageLayerZstd => Ok(false),
        MediaType::ImageLayerNonDistributable
        | MediaType::ImageLayerNonDistributableGzip
        | MediaType::ImageLayerNonDistributableZstd => Ok(true),
        other if other.as_ref().contains("encrypted") => {
            let reason = "an encrypted layer; `skopeo copy --decryption-key KEY` decrypts it";
            Err(Error::image(layer.digest().as_ref(), reason))
        }
        other => Err(unknown_type(layer, &other, "a layer")),
    }
}

fn unknown_type(descriptor: &Descriptor, found: &MediaType, wanted: &str) -> Error {
    Error::image(descriptor.digest().as_ref(), format!("of the type {:.200}, not {wanted}", found.as_ref()))
}

fn no_such_image(wanted: &str, all: Vec<String>) -> Error {
    Error::Choice(match all.is_empty() {
        true => format!("no image is called {wanted}: none has a name; leave --image out"),
        false => format!("no image is called {wanted}, but: {}", list(all)),
    })
}

fn several_images(all: Vec<String>) -> Error {
    Error::Choice(format!("several images: {}; choose one with --image", list(all)))
}
