//! Adds an image to an OCI image layout: one layer, alone or over the layers of an image that is there.
//!
//! Blobs are written first, under names of their own until they are complete and durable, `index.json` last, by a rename: an interrupted
//! layout is as it was, with blobs more than it needs. Fields that are not known here are kept.
//!
//! Locks: the layout's directory (`flock`), while `index.json` is replaced.
//!
//! Source: OCI image specification 1.1, `image-layout.md`, `manifest.md`, `config.md`. Test: `tests/layers/append.rs`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use extant::Timestamp;
use oci_spec::image::{Digest, MediaType};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::choice::REF_NAME;
use super::digest::Hasher;
use super::layer::{Layer, LayerWriter, Packing};
use super::layout::{blob_path, check_digest, place};
use super::media_type::{DOCKER_LAYER, DOCKER_LAYER_GZIP, DOCKER_LAYER_ZSTD, DOCKER_MANIFEST, of_oci};
use super::store::Store;
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::host::directories;

const LAYOUT_FILE: &str = "oci-layout";
const INDEX_FILE: &str = "index.json";
/// The image that is added to a layout.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// The layout's directory; it is made if it is not there and the image has no base.
    pub layout: PathBuf,
    /// The name of the image in the layout. An image that has it loses it.
    pub name: String,
    /// Whether the layer goes over an image of the layout.
    pub base: Base,
    /// How the layer is packed.
    pub packing: Packing,
    /// When it was made; none for the newest time of its files.
    pub created: Option<Timestamp>,
    /// The architecture of an image without a base, as Go spells it.
    pub architecture: String,
}

/// The image below the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// None: the layer is the whole image.
    None,
    /// The only image of the layout.
    Only,
    /// The image of this name.
    Named(String),
}

/// What was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The digest of the manifest, which is that of the image.
    pub manifest: String,
    /// The layer.
    pub layer: Layer,
}

