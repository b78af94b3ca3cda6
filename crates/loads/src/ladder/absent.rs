//! No forms of older kernels.

use extant::Tuning;

use super::{NotBuilt, Order, Step, require};

/// From the oldest form of everything to the default.
///
/// # Errors
/// `NotBuilt`.
pub fn steps(_: Order) -> Result<Vec<Step>, NotBuilt> {
    require("the steps of the ladder").map(|()| Vec::new())
}

/// A tuning by which searches go by order, from the first group of the lowest sufficient one.
///
/// # Errors
/// `NotBuilt`.
pub fn with_list_head(tuning: Tuning) -> Result<Tuning, NotBuilt> {
    require("groups from the head of lists").map(|()| tuning)
}

/// A tuning by which an inode's preallocations are a list.
///
/// # Errors
/// `NotBuilt`.
pub fn with_preallocation_list(tuning: Tuning) -> Result<Tuning, NotBuilt> {
    require("preallocations in a list").map(|()| tuning)
}
