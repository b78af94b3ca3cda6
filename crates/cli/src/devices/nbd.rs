//! Opens an export of a server of network block devices.

use std::path::Path;

use extant_block::{BlockDevice as _, DeviceAccess};
use extant_nbd::{Error, NbdDevice, Options, Uri};

use super::WRITE_PROTECTED;
use crate::failure::Failure;

/// Connects to the export that `image` names.
pub fn open(image: &Path, access: DeviceAccess) -> Result<NbdDevice, Failure> {
    let text = image.to_str().ok_or_else(|| Failure::usage(format!("'{}' is not UTF-8", image.display())))?;
    let uri = Uri::parse(text).map_err(|error| failure(image, &error))?;
    let options = Options { read_only: access.read_only, ..Options::default() };
    let device = NbdDevice::open(&uri, options).map_err(|error| failure(image, &error))?;
    if device.is_read_only() && !access.read_only {
        let message = "read-only at the server; it can only be read";
        return Err(Failure::new(WRITE_PROTECTED, text, message));
    }
    Ok(device)
}

fn failure(image: &Path, error: &Error) -> Failure {
    let place = image.display().to_string();
    let text = error.to_string();
    let message = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
    match error {
        Error::Uri { .. } => Failure::usage(text),
        Error::Unreachable { source, .. } => Failure::host(image, source),
        Error::Refused { .. } | Error::Tls { .. } => Failure::new("refused", place, message),
        _ => Failure::new("io", place, message),
    }
}
