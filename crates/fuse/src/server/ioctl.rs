//! The `ioctl`s that FUSE passes: those whose number says how large their argument is.
//!
//! The kernel has flags set by requests of its own, after it has looked at the caller and the mount; those come with 4 bytes, whatever
//! the number says. All else is passed as any caller sends it, through any descriptor, and the caller's permission is checked here:
//! before Linux 5.13 that is so of flags too, and of a 32-bit program's flags by their 32-bit numbers. What is not checked then is
//! whether the descriptor's mount is read-only: a request does not say.
//!
//! Source: `include/uapi/linux/fs.h`, `include/uapi/linux/ext4.h`, `fs/ext4/ioctl.c`; `vfs_fileattr_set`, `fileattr_set_prepare`; `fuse_fileattr_set`.

use extant::{DefragEvent, DefragOptions, Defragmented};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::capabilities::{Capability, is_capable};

const GETFLAGS: u32 = 0x8008_6601;
const GETFLAGS_32: u32 = 0x8004_6601;
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_32: u32 = 0x4004_6602;
const GETVERSION: u32 = 0x8008_7601;
const EXT4_GETVERSION: u32 = 0x8008_6603;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
const SHUTDOWN: u32 = 0x8004_587d;
const FITRIM: u32 = 0xc018_5879;
const RESIZE_FS: u32 = 0x4008_6610;
/// Extant's own: eight numbers of what was done, and of what would be done.
const DEFRAG: u32 = 0x8040_e401;
const PLAN_DEFRAG: u32 = 0x8040_e402;

/// Bytes of `struct fsxattr`, and the offset of the project in it.
const FSXATTR_BYTES: usize = 28;
const PROJECT_AT: usize = 12;

/// Flags of `struct fsxattr` and those of inodes.
const XFLAGS: [(u32, InodeFlags); 7] = [
    (0x0008, InodeFlags::IMMUTABLE),
    (0x0010, InodeFlags::APPEND),
    (0x0020, InodeFlags::SYNC),
    (0x0040, InodeFlags::NOATIME),
    (0x0080, InodeFlags::NODUMP),
    (0x0200, InodeFlags::PROJINHERIT),
    (0x8000, InodeFlags::DAX),
];

fn number_at(bytes: &[u8], at: usize) -> Reply<u32> {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// A request and what it is about.
struct IoctlRequest<'a> {
    caller: Caller,
    node: NodeId,
    file: &'a File,
    request: &'a Ioctl<'a>,
}

impl Server {
    pub(super) fn control_inode(&self, caller: Caller, node: NodeId, request: &Ioctl<'_>) -> Reply<Vec<u8>> {
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        let call = IoctlRequest { caller, node, file, request };
        let input = request.input;
        let command = match request.command {
            // No other program has these numbers, and the kernel's ext4 knows them of no other.
            GETFLAGS_32 if request.is_compat => GETFLAGS,
            SETFLAGS_32 if request.is_compat => SETFLAGS,
            command => command,
        };
        let mut output = match command {
            GETFLAGS => file.flags().bits().to_ne_bytes().to_vec(),
            SETFLAGS => {
                let flags = InodeFlags::from_bits_retain(number_at(input, 0)?);
                self.set_flags(&call, flags)?;
                self.tell_of_change(node);
                Vec::new()
            }
            GETVERSION | EXT4_GETVERSION => file.generation().to_ne_bytes().to_vec(),
            FSGETXATTR => extended_flags(file),
            FSSETXATTR => {
                self.set_extended_flags(&call)?;
                self.tell_of_change(node);
                Vec::new()
            }
            GETFSLABEL => self.fs.superblock().volume_name().to_vec(),
            SETFSLABEL => {
                self.check_administrator(caller)?;
                let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
                self.fs.set_label(&input[..end]).map_err(|error| errno(&error))?;
                Vec::new()
            }
            // The kernel does not pass the mode of the shutdown: the log is committed, which is right for every mode.
            SHUTDOWN => {
                self.check_administrator(caller)?;
                self.fs.force_shutdown(true).map_err(|error| errno(&error))?;
                Vec::new()
            }
            FITRIM => {
                self.check_administrator(caller)?;
                self.trim(input)?
            }
            RESIZE_FS => {
                self.check_administrator(caller)?;
                self.resize(input)?;
                Vec::new()
            }
            DEFRAG | PLAN_DEFRAG => {
                self.check_administrator(caller)?;
                self.defrag(file, command == PLAN_DEFRAG)?
            }
            _ => return Err(Errno::NOTTY),
        };
        // The whole buffer is the caller's to read.
        output.resize(request.out_bytes as usize, 0);
        Ok(output)
    }