impl NewImage {
    /// Adds the image. `write` gets the layer as a sink, pours into it and finishes it.
    ///
    /// # Errors
    /// [`Error::Image`] if the layout or the base is not one; [`Error::Host`]; those of `write`. The images of the layout are as before.
    pub fn add(&self, write: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<Added> {
        let layout = Layout::open(&self.layout, self.base == Base::None)?;
        let base = layout.image(&self.base)?;
        let layer = layout.add_layer(self.packing, write)?;
        let created = self.created.or(layer.newest).map(rfc3339);
        let config = self.config(base.as_ref(), &layer, created)?;
        let is_docker = base.as_ref().is_some_and(|base| base.is_docker());
        let config_type = base.as_ref().and_then(|base| base.manifest["config"]["mediaType"].as_str());
        let config_type = config_type.map_or(MediaType::ImageConfig.to_string(), ToOwned::to_owned);
        let config = layout.add_document(&config_type, &config)?;
        let layer_descriptor = json!({
            "mediaType": layer_type(layer.packing, is_docker),
            "digest": layer.digest,
            "size": layer.bytes,
        });
        let mut manifest = base.map_or_else(
            || json!({ "schemaVersion": 2, "mediaType": MediaType::ImageManifest.to_string(), "layers": [] }),
            |base| base.manifest,
        );
        let layers = manifest["layers"].as_array_mut();
        layers.ok_or_else(|| broken("manifest", "has no list of layers"))?.push(layer_descriptor);
        manifest["config"] = config;
        let manifest_type =
            if is_docker { DOCKER_MANIFEST.to_owned() } else { MediaType::ImageManifest.to_string() };
        let mut descriptor = layout.add_document(&manifest_type, &manifest)?;
        let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
        descriptor["annotations"] = json!({ REF_NAME: self.name });
        layout.replace_index(&self.name, descriptor)?;
        Ok(Added { manifest: digest, layer })
    }

    /// The configuration of the base with the layer, or a new one.
    fn config(&self, base: Option<&Image>, layer: &Layer, created: Option<String>) -> Result<Value> {
        let mut config = base.map_or_else(
            || {
                json!({
                    "architecture": self.architecture,
                    "os": "linux",
                    "config": {},
                    "rootfs": { "type": "layers", "diff_ids": [] },
                })
            },
            |base| base.config.clone(),
        );
        let ids = config.pointer_mut("/rootfs/diff_ids").and_then(Value::as_array_mut);
        ids.ok_or_else(|| broken("configuration", "has no list of diff_ids"))?
            .push(layer.diff_id.clone().into());
        let mut step = Map::new();
        step.insert("created_by".to_owned(), "extant export".into());
        if let Some(created) = created {
            step.insert("created".to_owned(), created.clone().into());
            config["created"] = created.into();
        }
        if config["history"].is_null() {
            config["history"] = json!([]);
        }
        let history = config["history"].as_array_mut();
        history.ok_or_else(|| broken("configuration", "has a history that is no list"))?.push(step.into());
        Ok(config)
    }
}

fn layer_type(packing: Packing, is_docker: bool) -> String {
    match (packing, is_docker) {
        (Packing::None, false) => MediaType::ImageLayer.to_string(),
        (Packing::Gzip, false) => MediaType::ImageLayerGzip.to_string(),
        (Packing::Zstd, false) => MediaType::ImageLayerZstd.to_string(),
        (Packing::None, true) => DOCKER_LAYER.to_owned(),
        (Packing::Gzip, true) => DOCKER_LAYER_GZIP.to_owned(),
        (Packing::Zstd, true) => DOCKER_LAYER_ZSTD.to_owned(),
    }
}

fn broken(part: &str, reason: &str) -> Error {
    Error::image(format!("the {part} of the base"), reason)
}

/// The documents of an image of a layout.
struct Image {
    manifest: Value,
    config: Value,
}

impl Image {
    fn is_docker(&self) -> bool {
        self.manifest["mediaType"] == DOCKER_MANIFEST
    }
}

/// A directory that is an OCI image layout.
struct Layout {
    root: PathBuf,
}

impl Layout {
    fn open(root: &Path, may_make: bool) -> Result<Self> {
        let layout = Self { root: root.to_owned() };
        if root.join(LAYOUT_FILE).is_file() {
            return Ok(layout);
        }
        let is_empty = match fs::read_dir(root) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(Error::host(root)(error)),
        };
        if !may_make || !is_empty {
            let reason = "not an OCI image layout; skopeo copy docker://IMAGE oci:DIR:TAG makes one";
            return Err(Error::image(root.display().to_string(), reason));
        }
        fs::create_dir_all(root.join("blobs/sha256")).map_err(Error::host(root))?;
        layout.replace(INDEX_FILE, &empty_index())?;
        layout.replace(LAYOUT_FILE, &json!({ "imageLayoutVersion": "1.0.0" }))?;
        Ok(layout)
    }

