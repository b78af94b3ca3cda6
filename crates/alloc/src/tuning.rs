//! What can be chosen about the allocators, the kernel's tunables among it. Forms of older kernels are chosen beside it, in builds
//! that have them (`crate::linux_model`).

#[cfg(extant_linux_model)]
use crate::linux_model::settings::LinuxModel;
use crate::policy::Policy;

/// How a group is searched for: the first three by the kernel's criteria, in this order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Scan {
    /// Group by group from the goal, then from 0 (kernel `mb_optimize_scan=0`).
    Linear,
    /// By order, from the goal rightwards through all, then from 0 (kernel since 6.17).
    Ordered,
    /// The nearest sufficient group right of the goal, of whatever order, then from 0.
    Nearest,
    /// The nearest group with a chunk as long as wanted, else with the longest there is; a group not read is passed over
    /// if those read lately had smaller ones.
    #[default]
    NearestFit,
    /// The groups that a policy of the caller's names. No policy file can ask for it.
    #[cfg_attr(feature = "serde", serde(skip))]
    Own(&'static dyn Policy),
}

/// How the allocators work.
///
/// With the feature `serde` it can be read from a file: fields that are not there have their default, and unknown ones are
/// errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct Tuning {
    /// In which order groups are visited.
    pub scan: Scan,
    /// Directories at the top are spread over the groups; else all go where their parent is.
    pub spread_directories: bool,
    /// Large files without blocks near their goal begin where the last of their band and number ended; else each at its own goal.
    pub stream_goals: bool,
    /// Groups looked at one by one from the goal before `scan` (kernel `mb_max_linear_groups`).
    pub max_linear_groups: u32,
    /// Runs looked at for a longer one (kernel `mb_max_to_scan`).
    pub max_to_scan: u32,
    /// Sufficient runs looked at for a closer fit (kernel `mb_min_to_scan`).
    pub min_to_scan: u32,
    /// The least order that is looked for in the buddy, counted from 1: 2 means two blocks, as is the kernel's default
    /// (kernel `mb_order2_req`).
    pub order2_req: u8,
    /// Blocks up to which a file is small (kernel `mb_stream_req`).
    pub stream_req: u32,
    /// Orders by which a goal's length may be trimmed (kernel `mb_best_avail_max_trim_order`).
    pub best_avail_max_trim_order: u8,
    /// Blocks that are taken ahead for small files of one place; 0 means none (kernel `mb_group_prealloc`).
    pub group_prealloc: u32,
    /// Blocks are taken ahead for files that may grow.
    pub preallocation: bool,
    /// Freed inodes are given out again at once; else rather not before the transaction that freed them is durable, as
    /// is good for disks without a journal.
    pub reuse_inodes: bool,
    /// The forms of older kernels in use; none by default.
    #[cfg(extant_linux_model)]
    pub linux_model: LinuxModel,
}

impl Tuning {
    /// For a disk that is filled once and has hardly more room than its content needs: one file behind the other.
    #[must_use]
    pub fn packed() -> Self {
        Self {
            spread_directories: false,
            stream_goals: false,
            order2_req: u8::MAX,
            group_prealloc: 0,
            ..Self::default()
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            scan: Scan::default(),
            spread_directories: true,
            stream_goals: true,
            max_linear_groups: 0,
            max_to_scan: 200,
            min_to_scan: 10,
            order2_req: 3,
            stream_req: 16,
            best_avail_max_trim_order: 3,
            group_prealloc: 512,
            preallocation: true,
            reuse_inodes: true,
            #[cfg(extant_linux_model)]
            linux_model: LinuxModel::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_tunables_has_every_field_with_its_default() {
        let page = include_str!("../../../docs/reference/tunables.md");
        let written = format!("{:?}", Tuning::default());
        // The value of the field `linux_model` has fields of its own.
        let fields = written.split(['{', '}', ',']).filter_map(|part| part.trim().split_once(": "));
        let mut count = 0;
        for (field, value) in fields.filter(|(field, _)| *field != "linux_model") {
            // Variants are in kebab case there, as in policy files.
            let mut word = String::new();
            for letter in value.chars() {
                let is_joint = letter.is_uppercase() && !word.is_empty();
                word.extend(is_joint.then_some('-').into_iter().chain(letter.to_lowercase()));
            }
            let cell = if value.parse::<u32>().is_ok() { word } else { format!("`{word}`") };
            assert!(page.contains(&format!("| `{field}` | {cell} |")), "{field}: {cell}");
            count += 1;
        }
        assert!(count > 10, "{written}");
    }
}
