//! Media types of Docker, which mean the same as those of OCI.
//!
//! Source: distribution, "Image Manifest Version 2, Schema 2".

use oci_spec::image::MediaType;

/// A manifest of Docker.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// An index of Docker.
pub const DOCKER_MANIFEST_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// A configuration of Docker.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// A layer of Docker.
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// A layer of Docker, packed.
pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// A layer of Docker, packed.
pub const DOCKER_LAYER_ZSTD: &str = "application/vnd.docker.image.rootfs.diff.tar.zstd";

/// The type of OCI that means the same as `media_type`, or itself.
#[must_use]
pub fn of_oci(media_type: &MediaType) -> MediaType {
    match media_type.as_ref() {
        DOCKER_MANIFEST => MediaType::ImageManifest,
        DOCKER_MANIFEST_LIST => MediaType::ImageIndex,
        DOCKER_CONFIG => MediaType::ImageConfig,
        DOCKER_LAYER => MediaType::ImageLayer,
        DOCKER_LAYER_GZIP => MediaType::ImageLayerGzip,
        DOCKER_LAYER_ZSTD => MediaType::ImageLayerZstd,
        _ => media_type.clone(),
    }
}
