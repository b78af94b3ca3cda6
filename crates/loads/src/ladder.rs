//! The steps that the kernel's allocator took, from its oldest forms to the default, and tunings with some of these forms.
//!
//! Only a build with `--cfg extant_linux_model` has forms of older kernels; in another one they are [`NotBuilt`].
//!
//! Source: the commits of Linux 4.14, 6.4 and 6.17 that the names of the steps say.

use std::fmt;

use extant::Tuning;

#[cfg(extant_linux_model)]
mod linux_model;
#[cfg(not(extant_linux_model))]
#[path = "ladder/absent.rs"]
mod linux_model;

pub use self::linux_model::{steps, with_list_head, with_preallocation_list};

/// The names of the steps, from the oldest form of everything on.
pub const KEYS: [&str; 12] = [
    "oldest",
    "inodes",
    "inodes-merged",
    "base",
    "patch-1",
    "patch-4",
    "patch-5",
    "patch-8",
    "patch-9",
    "patch-17",
    "unhashed",
    DEFAULT,
];

const DEFAULT: &str = "default";

/// A step, with all steps up to it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// By which it is asked for.
    pub key: &'static str,
    /// In words.
    pub name: &'static str,
    /// How the allocators work then.
    pub tuning: Tuning,
}

/// The order of visiting groups until the kernel's last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One by one (`mb_optimize_scan=0`).
    Linear,
    /// By order, from the head of the lists (before 6.17).
    ListHead,
    /// By order, from the goal on (since 6.17).
    Ordered,
}

/// A form of older kernels is asked for that this build does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct NotBuilt {
    form: String,
}

impl fmt::Display for NotBuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: this build has no forms of older kernels; `make lab` builds extant-lab with them, `make ladder` extant-bench in \
             target/linux-model",
            self.form
        )
    }
}

impl std::error::Error for NotBuilt {}

/// Whether a form of older kernels, which is named in the error, can be had.
///
/// # Errors
/// `NotBuilt` if the build has none.
pub fn require(form: &str) -> Result<(), NotBuilt> {
    if cfg!(extant_linux_model) { Ok(()) } else { Err(NotBuilt { form: form.to_owned() }) }
}

/// A step by its name. `None` if there is none of that name.
///
/// # Errors
/// `NotBuilt` for all but the default, if the build has no forms of older kernels.
pub fn step(order: Order, key: &str) -> Result<Option<Step>, NotBuilt> {
    match key {
        DEFAULT => Ok(Some(default_step())),
        _ if !KEYS.contains(&key) => Ok(None),
        _ => {
            require(key)?;
            Ok(steps(order)?.into_iter().find(|step| step.key == key))
        }
    }
}

fn default_step() -> Step {
    Step { key: DEFAULT, name: "the default: the nearest group with a chunk", tuning: Tuning::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_there_by_its_name_or_says_which_build_has_it() {
        for key in KEYS {
            match step(Order::ListHead, key) {
                Ok(step) => assert_eq!(step.map(|step| step.key), Some(key)),
                Err(error) => {
                    assert!(!cfg!(extant_linux_model) && key != DEFAULT);
                    assert!(error.to_string().starts_with(&format!("{key}: this build")), "{error}");
                }
            }
        }
        assert!(step(Order::ListHead, "patch-2").is_ok_and(|step| step.is_none()));
        let are_all = steps(Order::Linear).is_ok_and(|steps| steps.iter().map(|step| step.key).eq(KEYS));
        assert_eq!(are_all, cfg!(extant_linux_model));
    }
}