    /// The image that is the base; none if there is to be none.
    fn image(&self, base: &Base) -> Result<Option<Image>> {
        let index = self.index()?;
        let descriptors = index["manifests"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names = || {
            let names: Vec<_> = descriptors.iter().filter_map(name_of).collect();
            if names.is_empty() {
                "no image has a name".to_owned()
            } else {
                format!("there are {}", names.join(", "))
            }
        };
        let place = || self.root.display().to_string();
        let descriptor = match (base, descriptors) {
            (Base::None, _) => return Ok(None),
            (Base::Only, [only]) => only,
            (Base::Only, []) => return Err(Error::image(place(), "the layout has no image")),
            (Base::Only, _) => {
                let reason =
                    format!("the layout has several images; name the one below with --image: {}", names());
                return Err(Error::image(place(), reason));
            }
            (Base::Named(name), _) => {
                let found = descriptors.iter().find(|descriptor| name_of(descriptor) == Some(name));
                found.ok_or_else(|| Error::image(place(), format!("has no image '{name}'; {}", names())))?
            }
        };
        let media_type = descriptor["mediaType"].as_str().unwrap_or_default();
        if of_oci(&media_type.into()) != MediaType::ImageManifest {
            let reason = format!(
                "{media_type} is no manifest of one image; skopeo copy takes one platform out of an index"
            );
            return Err(Error::image(place(), reason));
        }
        let manifest = self.document(descriptor)?;
        let config = self.document(&manifest["config"])?;
        Ok(Some(Image { manifest, config }))
    }

    fn index(&self) -> Result<Value> {
        parse(INDEX_FILE, &self.read(INDEX_FILE)?)
    }

    /// The document that a descriptor describes, which has its digest.
    fn document(&self, descriptor: &Value) -> Result<Value> {
        let text = descriptor["digest"].as_str().unwrap_or_default();
        let malformed = |_| Error::image(format!("digest '{text:.200}'"), "neither SHA-256 nor SHA-512");
        let digest: Digest = text.parse().map_err(malformed)?;
        let path = blob_path(&digest);
        let bytes = self.read(&path)?;
        check_digest(&path, &bytes, &digest)?;
        parse(&path, &bytes)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        Store::Directory(self.root.clone()).document(&place(path)?)
    }

    fn add_layer(&self, packing: Packing, write: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<Layer> {
        let pending = self.pending()?;
        let mut writer = LayerWriter::new(pending.as_file(), packing);
        write(&mut writer)?;
        let (layer, _) = writer.complete()?;
        self.keep(pending, &self.blob(&layer.digest))?;
        Ok(layer)
    }

    /// Adds a document as a blob; its descriptor.
    fn add_document(&self, media_type: &str, document: &Value) -> Result<Value> {
        let bytes = document.to_string().into_bytes();
        let mut hasher = Hasher::sha256();
        hasher.update(&bytes);
        let digest = hasher.finish();
        let mut pending = self.pending()?;
        pending.write_all(&bytes).map_err(Error::host(&self.root))?;
        self.keep(pending, &self.blob(&digest))?;
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }))
    }

    /// Gives the name to the image of `descriptor` only.
    fn replace_index(&self, name: &str, descriptor: Value) -> Result<()> {
        let _locked = directories::lock(&self.root).map_err(Error::host(&self.root))?;
        let mut index = self.index()?;
        if index["manifests"].is_null() {
            index["manifests"] = json!([]);
        }
        let manifests = index["manifests"].as_array_mut();
        let manifests = manifests.ok_or_else(|| {
            Error::image(self.root.join(INDEX_FILE).display().to_string(), "has no list of manifests")
        })?;
        manifests.retain(|other| name_of(other) != Some(name));
        manifests.push(descriptor);
        self.replace(INDEX_FILE, &index)
    }

    fn replace(&self, name: &str, document: &Value) -> Result<()> {
        let mut pending = self.pending()?;
        pending.write_all(document.to_string().as_bytes()).map_err(Error::host(&self.root))?;
        self.keep(pending, &self.root.join(name))
    }

    /// A file that is removed again if it is not kept.
    fn pending(&self) -> Result<NamedTempFile> {
        directories::temporary_file(&self.root).map_err(Error::host(&self.root))
    }

    /// Gives a complete file its name, durably.
    fn keep(&self, pending: NamedTempFile, path: &Path) -> Result<()> {
        pending.as_file().sync_all().map_err(Error::host(path))?;
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(Error::host(parent))?;
        pending.persist(path).map_err(|error| Error::host(path)(error.error))?;
        directories::sync(parent).map_err(Error::host(parent))
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.root.join("blobs").join(digest.replacen(':', "/", 1))
    }
}

/// A time as RFC 3339 spells it.
fn rfc3339(time: Timestamp) -> String {
    time.date_time().replace(' ', "T") + "Z"
}

fn empty_index() -> Value {
    json!({ "schemaVersion": 2, "mediaType": MediaType::ImageIndex.to_string(), "manifests": [] })
}

fn name_of(descriptor: &Value) -> Option<&str> {
    descriptor["annotations"][REF_NAME].as_str()
}

fn parse(path: &str, bytes: &[u8]) -> Result<Value> {
    let failed = |reason: String| Error::image(path, reason);
    let document: Value = serde_json::from_slice(bytes).map_err(|error| failed(error.to_string()))?;
    if document.is_object() { Ok(document) } else { Err(failed("not a JSON object".to_owned())) }
}
