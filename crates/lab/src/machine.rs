//! Machines as files: how far CPUs are apart, what operations cost, what a step of a load computes.

use std::collections::BTreeMap;
use std::path::Path;

use extant_loads::Step;
use extant_rt::{Behind, Costs, Level, Machine, Topology};
use serde::Deserialize;

const BUILT_IN: [(&str, &str); 4] = [
    ("kunpeng920", include_str!("../machines/kunpeng920.toml")),
    ("kunpeng920-kernel", include_str!("../machines/kunpeng920-kernel.toml")),
    ("amd9654-kernel", include_str!("../machines/amd9654-kernel.toml")),
    ("xeon2690v3-kernel", include_str!("../machines/xeon2690v3-kernel.toml")),
];

/// A machine, and what loads cost on it.
#[derive(Clone, Debug)]
pub struct Model {
    pub machine: Machine,
    /// How often each step writes one of two lines that all CPUs have in common, in turns. It stands for the handles of the
    /// kernel's journal; the engine's, which are in shards, write none.
    pub handle_writes: u32,
    steps: BTreeMap<Step, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    level: Vec<LevelFile>,
    costs: CostsFile,
    steps: StepsFile,
    /// See [`Model::handle_writes`].
    #[serde(default)]
    handle_writes: u32,
    /// By the class of a lock.
    #[serde(default)]
    behind: BTreeMap<String, BehindFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BehindFile {
    work_ns: u64,
    lines: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelFile {
    cpus: usize,
    transfer_ns: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsFile {
    read_ns: u64,
    write_ns: u64,
    wake_ns: u64,
}

/// Nanoseconds of each step.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepsFile {
    create: u64,
    unlink: u64,
    stat: u64,
    append: u64,
    truncate: u64,
    write: u64,
}

impl Model {
    /// The built-in machines: name and file.
    pub fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
        BUILT_IN.into_iter()
    }

    /// The file of a built-in machine.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn source(name: &str) -> Result<&'static str, String> {
        let found = Self::built_in().find(|(built_in, _)| *built_in == name);
        found.map(|(_, source)| source).ok_or_else(|| format!("{name}: no such machine; `list` names them"))
    }

    /// A built-in machine by its name, or a file.
    ///
    /// # Errors
    /// If it is neither, or says what no machine is like.
    pub fn load(machine: &Path) -> Result<Self, String> {
        let built_in = machine.to_str().and_then(|name| Self::source(name).ok());
        let of = |error: &dyn std::fmt::Display| format!("{}: {error}", machine.display());
        match built_in {
            Some(source) => Self::parse(source),
            None => Self::parse(&std::fs::read_to_string(machine).map_err(|e| of(&e))?),
        }
        .map_err(|e| of(&e))
    }

    fn parse(source: &str) -> Result<Self, String> {
        let File { level, costs, steps, handle_writes, behind } =
            toml::from_str(source).map_err(|e| e.to_string())?;
        if level.is_empty() || level.iter().any(|level| level.cpus == 0) {
            return Err("a machine has levels, and each level CPUs".to_owned());
        }
        let level = level.iter().map(|level| Level { cpus: level.cpus, transfer_ns: level.transfer_ns });
        let topology = Topology::new(&level.collect::<Vec<_>>());
        let CostsFile { read_ns, write_ns, wake_ns } = costs;
        let costs = Costs { read_ns, write_ns, wake_ns, ..Costs::default() };
        let steps = [
            (Step::Create, steps.create),
            (Step::Unlink, steps.unlink),
            (Step::Stat, steps.stat),
            (Step::Append, steps.append),
            (Step::Truncate, steps.truncate),
            (Step::Write, steps.write),
        ];
        let behind = behind
            .into_iter()
            .map(|(class, BehindFile { work_ns, lines })| (class, Behind { work_ns, lines }));
        Ok(Self {
            machine: Machine { costs, topology, behind: behind.collect() },
            handle_writes,
            steps: steps.into(),
        })
    }

    /// What a step computes, in nanoseconds.
    pub fn step_ns(&self, step: Step) -> u64 {
        self.steps.get(&step).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_machines_are_whole_and_mistakes_are_named() {
        for (name, _) in Model::built_in() {
            Model::load(Path::new(name)).expect("a machine");
        }
        let source = Model::source("kunpeng920").expect("built in");
        let error = Model::parse(&source.replace("wake_ns", "wakes_ns")).expect_err("an unknown word");
        assert!(error.contains("wakes_ns"), "{error}");
        assert!(Model::parse(&source.replace("cpus = 24", "cpus = 0")).is_err());
        assert!(Model::load(Path::new("no-such-file")).expect_err("no file").starts_with("no-such-file: "));
    }
}
