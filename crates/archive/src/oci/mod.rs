//! Container images as the Open Container Initiative stores them: layouts of blobs, and layers with whiteouts.
//!
//! Source: OCI image specification 1.1, `image-layout.md`, `descriptor.md`, `layer.md`. Types of documents are those of
//! the crate `oci-spec`.

mod append;
mod changes;
pub mod digest;
mod layer;
pub mod media_type;
pub mod whiteout;

pub use append::{Added, Base, NewImage};
pub use changes::Changes;
pub use layer::{Layer, LayerWriter, Packing};
