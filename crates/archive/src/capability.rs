//! Capabilities of files, the value of `security.capability`.
//!
//! Source: `include/uapi/linux/capability.h`, `struct vfs_ns_cap_data`; `cap_inode_getsecurity` of
//! `security/commoncap.c`.

/// The extended attribute that holds the capabilities of a file.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const REVISION_MASK: u32 = 0xff00_0000;
const REVISION_1: u32 = 0x0100_0000;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
const EFFECTIVE: u32 = 1;

/// The capabilities that a program gets from its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileCapabilities {
    /// Whether the program begins with its permitted ones in effect.
    pub effective: bool,
    /// One bit for each capability.
    pub permitted: u64,
    /// Likewise.
    pub inheritable: u64,
    /// The user who is root of the user namespaces where they count.
    pub root: u32,
}

impl FileCapabilities {
    /// Reads a value of revision 1, 2 or 3. None if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (words, rest) = value.as_chunks::<4>();
        if !rest.is_empty() {
            return None;
        }
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let (magic, sets) = words.split_first()?;
        let (low, high, root) = match (magic & REVISION_MASK, sets) {
            (REVISION_1, &[permitted, inheritable]) => ((permitted, inheritable), (0, 0), 0),
            (REVISION_2, &[p0, i0, p1, i1]) => ((p0, i0), (p1, i1), 0),
            (REVISION_3, &[p0, i0, p1, i1, root]) => ((p0, i0), (p1, i1), root),
            _ => return None,
        };
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Some(Self {
            effective: magic & EFFECTIVE != 0,
            permitted: join(low.0, high.0),
            inheritable: join(low.1, high.1),
            root,
        })
    }

    /// The value: of revision 2 for the root of all namespaces, else of revision 3.
    pub fn to_bytes(self) -> Vec<u8> {
        let revision = if self.root == 0 { REVISION_2 } else { REVISION_3 };
        let mut words = vec![revision | if self.effective { EFFECTIVE } else { 0 }];
        for shift in [0, 32] {
            words.extend([self.permitted, self.inheritable].map(|set| (set >> shift) as u32));
        }
        if self.root != 0 {
            words.push(self.root);
        }
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

/// Names of capabilities, by number.
const NAMES: [&str; 41] = [
    "cap_chown",
    "cap_dac_override",
    "cap_dac_read_search",
    "cap_fowner",
    "cap_fsetid",
    "cap_kill",
    "cap_setgid",
    "cap_setuid",
    "cap_setpcap",
    "cap_linux_immutable",
    "cap_net_bind_service",
    "cap_net_broadcast",
    "cap_net_admin",
    "cap_net_raw",
    "cap_ipc_lock",
    "cap_ipc_owner",
    "cap_sys_module",
    "cap_sys_rawio",
    "cap_sys_chroot",
    "cap_sys_ptrace",
    "cap_sys_pacct",
    "cap_sys_admin",
    "cap_sys_boot",
    "cap_sys_nice",
    "cap_sys_resource",
    "cap_sys_time",
    "cap_sys_tty_config",
    "cap_mknod",
    "cap_lease",
    "cap_audit_write",
    "cap_audit_control",
    "cap_setfcap",
    "cap_mac_override",
    "cap_mac_admin",
    "cap_syslog",
    "cap_wake_alarm",
    "cap_block_suspend",
    "cap_audit_read",
    "cap_perfmon",
    "cap_bpf",
    "cap_checkpoint_restore",
];
const ALL: u64 = (1 << NAMES.len()) - 1;

/// A change of capabilities as text: `cap_net_raw,cap_net_admin+ep`.
///
/// Source: cap_from_text(3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapabilityChange {
    capabilities: u64,
    /// `=`, `+` or `-`, and the sets that it is for: effective, permitted, inheritable.
    actions: Vec<(u8, [bool; 3])>,
}

