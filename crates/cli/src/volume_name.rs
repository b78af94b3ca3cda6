//! The name of a logical volume: `VG/LV`.

use std::fmt;
use std::str::FromStr;

/// A volume group and a volume of it. Names are words of the command line, or of the few disks that one names, and live as long as the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeName {
    group: &'static str,
    name: &'static str,
}

impl VolumeName {
    /// The name of a volume that was found.
    pub fn new(group: &str, name: &str) -> Self {
        let kept = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        Self { group: kept(group), name: kept(name) }
    }

    /// Whether it is the name of this volume.
    pub fn is(self, group: &str, name: &str) -> bool {
        self.group == group && self.name == name
    }
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((group, name)) if !group.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::new(group, name))
            }
            _ => Err(format!("a logical volume is named as VG/LV, not '{text}'")),
        }
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.name)
    }
}
