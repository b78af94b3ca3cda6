//! Opens a file of an HTTP server or of object storage, for reading.

use std::path::{Path, PathBuf};

use extant_block::DeviceAccess;
use extant_http::{Account, Credentials, Error, HttpDevice, Object, Options};

use crate::failure::Failure;

/// Asks a server for the file that `image` names.
pub fn open(image: &Path, access: DeviceAccess) -> Result<HttpDevice, Failure> {
    let text = image.to_str().ok_or_else(|| Failure::usage(format!("'{}' is not UTF-8", image.display())))?;
    if !access.read_only {
        let message =
            "disks over HTTP and in S3 can only be read (mount: -o ro); to write, download the file";
        return Err(Failure::new("read_only", text, message));
    }
    let failed = |error: Error| failure(image, &error);
    let object = match text.starts_with("s3:") {
        true => Object::s3(text, account()?),
        false => Object::http(text),
    };
    let authorities = variable("AWS_CA_BUNDLE")?.filter(|_| text.starts_with("s3:"));
    let authorities = match authorities {
        Some(file) => Some(file),
        None => variable("SSL_CERT_FILE")?,
    };
    let options = Options { authorities: authorities.map(PathBuf::from), ..Options::default() };
    HttpDevice::open(object.map_err(failed)?, &options).map_err(failed)
}

/// The account that the environment names, by the variables of AWS's own tools.
fn account() -> Result<Account, Failure> {
    let first_of = |names: [&str; 2]| match variable(names[0])? {
        Some(value) => Ok(Some(value)),
        None => variable(names[1]),
    };
    let credentials = match (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?) {
        (Some(access_key_id), Some(secret_access_key)) => {
            let session_token = variable("AWS_SESSION_TOKEN")?;
            Some(Credentials { access_key_id, secret_access_key, session_token })
        }
        (None, None) => None,
        _ => {
            let message =
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together; one of them is missing";
            return Err(Failure::usage(message));
        }
    };
    Ok(Account {
        region: first_of(["AWS_REGION", "AWS_DEFAULT_REGION"])?,
        endpoint: first_of(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])?,
        credentials,
    })
}

/// A variable of the environment; an empty one is none.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| Failure::usage(format!("{name} is not UTF-8")))
}

fn failure(image: &Path, error: &Error) -> Failure {
    let place = image.display().to_string();
    let text = error.to_string();
    let message = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
    let kind = match error {
        Error::Url { .. } => return Failure::usage(text),
        Error::NotFound { .. } => "not_found",
        Error::Refused { .. } | Error::Tls { .. } => "refused",
        Error::NoRanges { .. } => "unsupported",
        Error::Changed { .. } => "changed",
        _ => "io",
    };
    Failure::new(kind, place, message)
}
