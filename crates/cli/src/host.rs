//! What the verbs ask the host beside files: of Linux, and what is known of other hosts.

#[cfg_attr(target_os = "linux", path = "host/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "host/portable.rs")]
mod system;

pub use system::{
    allocated_bytes, available_bytes, is_block_device, is_stream, mode_and_owner, mounted_block_size,
    new_file, second_handle, stdin_is_pipe, temporary_directory,
};
