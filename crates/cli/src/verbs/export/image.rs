//! An image in an OCI image layout.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use extant_archive::oci::{Base, Changes, NewImage, Platform};
use extant_block::os_string;

use super::{Export, Packed};
use crate::address::DiskPath;
use crate::disks::{clock, fixed_time};
use crate::failure::Failure;

/// The name of an image that is given none, as Docker's.
const DEFAULT_TAG: &str = "latest";

/// Adds the image that `--oci` names.
pub fn add(
    export: &Export,
    layout: &OsString,
    source: &DiskPath,
    changes: Changes,
) -> Result<Packed, Failure> {
    let (layout, name) = split(layout)?;
    let base = match (&export.base, &export.image) {
        (None, _) => Base::None,
        (Some(_), None) => Base::Only,
        (Some(_), Some(name)) => Base::Named(name.clone()),
    };
    let created = fixed_time(clock()?);
    let architecture = Platform::host().architecture().to_owned();
    let image = NewImage { layout, name, base, packing: export.packing(), created, architecture };
    let (mut packed, mut failure) = (Packed::default(), None);
    let added = image.add(|sink| match export.pour(changes, sink, source) {
        Ok(poured) => {
            packed = poured;
            Ok(())
        }
        Err(failed) => {
            failure = Some(failed);
            Err(extant_archive::Error::Cancelled)
        }
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let added = added.map_err(|error| export.failed(source, error))?;
    let layer = added.layer;
    let digests = vec![("diff_id", layer.diff_id), ("digest", layer.digest), ("manifest", added.manifest)];
    Ok(Packed { sockets: layer.sockets_left_out, digests, ..packed })
}

/// The layout's directory and the image's name: `DIR:TAG`, which the first colon splits.
fn split(argument: &OsStr) -> Result<(PathBuf, String), Failure> {
    let bytes = argument.as_encoded_bytes();
    let path = |bytes: &[u8]| PathBuf::from(os_string(bytes.to_vec()));
    let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
        return Ok((path(bytes), DEFAULT_TAG.to_owned()));
    };
    let tag = &bytes[colon + 1..];
    let is_tag_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:@/+".contains(byte);
    if !tag.first().is_some_and(u8::is_ascii_alphanumeric) || !tag.iter().all(is_tag_byte) || colon == 0 {
        let shown = argument.display();
        return Err(Failure::usage(format!(
            "'{shown}' is not DIR:TAG, with a tag of letters, digits and -._ that begins with a letter or digit"
        )));
    }
    Ok((path(&bytes[..colon]), String::from_utf8_lossy(tag).into_owned()))
}
