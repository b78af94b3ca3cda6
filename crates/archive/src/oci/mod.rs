//! Container images as the Open Container Initiative stores them: layouts of blobs, and layers with whiteouts.
//!
//! Source: OCI image specification 1.1, `image-layout.md`, `descriptor.md`, `layer.md`. Types of documents are those of
//! the crate `oci-spec`.

pub mod digest;
pub mod media_type;
pub mod whiteout;
