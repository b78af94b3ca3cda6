//! Machines as files: how far CPUs are apart, what operations cost, what a step of a load computes.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use extant_loads::{Load, Step};
use extant_rt::{Behind, Costs, Level, Machine, Topology};
use serde::Deserialize;
use toml::{Table, Value};

const BUILT_IN: [(&str, &str); 7] = [
    ("kunpeng920", include_str!("../machines/kunpeng920.toml")),
    ("kunpeng920-kernel", include_str!("../machines/kunpeng920-kernel.toml")),
    ("amd9654-kernel", include_str!("../machines/amd9654-kernel.toml")),
    ("xeon2690v3-kernel", include_str!("../machines/xeon2690v3-kernel.toml")),
    ("xeon2630v3-kernel", include_str!("../machines/xeon2630v3-kernel.toml")),
    ("xeon2670v3-kernel", include_str!("../machines/xeon2670v3-kernel.toml")),
    ("unnamed-kernel", include_str!("../machines/unnamed-kernel.toml")),
];

/// A machine, and what loads cost on it.
#[derive(Clone, Debug)]
pub struct Model {
    pub machine: Machine,
    /// What stands for the handles of the kernel's journal; the engine's, which are in shards, write no common line.
    pub handle: Handle,
    /// What a look at a preallocation takes beside its lock, in [`crate::to_sync`].
    pub visit_ns: u64,
    steps: BTreeMap<Step, u64>,
    /// What it was read from.
    source: Table,
}

/// A model with one cost changed.
#[derive(Clone, Debug)]
pub struct Varied {
    /// The cost and its factor, as `steps x2`.
    pub change: String,
    pub model: Model,
}

