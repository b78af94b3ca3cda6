//! The report of `--stats`, which counts on Linux only.

use std::path::Path;

use extant_block::BlockDevice;
use extant_rt::Arc;

use crate::output;

/// Says that nothing is counted.
pub fn begin() {
    output::note("--stats counts requests on Linux only");
}

/// The device, whose requests are not counted.
pub fn counted(_image: &Path, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    device
}

/// Nothing was counted.
pub fn report(_as_json: bool) {}
