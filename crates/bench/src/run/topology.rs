//! What the kernel says of the CPUs that this process may use: `/sys/devices/system/{cpu,node}`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// See the module. Counts are of what the CPUs in use belong to.
#[derive(Debug, Serialize)]
pub struct Topology {
    /// The name that the CPUs have in `/proc/cpuinfo`, if any.
    pub model: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    pub sockets: usize,
    pub cores: usize,
    /// Last-level caches.
    pub caches: usize,
    pub numa_nodes: usize,
    /// Whether the machine is one of a hypervisor's, whose CPUs may be shared.
    pub is_virtual: bool,
}

impl Topology {
    /// Of this machine; what the kernel does not say counts as one.
    pub fn of_host() -> Self {
        let allowed = rustix::thread::sched_getaffinity(None).ok();
        let is_allowed = |cpu: usize| allowed.as_ref().is_none_or(|set| set.is_set(cpu));
        let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| is_allowed(*cpu) && sys(*cpu, "topology/physical_package_id").is_some())
            .collect();
        let different = |what: &dyn Fn(usize) -> Option<String>| {
            cpus.iter().filter_map(|cpu| what(*cpu)).collect::<BTreeSet<_>>().len().max(1)
        };
        let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            model: model.map(|(_, name)| name.trim().to_owned()),
            cpus: cpus.len().max(1),
            sockets: different(&|cpu| sys(cpu, "topology/physical_package_id")),
            cores: different(&|cpu| sys(cpu, "topology/thread_siblings_list")),
            caches: different(&|cpu| sys(cpu, "cache/index3/shared_cpu_list")),
            numa_nodes: different(&|cpu| node(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")))),
            is_virtual: about.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor")),
        }
    }

    /// Numbers of threads: the powers of two up to the CPUs, and these.
    pub fn threads(&self) -> Vec<usize> {
        let powers = (0..).map(|power| 1 << power).take_while(|threads| *threads < self.cpus);
        powers.chain([self.cpus]).collect()
    }
}

fn sys(cpu: usize, what: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{what}")).ok()?;
    Some(text.trim().to_owned())
}

/// The name of the node in a CPU's directory.
fn node(dir: &Path) -> Option<String> {
    let names = fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .into_iter()
        .find(|name| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok()))
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, cpus, sockets, cores, caches, numa_nodes, is_virtual } = self;
        let per_core = cpus.div_ceil(*cores);
        write!(
            f,
            "{}: {cpus} CPUs, {per_core} of a core, {cores} cores, {caches} last-level caches, {sockets} sockets, {numa_nodes} NUMA \
             nodes{}",
            model.as_deref().unwrap_or("CPUs without a name"),
            if *is_virtual { ", virtual" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_core_and_threads_end_with_all_cpus() {
        let host = Topology::of_host();
        assert!(host.cpus >= host.cores && host.cores >= host.sockets, "{host}");
        let of = |cpus| Topology { cpus, ..Topology::of_host() }.threads();
        assert_eq!((of(1), of(2), of(6), of(8)), (vec![1], vec![1, 2], vec![1, 2, 4, 6], vec![1, 2, 4, 8]));
    }
}
