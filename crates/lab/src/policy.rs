//! Policies: how the allocators work, by the name of a step of their ladder or as a file with fields of [`Tuning`].

pub mod compare;
pub mod plot;

use std::path::Path;

use extant::{Scan, Tuning};
use extant_loads::ladder;

/// The default as a file, with what can be chosen.
pub const DEFAULT: &str = include_str!("../policies/default.toml");

/// A step of the ladder by its name, or a file.
///
/// # Errors
/// If it is neither; or a key of the file is none of [`Tuning`]'s, or has no value of its.
pub fn load(policy: &Path) -> Result<Tuning, String> {
    let steps = ladder::steps(Scan::ListHead);
    if let Some(step) = steps.iter().find(|step| policy.to_str() == Some(step.key)) {
        return Ok(step.tuning);
    }
    let of = |error: &dyn std::fmt::Display| format!("{}: {error}", policy.display());
    let source = std::fs::read_to_string(policy).map_err(|error| {
        let names: Vec<_> = steps.iter().map(|step| step.key).collect();
        format!("{}; policies by name: {}", of(&error), names.join(", "))
    })?;
    toml::from_str(&source).map_err(|error| of(&error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_default_names_every_field_with_its_default() {
        assert_eq!(toml::from_str::<Tuning>(DEFAULT).expect("a policy"), Tuning::default());
        let written = format!("{:?}", Tuning::default());
        let fields = written.split(['{', ',']).filter_map(|part| part.split_once(':'));
        let table: toml::Table = DEFAULT.parse().expect("a table");
        for (field, _) in fields.clone() {
            assert!(table.contains_key(field.trim()), "{field}");
        }
        assert_eq!(fields.count(), table.len());
    }
}
