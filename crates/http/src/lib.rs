//! Disks behind HTTP servers and in object storage: [`HttpDevice`] reads ranges of a file over HTTP, HTTPS or the protocol of S3, as a
//! block device that is not written.
//!
//! The requests are those of RFC 9110, section 14 (byte ranges), and are signed for S3 as
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html> says. Everything that the server sends is checked, and
//! bounded before memory is taken for it.
//!
//! Leaves out: writing; what is on the device; where keys for S3 come from.
#![forbid(unsafe_code)]

mod client;
mod device;
mod error;
mod object;
mod response;
mod s3;

pub use client::Options;
pub use device::HttpDevice;
pub use error::Error;
pub use object::Object;
pub use s3::{Account, Credentials};
