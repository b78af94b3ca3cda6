//! Image layouts made byte by byte.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::build::{header, seal};

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layout on the host.
pub struct Layout {
    dir: TempDir,
}

pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

impl Layout {
    /// A layout without images.
    pub fn new() -> Self {
        let dir = extant_testing::scratch();
        fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { dir }
    }

    /// A layout with one image of these layers, unpacked ones.
    pub fn of(layers: &[Vec<u8>]) -> Self {
        let layout = Self::new();
        let image = layout.image(layers, "amd64");
        layout.index(&[image]);
        layout
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn blob_path(&self, digest: &str) -> PathBuf {
        self.path().join("blobs").join(digest.replace(':', "/"))
    }

    /// Adds a blob; its descriptor.
    pub fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        fs::write(self.blob_path(&digest(bytes)), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest(bytes), "size": bytes.len() })
    }

    pub fn document(&self, media_type: &str, document: &Value) -> Value {
        self.blob(media_type, document.to_string().as_bytes())
    }

    /// Adds an image whose layers' blobs are there; its descriptor.
    pub fn image_of(&self, layers: Vec<Value>, diff_ids: Vec<String>, architecture: &str) -> Value {
        let config = json!({
            "architecture": architecture, "os": "linux", "config": { "Cmd": ["/bin/sh"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = self.document(CONFIG, &config);
        self.document(MANIFEST, &json!({ "schemaVersion": 2, "config": config, "layers": layers }))
    }

    /// Adds an image of these archives; its descriptor.
    pub fn image(&self, layers: &[Vec<u8>], architecture: &str) -> Value {
        let blobs = layers.iter().map(|layer| self.blob(LAYER, layer)).collect();
        self.image_of(blobs, layers.iter().map(|layer| digest(layer)).collect(), architecture)
    }

    pub fn index(&self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
    }
}

/// A descriptor with a name, or for a platform.
pub fn with(mut descriptor: Value, key: &str, value: Value) -> Value {
    descriptor[key] = value;
    descriptor
}

pub fn named(descriptor: Value, name: &str) -> Value {
    with(descriptor, "annotations", json!({ "org.opencontainers.image.ref.name": name }))
}

/// A link, hard or symbolic, as a member of an archive.
pub fn link(name: &[u8], type_flag: u8, says: &[u8]) -> Vec<u8> {
    let mut block = header(name, type_flag, 0);
    block[157..157 + says.len()].copy_from_slice(says);
    seal(&mut block);
    block
}
