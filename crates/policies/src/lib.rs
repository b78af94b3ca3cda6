//! Allocation policies of one's own: `extant-lab` and `extant-bench run` take each by its name as `--policy`.
//!
//! To add one, write its file beside the others and enter it in [`ALL`]; docs/guides/compare-a-policy.md goes through it.
#![forbid(unsafe_code)]

mod round_robin;
mod rralloc;
mod worst_fit;

use extant::policy::Policy;
use extant::{Scan, Tuning};

pub use round_robin::RoundRobin;
pub use rralloc::RrAlloc;
pub use worst_fit::WorstFit;

/// Makes a policy whose state is new.
type New = fn() -> Box<dyn Policy>;

/// The policies by their names.
pub const ALL: &[(&str, New)] = &[
    ("round-robin", || Box::<RoundRobin>::default()),
    ("rralloc", || Box::<RrAlloc>::default()),
    ("worst-fit", || Box::new(WorstFit)),
];

/// The default with the policy of a name instead of its own, as long as the process lives. `None` if there is none of that name.
#[must_use]
pub fn tuning(name: &str) -> Option<Tuning> {
    let (_, new) = ALL.iter().find(|(known, _)| *known == name)?;
    Some(Tuning { scan: Scan::Own(Box::leak(new())), ..Tuning::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_is_found_by_its_own_name() {
        for (name, new) in ALL {
            assert_eq!(new().name(), *name);
            assert!(
                matches!(tuning(name), Some(Tuning { scan: Scan::Own(policy), .. }) if policy.name() == *name)
            );
        }
        assert!(tuning("no-such-policy").is_none());
    }
}
