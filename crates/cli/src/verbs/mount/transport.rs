//! Notes that the kernel could hand requests over by CPU.

use std::io::{IsTerminal, stderr};

/// The kernel's setting, where it has FUSE over io_uring.
const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Says on a terminal how an administrator has the kernel send requests over io_uring, if it could and does not.
pub fn hint() {
    if stderr().is_terminal() && std::fs::read_to_string(SETTING).is_ok_and(|value| is_off(&value)) {
        let message = format!(
            "several clients at once are faster over io_uring: as root, echo Y >{SETTING}, and mount again"
        );
        crate::output::note(&message);
    }
}

fn is_off(value: &str) -> bool {
    value.trim() == "N"
}

#[cfg(test)]
mod tests {
    use super::is_off;

    #[test]
    fn setting_is_off_only_if_the_kernel_says_so() {
        assert!(is_off("N\n"));
        assert!(!is_off("Y\n"));
        assert!(!is_off(""));
    }
}
