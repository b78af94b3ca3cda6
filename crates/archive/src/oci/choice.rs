//! Which image of several: by name, and by platform.
//!
//! Source: OCI image specification 1.1, `image-index.md`, `annotations.md`.

use std::fmt;
use std::str::FromStr;

use oci_spec::image::{Arch, Descriptor};

/// The name of an image in a layout.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The whole name that containerd and Docker write beside it.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// Says what a manifest is beside the images of an index.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";

/// Names that a message lists.
const LISTED_MAX: usize = 20;

/// Which image is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageChoice {
    /// Its name, with a tag or without.
    pub name: Option<String>,
    /// Its platform; that of the host where there are several.
    pub platform: Option<Platform>,
}

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// Linux on the host's processor.
    #[must_use]
    pub fn host() -> Self {
        Self { os: "linux".to_owned(), architecture: Arch::default().to_string(), variant: None }
    }

    /// Its processor, as Go spells it.
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// That of a configuration.
    pub(super) fn new(os: impl fmt::Display, architecture: impl fmt::Display, variant: Option<&str>) -> Self {
        Self {
            os: os.to_string(),
            architecture: architecture.to_string(),
            variant: variant.map(str::to_owned),
        }
    }

    /// That of a manifest, if its descriptor says one.
    pub(super) fn of(descriptor: &Descriptor) -> Option<Self> {
        let platform = descriptor.platform().as_ref()?;
        Some(Self::new(platform.os(), platform.architecture(), platform.variant().as_deref()))
    }

    /// Whether an image for `offered` is one for this. A variant counts only if it is wanted and offered.
    pub(super) fn takes(&self, offered: &Self) -> bool {
        let is_variant = match (&self.variant, &offered.variant) {
            (Some(wanted), Some(offered)) => wanted == offered,
            _ => true,
        };
        self.os == offered.os && self.architecture == offered.architecture && is_variant
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [os, architecture] if !os.is_empty() && !architecture.is_empty() => {
                Ok(Self::new(os, architecture, None))
            }
            [os, architecture, variant] if parts.iter().all(|part| !part.is_empty()) => {
                Ok(Self::new(os, architecture, Some(variant)))
            }
            _ => Err(format!("'{text}' is not OS/ARCH[/VARIANT], as linux/amd64 or linux/arm/v7")),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

/// The names of an image in a layout.
pub(super) fn names(descriptor: &Descriptor) -> Vec<String> {
    let annotations = descriptor.annotations().as_ref();
    let named = |key| annotations.and_then(|annotations| annotations.get(key)).cloned();
    [named(CONTAINERD_NAME), named(REF_NAME)].into_iter().flatten().collect()
}

/// Whether the manifest is about another one: how it was built, who signed it.
pub(super) fn is_attestation(descriptor: &Descriptor) -> bool {
    let annotations = descriptor.annotations().as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(REFERENCE_TYPE))
        || Platform::of(descriptor).is_some_and(|platform| platform.os == "unknown")
}

/// Whether an image called `name` is meant by `wanted`, which may leave out the registry and the tag `latest`.
pub(super) fn is_named(name: &str, wanted: &str) -> bool {
    let is_tail = |wanted: &str| {
        name.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    is_tail(wanted) || is_tail(&format!("{wanted}:latest"))
}

/// What there is, for a message.
pub(super) fn list(mut items: Vec<String>) -> String {
    items.sort();
    items.dedup();
    let more = items.len().saturating_sub(LISTED_MAX);
    items.truncate(LISTED_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", items.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_read_and_compared() {
        let parse = |text: &str| text.parse::<Platform>().unwrap();
        assert_eq!(parse("linux/arm/v7").to_string(), "linux/arm/v7");
        assert!(parse("linux/arm").takes(&parse("linux/arm/v7")));
        assert!(parse("linux/arm64/v8").takes(&parse("linux/arm64")));
        assert!(!parse("linux/arm/v6").takes(&parse("linux/arm/v7")));
        assert!(!parse("linux/arm").takes(&parse("linux/amd64")));
        for wrong in ["", "linux", "linux/", "/amd64", "linux//v7", "a/b/c/d"] {
            assert!(wrong.parse::<Platform>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_may_leave_out_the_registry_and_latest() {
        for wanted in ["docker.io/library/web:latest", "web:latest", "web", "library/web"] {
            assert!(is_named("docker.io/library/web:latest", wanted), "{wanted}");
        }
        for wanted in ["eb", "web:1", "brary/web"] {
            assert!(!is_named("docker.io/library/web:latest", wanted), "{wanted}");
        }
        assert!(is_named("v1", "v1"));
    }
}
