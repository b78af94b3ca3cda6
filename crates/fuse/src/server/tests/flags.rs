//! Flags set by requests at which the kernel has not looked, as before Linux 5.13.

use super::*;

const SETFLAGS_32: u32 = 0x4004_6602;
const FSSETXATTR: u32 = 0x401c_5820;
const SHUTDOWN: u32 = 0x8004_587d;

/// This process as root, with the capabilities that it has.
fn this() -> Caller {
    Caller { thread: std::process::id(), ..ROOT }
}

#[test]
fn kernels_that_do_not_look_at_the_caller_leave_it_to_the_server() {
    let server = served(&disk());
    let node = make(&server, NodeId::ROOT, b"file", InodeType::File, 0o644).node;
    let flags = || server.nodes.get(node).and_then(|served| Ok(served.file()?.flags())).expect("flags");
    let plain = flags();
    let is_capable = rustix::process::geteuid().is_root();
    for (flag, xflag, callers) in [
        (InodeFlags::NODUMP, 0x80, [(OWNER, true), (OTHER, false), (ROOT, false), (this(), is_capable)]),
        (InodeFlags::IMMUTABLE, 8, [(OWNER, false), (OTHER, false), (ROOT, false), (this(), is_capable)]),
        (InodeFlags::APPEND, 16, [(OWNER, false), (OTHER, false), (ROOT, false), (this(), is_capable)]),
    ] {
        for (caller, may) in callers {
            for (command, is_compat, bits, is_known) in [
                (SETFLAGS, false, (plain | flag).bits(), true),
                (SETFLAGS_32, true, (plain | flag).bits(), true),
                (SETFLAGS_32, false, (plain | flag).bits(), false),
                (FSSETXATTR, false, xflag, true),
            ] {
                let mut input = [0; 28];
                input[..4].copy_from_slice(&bits.to_ne_bytes());
                let request = Ioctl { is_compat, is_permitted: false, ..asked(command, &input, 0) };
                let expected = match (is_known, may) {
                    (true, true) => Ok(()),
                    (true, false) => Err(Errno::PERM),
                    (false, _) => Err(Errno::NOTTY),
                };
                let done = server.ioctl(caller, node, &request).map(drop);
                assert_eq!(done, expected, "{caller:?} {command:x} {flag:?}");
                assert_eq!(flags() ^ plain, if done.is_ok() { flag } else { InodeFlags::empty() });
                let input = &plain.bits().to_ne_bytes();
                server.ioctl(ROOT, node, &asked(SETFLAGS, input, 0)).expect("plain again");
            }
        }
    }
    server.finish().expect("unmounted");
}

#[test]
fn root_without_the_capability_is_no_administrator_and_the_mounter_is() {
    for (mounter, caller, may) in [
        (0, ROOT, false),
        (0, OWNER, false),
        (0, this(), rustix::process::geteuid().is_root()),
        (1000, OWNER, true),
        (1000, OTHER, false),
        (1000, ROOT, false),
    ] {
        let fs = Mount::new().open_device(disk()).expect("a mount");
        let options = ServerOptions { uid: mounter, ..ServerOptions::default() };
        let server = Server::new(fs, options).expect("a server");
        let expected = if may { Ok(()) } else { Err(Errno::PERM) };
        let done = server.ioctl(caller, NodeId::ROOT, &asked(SHUTDOWN, &[], 0)).map(drop);
        assert_eq!(done, expected, "{mounter} {caller:?}");
        server.finish().expect("unmounted");
    }
}