impl CapabilityChange {
    /// Parses one clause. The reason, if it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let operator =
            text.find(['=', '+', '-']).ok_or("capabilities without =, + or -, as in cap_net_raw+ep")?;
        let (names, mut rest) = text.split_at(operator);
        let mut capabilities = 0;
        for name in names.split(',') {
            let name = name.to_ascii_lowercase();
            capabilities |= match NAMES.iter().position(|known| *known == name) {
                Some(number) => 1 << number,
                None if name == "all" || (names.is_empty() && rest.starts_with('=')) => ALL,
                None => return Err(format!("unknown capability '{name}'")),
            };
        }
        let mut actions = Vec::new();
        while let Some(operator) = rest.bytes().next() {
            let flags = rest[1..].find(['=', '+', '-']).map_or(&rest[1..], |end| &rest[1..=end]);
            let is_known = flags.bytes().all(|flag| b"epi".contains(&flag));
            if !is_known
                || (operator == b'=' && !actions.is_empty())
                || (operator != b'=' && flags.is_empty())
            {
                return Err(format!("'{rest}' is not =, + or - with the sets e, p and i"));
            }
            actions.push((operator, [b'e', b'p', b'i'].map(|set| flags.bytes().any(|flag| flag == set))));
            rest = &rest[1 + flags.len()..];
        }
        Ok(Self { capabilities, actions })
    }

    /// The capabilities that result. The reason, if a file cannot have them.
    pub fn apply(&self, old: FileCapabilities) -> Result<FileCapabilities, &'static str> {
        let FileCapabilities { effective, permitted, inheritable, root } = old;
        let mut sets = [if effective { permitted | inheritable } else { 0 }, permitted, inheritable];
        for (operator, is_for) in &self.actions {
            for (set, is_for) in sets.iter_mut().zip(is_for) {
                match operator {
                    b'=' if !is_for => *set &= !self.capabilities,
                    b'-' if *is_for => *set &= !self.capabilities,
                    _ if *is_for => *set |= self.capabilities,
                    _ => {}
                }
            }
        }
        let [effective, permitted, inheritable] = sets;
        if effective != 0 && (permitted | inheritable) & !effective != 0 {
            return Err("of the capabilities of a file either all are effective or none is");
        }
        Ok(FileCapabilities { effective: effective != 0, permitted, inheritable, root })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_change_capabilities() {
        let change = |old, text: &str| CapabilityChange::parse(text).unwrap().apply(old);
        let none = FileCapabilities::default();
        let raw = change(none, "cap_net_raw+ep").unwrap();
        assert_eq!(raw, FileCapabilities { effective: true, permitted: 1 << 13, ..none });
        let both = change(raw, "CAP_NET_ADMIN,cap_chown+eip").unwrap();
        assert_eq!((both.permitted, both.inheritable), (1 << 13 | 1 << 12 | 1, 1 << 12 | 1));
        assert_eq!(change(both, "=").unwrap(), none);
        assert_eq!(change(raw, "cap_net_raw=p+i").unwrap().inheritable, 1 << 13);
        assert_eq!(change(none, "all+p-p").unwrap(), none);
        assert!(change(raw, "cap_chown+p").is_err());
        for text in ["", "cap_net_raw", "cap_nothing+p", "+p", "cap_chown+x", "cap_chown+", "cap_chown+p=e"] {
            assert!(CapabilityChange::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn revisions_are_read_and_the_shortest_is_written() {
        let all = FileCapabilities { effective: true, permitted: 1 << 40 | 1 << 13, inheritable: 4, root: 7 };
        let value = all.to_bytes();
        assert_eq!((value.len(), FileCapabilities::parse(&value)), (24, Some(all)));
        let of_root = FileCapabilities { root: 0, ..all };
        let value = of_root.to_bytes();
        assert_eq!((value.len(), FileCapabilities::parse(&value)), (20, Some(of_root)));
        let first = [REVISION_1, 1 << 13, 0].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(FileCapabilities::parse(&first).unwrap().permitted, 1 << 13);
        for len in 0..value.len() {
            assert_eq!(FileCapabilities::parse(&value[..len]), None, "{len}");
        }
    }
}
