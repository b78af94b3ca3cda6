//! Container images as the Open Container Initiative stores them: layouts of blobs, and layers with whiteouts.
//!
//! An [`Image`] is read from its layers, each of which is unpacked once, into a file without a name unless it lies
//! unpacked in the image. Their headers give the tree that the layers make on top of each other. Then each layer is
//! read again, and only what has survived is poured.
//!
//! Source: OCI image specification 1.1, `image-layout.md`, `descriptor.md`, `layer.md`. Types of documents are those of
//! the crate `oci-spec`. Tests: `tests/oci`, against `umoci unpack` in the command's `tests/command/images.rs`.

mod append;
mod changes;
mod choice;
pub mod digest;
mod image;
mod layer;
mod layers;
mod layout;
mod media_type;
mod names;
mod plan;
mod store;
mod tree;
mod whiteout;

pub use append::{Added, Base, NewImage};
pub use changes::Changes;
pub use choice::{ImageChoice, Platform};
pub use image::Image;
pub use layer::{Layer, LayerWriter, Packing};
pub use layers::{ReadLayers, Reading};
pub(crate) use whiteout::Whiteout;
