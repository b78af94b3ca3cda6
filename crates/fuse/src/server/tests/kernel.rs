//! File handles through the running kernel.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::UnmountFlags;

use super::*;
use crate::{MountOptions, Session};

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

#[expect(unsafe_code, reason = "name_to_handle_at has no safe wrapper")]
fn handle_of(path: &Path) -> Handle {
    let mut handle = Handle { bytes: 128, kind: 0, handle: [0; 128] };
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    let mut mount = 0_i32;
    let at = libc::AT_FDCWD;
    // SAFETY: the name ends with a NUL; `bytes` says how long the array is; both are written to while they live.
    let done = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, at, name.as_ptr(), &raw mut handle, &raw mut mount, 0)
    };
    assert_eq!(done, 0, "{}: {}", path.display(), io::Error::last_os_error());
    handle
}

#[expect(unsafe_code, reason = "open_by_handle_at has no safe wrapper")]
fn open(mount: &Path, handle: &Handle) -> io::Result<File> {
    let mount = File::open(mount)?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the handle is one that the kernel filled in, and it is only read.
    let opened =
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw const *handle, flags) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as i32) }.into())
}

/// Unmounts, also after a panic.
struct Mounted<'p>(&'p Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

/// Runs `act` on a mount of the disk; false, and says so, if nothing can be mounted here.
fn on_mount(device: &Arc<MemoryDevice>, point: &Path, act: impl FnOnce()) -> bool {
    on_mount_of(&served(device), point, act)
}

/// Runs `act` on a mount that `server` serves; false, and says so, if nothing can be mounted here.
pub(super) fn on_mount_of(server: &Arc<Server>, point: &Path, act: impl FnOnce()) -> bool {
    let served = serve_while(server, point, act);
    let has_mounted = served.is_some();
    served.into_iter().for_each(|end| end.expect("served"));
    if has_mounted {
        server.finish().expect("a clean disk");
    }
    has_mounted
}

/// Runs `act` on a mount that `server` serves: how serving ended. None, and says so, if nothing can be mounted here.
pub(super) fn serve_while(server: &Arc<Server>, point: &Path, act: impl FnOnce()) -> Option<io::Result<()>> {
    let options = MountOptions { source: "memory".into(), ..MountOptions::default() };
    let session = match Session::mount(server.clone(), point, &options) {
        Ok(session) => session,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let mounted = Mounted(point);
    let serving = std::thread::spawn(|| session.run());
    act();
    drop(mounted);
    Some(serving.join().expect("no panic"))
}

#[test]
fn handle_is_good_on_the_next_mount_until_the_file_is_deleted() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: file handles are root's");
    }
    let point = std::env::temp_dir().join(format!("extant-handles-{}", std::process::id()));
    std::fs::create_dir(&point).expect("a directory");
    let device = disk();
    let (dir, file) = (point.join("dir"), point.join("dir/file"));
    let mut handles = None;
    let has_mounted = on_mount(&device, &point, || {
        std::fs::create_dir(&dir).expect("mkdir");
        std::fs::write(&file, "content").expect("write");
        handles = Some((handle_of(&dir), handle_of(&file), handle_of(&point.join(".extant"))));
    });
    if let Some((of_dir, of_file, of_control)) = handles.filter(|_| has_mounted) {
        on_mount(&device, &point, || {
            let mut content = String::new();
            open(&point, &of_file).expect("the file").read_to_string(&mut content).expect("read");
            assert_eq!(content, "content");
            let opened = open(&point, &of_dir).expect("the directory");
            let place = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            assert_eq!(place.expect("its place"), dir);
            drop(opened);
            std::fs::remove_dir_all(&dir).expect("removed");
            for handle in [&of_dir, &of_file, &of_control] {
                let stale = open(&point, handle).map(drop).map_err(|error| error.raw_os_error());
                assert_eq!(stale, Err(Some(libc::ESTALE)));
            }
        });
    }
    std::fs::remove_dir(&point).expect("the directory again");
}