/// The changes of two lines that all CPUs have in common, by the line's index, at the start of a step and at its end.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handle {
    pub start: Vec<usize>,
    pub stop: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    level: Vec<LevelFile>,
    /// CPUs are taken as far apart as can be; else side by side.
    #[serde(default)]
    spread: bool,
    costs: CostsFile,
    steps: StepsFile,
    /// See [`Model::handle`].
    #[serde(default)]
    handle: Handle,
    /// Classes of the engine's locks that the kernel has not.
    #[serde(default)]
    without: HashSet<String>,
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
    hand_over_transfers: u64,
    /// Of what the kernel sums under a lock.
    #[serde(default)]
    checksum_ns_per_kib: u64,
    /// See [`Model::visit_ns`].
    #[serde(default)]
    visit_ns: u64,
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
    #[serde(default)]
    read: u64,
    #[serde(default)]
    sync: u64,
    #[serde(default)]
    open: u64,
    #[serde(default)]
    rename: u64,
    #[serde(default)]
    link: u64,
    #[serde(default)]
    list: u64,
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

    /// A machine from the text of a file.
    ///
    /// # Errors
    /// If it says what no machine is like.
    pub fn parse(source: &str) -> Result<Self, String> {
        Self::of(source.parse().map_err(|e: toml::de::Error| e.to_string())?)
    }

    fn of(source: Table) -> Result<Self, String> {
        let File { level, spread, costs, steps, handle, without, behind } =
            source.clone().try_into().map_err(|e: toml::de::Error| e.to_string())?;
        if level.is_empty() || level.iter().any(|level| level.cpus == 0) {
            return Err("a machine has levels, and each level CPUs".to_owned());
        }
        let level = level.iter().map(|level| Level { cpus: level.cpus, transfer_ns: level.transfer_ns });
        let topology = Topology::new(&level.collect::<Vec<_>>());
        let topology = if spread { topology.spread() } else { topology };
        if handle.start.iter().chain(&handle.stop).any(|line| *line > 1) {
            return Err("a handle has the lines 0 and 1".to_owned());
        }
        let CostsFile { read_ns, write_ns, wake_ns, hand_over_transfers, checksum_ns_per_kib, visit_ns } =
            costs;
        let costs = Costs {
            read_ns,
            write_ns,
            wake_ns,
            checksum_ns_per_kib,
            hand_over_transfers,
            ..Costs::default()
        };
        let steps = [
            (Step::Create, steps.create),
            (Step::Unlink, steps.unlink),
            (Step::Stat, steps.stat),
            (Step::Append, steps.append),
            (Step::Truncate, steps.truncate),
            (Step::Write, steps.write),
            (Step::Read, steps.read),
            (Step::Sync, steps.sync),
            (Step::Open, steps.open),
            (Step::Rename, steps.rename),
            (Step::Link, steps.link),
            (Step::List, steps.list),
        ];
        let behind = behind
            .into_iter()
            .map(|(class, BehindFile { work_ns, lines })| (class, Behind { work_ns, lines }));
        Ok(Self {
            machine: Machine { costs, topology, behind: behind.collect(), without, halved: None },
            handle,
            visit_ns,
            steps: steps.into(),
            source,
        })
    }

    /// The model with each of its costs halved and doubled: each level's way, each of the costs, what steps compute, and what
    /// lies behind each class of locks.
    ///
    /// # Errors
    /// None that is known: the same file with other numbers.
    pub fn varied(&self) -> Result<Vec<Varied>, String> {
        let levels = self.source.get("level").and_then(Value::as_array).map_or(0, Vec::len);
        let mut costs: Vec<Vec<String>> = (0..levels)
            .map(|level| vec!["level".to_owned(), level.to_string(), "transfer_ns".to_owned()])
            .collect();
        for (table, fields) in [("costs", true), ("steps", false), ("behind", true)] {
            match self.source.get(table).and_then(Value::as_table) {
                Some(inside) if fields => {
                    costs.extend(inside.keys().map(|key| vec![table.to_owned(), key.clone()]));
                }
                Some(_) => costs.push(vec![table.to_owned()]),
                None => (),
            }
        }
        let variants = costs.iter().flat_map(|cost| [0.5, 2.0].map(|factor| (cost, factor)));
        let vary = |(cost, factor): (&Vec<String>, f64)| {
            let mut source = Value::Table(self.source.clone());
            let place = cost.iter().try_fold(&mut source, |value, key| match key.parse::<usize>() {
                Ok(index) => value.get_mut(index),
                Err(_) => value.get_mut(key),
            });
            scale(place.ok_or("no such cost")?, factor);
            let Value::Table(source) = source else { return Err("no machine".to_owned()) };
            Ok(Varied { change: format!("{} x{factor}", cost.join(".")), model: Self::of(source)? })
        };
        variants.map(vary).collect()
    }

    /// The model with another way of a line between the nearest CPUs.
    ///
    /// # Errors
    /// None that is known: the same file with another number.
    pub fn with_nearest_ns(&self, transfer_ns: f64) -> Result<Self, String> {
        let mut source = self.source.clone();
        let nearest = source.get_mut("level").and_then(|levels| levels.get_mut(0));
        let way = nearest.and_then(|level| level.get_mut("transfer_ns")).ok_or("no such cost")?;
        *way = Value::Integer(transfer_ns.round() as i64);
        Self::of(source)
    }

    /// The model in which the steps that a load counts compute so long, and others not at all.
    ///
    /// # Errors
    /// None that is known: the same file with other numbers.
    pub fn with_counted_ns(&self, load: Load, ns: u64) -> Result<Self, String> {
        let mut model = Self::of(self.source.clone())?;
        model.steps.iter_mut().for_each(|(step, own)| *own = if load.counts(*step) { ns } else { 0 });
        Ok(model)
    }

    /// What a step computes, in nanoseconds.
    pub fn step_ns(&self, step: Step) -> u64 {
        self.steps.get(&step).copied().unwrap_or(0)
    }
}

/// Multiplies all numbers of a value.
fn scale(value: &mut Value, factor: f64) {
    match value {
        Value::Integer(number) => *number = (*number as f64 * factor).round() as i64,
        Value::Table(inside) => inside.iter_mut().for_each(|(_, value)| scale(value, factor)),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cost_is_halved_and_doubled() {
        let model = Model::load(Path::new("kunpeng920-kernel")).expect("built in");
        let varied = model.varied().expect("variants");
        let changes: Vec<_> = varied.iter().map(|varied| varied.change.as_str()).collect();
        assert_eq!(changes.len(), 2 * (4 + 4 + 1 + 1), "{changes:?}");
        let of = |change: &str| {
            varied.iter().find(|varied| varied.change == change).expect("a variant").model.clone()
        };
        assert_eq!(of("steps x2").step_ns(Step::Append), 2 * model.step_ns(Step::Append));
        let far = |model: &Model| model.machine.topology.transfer_ns(0, 1);
        assert_eq!(far(&of("level.3.transfer_ns x0.5")), far(&model) / 2);
        let nearest = Model::load(Path::new("kunpeng920")).expect("built in").with_nearest_ns(7.4);
        assert_eq!(nearest.expect("a machine").machine.topology.transfer_ns(0, 1), 7);
        assert_eq!(
            of("behind.GROUP x2").machine.behind["GROUP"].work_ns,
            2 * model.machine.behind["GROUP"].work_ns
        );
    }

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