    /// The kernel would go on to show as they were: times that an `ioctl` changed, a mode that a change of the content did.
    pub(super) fn tell_of_change(&self, node: NodeId) {
        if let Some(notifier) = self.notifier.get() {
            notifier.forget_attributes(node);
        }
    }

    /// Checks that the caller may administer the file system: it has the capability for that, or is the ordinary user who mounted it.
    /// Root without the capability may not, as in a container.
    fn check_administrator(&self, caller: Caller) -> Reply<()> {
        let is_mounter = caller.uid == self.mounter && !caller.is_root();
        if is_mounter || is_capable(caller.thread, Capability::SystemAdministration) {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }

    /// Checks that the caller may set these flags, if the kernel has not checked it.
    fn check_set_flags(&self, caller: Caller, file: &File, flags: InodeFlags) -> Reply<()> {
        let metadata = file.metadata();
        let is_owner = caller.uid == self.owners.shown(metadata.uid, metadata.gid).0;
        if !is_owner && !is_capable(caller.thread, Capability::FileOwner) {
            return Err(Errno::PERM);
        }
        let fixes = (file.flags() ^ flags).intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if fixes && !is_capable(caller.thread, Capability::LinuxImmutable) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// `struct fstrim_range`: start, bytes and the least of a run; the bytes discarded take the place of the second.
    fn trim(&self, input: &[u8]) -> Reply<Vec<u8>> {
        let (range, _) = <[u64; 3]>::read_from_prefix(input).map_err(|_| Errno::INVAL)?;
        let [start, bytes, least] = range;
        let trimmed =
            self.fs.trim(start..start.saturating_add(bytes), least).map_err(|error| errno(&error))?;
        Ok([start, trimmed, least].as_bytes().to_vec())
    }

    /// The number of blocks to have. A smaller file system is not made of one in use (`ext4_resize_fs`).
    fn resize(&self, input: &[u8]) -> Reply<()> {
        let (blocks, _) = u64::read_from_prefix(input).map_err(|_| Errno::INVAL)?;
        let bytes = blocks.checked_mul(u64::from(self.fs.statistics().block_size)).ok_or(Errno::FBIG)?;
        self.fs.grow(bytes).map(drop).map_err(|error| errno(&error))
    }

    /// Defragments what is at and below a file, as long as the caller waits for it.
    fn defrag(&self, file: &File, dry_run: bool) -> Reply<Vec<u8>> {
        let mut report = |event: DefragEvent<'_>| {
            if let DefragEvent::Directory { inode, .. } = event
                && !dry_run
            {
                self.tell_of_change(Self::node_id(inode));
            }
            true
        };
        let done = file.defrag(&DefragOptions { dry_run }, &mut report).map_err(|error| errno(&error))?;
        let Defragmented { files, directories, runs_before, runs_after, .. } = done;
        let Defragmented { joined_runs, moved_bytes, left, failed, .. } = done;
        let sums = [files, directories, runs_before, runs_after, joined_runs, moved_bytes, left, failed];
        Ok(sums.as_bytes().to_vec())
    }

    fn set_flags(&self, call: &IoctlRequest<'_>, flags: InodeFlags) -> Reply<()> {
        let file = call.file;
        if !call.request.is_permitted {
            self.check_set_flags(call.caller, file, flags)?;
        }
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if file.metadata().file_type == FileType::Regular
            && ((flags - file.flags()) & fixed) != InodeFlags::empty()
        {
            // Writes through a mapping until now were allowed; later ones are refused (`ext4_ioctl_setflags`).
            self.have_written_back(call.node, 0..u64::MAX);
        }
        file.set_flags(flags).map_err(|error| errno(&error))
    }

    fn set_extended_flags(&self, call: &IoctlRequest<'_>) -> Reply<()> {
        let (file, request) = (call.file, call.request);
        let project = number_at(request.input, PROJECT_AT)?;
        let wanted = number_at(request.input, 0)?;
        let mut flags = file.flags();
        for (bit, flag) in XFLAGS {
            flags.set(flag, wanted & bit != 0);
        }
        self.set_flags(call, flags)?;
        if project == file.metadata().project {
            return Ok(());
        }
        let set = SetAttributes { project: Some(project), ..SetAttributes::default() };
        file.set_attributes(&set).map_err(|error| errno(&error))
    }
}

fn extended_flags(file: &File) -> Vec<u8> {
    let metadata = file.metadata();
    let set = XFLAGS.iter().filter(|(_, flag)| metadata.flags.contains(*flag));
    let bits = set.fold(0_u32, |bits, (bit, _)| bits | bit);
    let mut bytes = vec![0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&bits.to_ne_bytes());
    bytes[PROJECT_AT..PROJECT_AT + 4].copy_from_slice(&metadata.project.to_ne_bytes());
    bytes
}
