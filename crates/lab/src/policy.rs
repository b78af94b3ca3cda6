//! Policies: how the allocators work, by the name of one in code (crates/policies) or of a step of their ladder, or as a file with
//! fields of [`Tuning`].

pub mod compare;
pub mod plot;

use std::path::Path;

use extant::Tuning;
use extant_loads::ladder::{self, Order};

/// The default as a file, with what can be chosen.
pub const DEFAULT: &str = include_str!("../policies/default.toml");

/// The table of a file that chooses forms of older kernels.
const LINUX_MODEL: &str = "linux_model";

/// A policy in code or a step of the ladder by its name, or a file.
///
/// # Errors
/// If it is none of these; or a key of the file is none of [`Tuning`]'s, or has no value of its; or it asks for forms of older kernels,
/// and the build has none.
pub fn load(policy: &Path) -> Result<Tuning, String> {
    let key = policy.to_str().unwrap_or_default();
    if let Some(tuning) = extant_policies::tuning(key) {
        return Ok(tuning);
    }
    if let Some(step) = ladder::step(Order::ListHead, key).map_err(|error| error.to_string())? {
        return Ok(step.tuning);
    }
    let of = |error: &dyn std::fmt::Display| format!("{}: {error}", policy.display());
    let source = std::fs::read_to_string(policy).map_err(|error| {
        let names: Vec<_> = extant_policies::ALL.iter().map(|(name, _)| *name).chain(ladder::KEYS).collect();
        format!("{}; policies by name: {}", of(&error), names.join(", "))
    })?;
    if source.parse::<toml::Table>().is_ok_and(|table| table.contains_key(LINUX_MODEL)) {
        ladder::require(LINUX_MODEL).map_err(|error| of(&error))?;
    }
    toml::from_str(&source).map_err(|error| of(&error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(extant_linux_model)]
    fn the_file_of_the_default_names_every_field_with_its_default() {
        assert_eq!(toml::from_str::<Tuning>(DEFAULT).expect("a policy"), Tuning::default());
        let table: toml::Table = DEFAULT.parse().expect("a table");
        let forms = table[LINUX_MODEL].as_table().expect("a table");
        // Fields of the forms stand behind a brace of their own, which the outer field opens.
        let written = format!("{:?}", Tuning::default());
        let fields = written.split(['{', ',']).filter_map(|part| part.split_once(':'));
        for (field, _) in fields.clone() {
            assert!(table.contains_key(field.trim()) || forms.contains_key(field.trim()), "{field}");
        }
        assert_eq!(fields.count(), table.len() + forms.len());
    }
}
