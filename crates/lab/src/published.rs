//! What the posts, and others, published, as data: figures, and with which run of the lab each is compared.

use extant::Tuning;
use extant_loads::{Load, ladder};
use serde::{Deserialize, Serialize};

use crate::writeback;

const POSTS: [&str; 9] = [
    include_str!("../published/a.toml"),
    include_str!("../published/b.toml"),
    include_str!("../published/c.toml"),
    include_str!("../published/d.toml"),
    include_str!("../published/e.toml"),
    include_str!("../published/f.toml"),
    include_str!("../published/fxmark-ramdisk.toml"),
    include_str!("../published/fxmark-nvme.toml"),
    include_str!("../published/orphans.toml"),
];

/// A post with its tables.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Post {
    pub post: String,
    pub title: String,
    pub source: String,
    #[serde(default)]
    pub score: Score,
    pub table: Vec<Table>,
}

/// With which other figures a post's are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// Constants of the machines were chosen by some of them.
    #[default]
    Chosen,
    /// They were entered when all constants had been chosen.
    HeldOut,
    /// Of the kernel's operations: they were entered before there was a model of these.
    Operations,
}

/// Figures that were taken on one machine.
#[derive(Clone, Debug, Deserialize)]
pub struct Table {
    pub name: String,
    pub title: String,
    pub unit: String,
    pub row: Vec<Row>,
    /// How its rows are simulated, unless by `writeback`; `None` if none is.
    #[serde(flatten)]
    simulated: Option<Simulated>,
    /// Large files onto a modelled device: then a row has contexts.
    writeback: Option<Writeback>,
    /// What the kernel takes for an operation.
    kernel: Option<Kernel>,
}

/// How the rows of a table are simulated.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// A load for some time.
    Load(&'a Simulated),
    /// A load to its end.
    ToSync(&'a Simulated, ToSync),
    /// Large files.
    Writeback(&'a Writeback),
    /// An operation of the kernel, whose computation follows from this rate on one CPU.
    Kernel(&'a Kernel, f64),
}

/// An operation of the kernel, see [`crate::kernel`]. Figures are those of all CPUs together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    machine: String,
    pub operation: String,
    #[serde(default = "yes")]
    pub journal: bool,
    /// Operations per second of one of the unit.
    #[serde(default = "one")]
    pub per_unit: f64,
}

/// Large files, each in a directory of its own, written at random as [`writeback::run`] does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writeback {
    machine: String,
    device: String,
    writers: usize,
    file_mib: u64,
    cache_mib: u64,
}

/// What all rows of a table have in common.
#[derive(Clone, Debug, Deserialize)]
pub struct Simulated {
    /// A built-in one.
    machine: String,
    load: String,
    /// Figures are those of all CPUs together, not of each.
    #[serde(default)]
    pub together: bool,
    disk_gb: u64,
    scan: Order,
    /// Operations of one of the unit.
    #[serde(default = "one")]
    pub per_unit: f64,
    /// If the figures are of a load from its first step to the end of a sync.
    to_sync: Option<ToSync>,
}

/// What is particular to a load that ends with a sync, of a table.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSync {
    /// Of each thread.
    pub steps: u64,
    /// What a step computes or waits beside what the engine is charged for.
    pub step_ns: u64,
    /// Of the page cache; 0: blocks are allocated at once.
    pub page_cache_mib: u64,
}

const fn one() -> f64 {
    1.0
}

const fn yes() -> bool {
    true
}

/// The order of visiting groups before the ladder's last step.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Linear,
    ListHead,
    Ordered,
}

/// One figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: String,
    pub value: f64,
    pub kind: FigureKind,
    #[serde(default)]
    pub cpus: usize,
    /// Of the allocator's ladder.
    #[serde(default)]
    pub step: String,
    /// Instead of the table's.
    scan: Option<Order>,
    /// Of writeback.
    #[serde(default)]
    contexts: usize,
    /// Why it is not simulated.
    pub reason: Option<String>,
}

/// What a figure says of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// The others are compared as ratios to it.
    Base,
    /// A constant of the machine was chosen by it.
    Fitted,
    /// Nothing was.
    Predicted,
    /// The lab cannot.
    #[serde(rename = "not simulated")]
    NotSimulated,
}

/// The posts.
///
/// # Errors
/// If the built-in data are not as they should be.
pub fn posts() -> Result<Vec<Post>, String> {
    POSTS.iter().map(|source| toml::from_str(source).map_err(|error| error.to_string())).collect()
}

impl Table {
    /// How its rows are simulated; `None` if none is.
    pub fn how(&self) -> Option<How<'_>> {
        let load = self.simulated.as_ref().map(|how| match how.to_sync {
            Some(job) => How::ToSync(how, job),
            None => How::Load(how),
        });
        let base = self.row.iter().find(|row| row.kind == FigureKind::Base);
        let kernel = self.kernel.as_ref().zip(base).map(|(how, base)| How::Kernel(how, base.value));
        self.writeback.as_ref().map(How::Writeback).or(kernel).or(load)
    }
}

impl<'a> How<'a> {
    /// A built-in one.
    pub fn machine(self) -> &'a str {
        match self {
            Self::Load(how) | Self::ToSync(how, _) => &how.machine,
            Self::Writeback(how) => &how.machine,
            Self::Kernel(how, _) => &how.machine,
        }
    }
}

impl Writeback {
    /// The run of a row.
    pub fn setup(&self, row: &Row) -> writeback::Setup {
        writeback::Setup {
            device: self.device.clone(),
            contexts: row.contexts,
            writers: self.writers,
            file_mib: self.file_mib,
            // A directory of each writer's own in each, as XFS's directories take its allocation groups in turns.
            bands: self.writers as u64,
            cache_mib: self.cache_mib,
            work_ns: writeback::OWN_WORK_NS,
            random: true,
        }
    }
}

impl Simulated {
    /// What the CPUs do.
    ///
    /// # Errors
    /// If there is no such load.
    pub fn load(&self) -> Result<Load, String> {
        clap::ValueEnum::from_str(&self.load, false)
    }

    /// Bytes of the disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_gb * 1_000_000_000 / (1 << 20) * (1 << 20)
    }

    /// The allocator's forms of a row. Containers' files lie deep in one tree, and fallocate takes no chunks for small files.
    ///
    /// # Errors
    /// If the ladder has no such step, or this build has no forms of older kernels.
    pub fn tuning(&self, row: &Row) -> Result<Tuning, String> {
        let order = match row.scan.unwrap_or(self.scan) {
            Order::Linear => ladder::Order::Linear,
            Order::ListHead => ladder::Order::ListHead,
            Order::Ordered => ladder::Order::Ordered,
        };
        let step = ladder::step(order, &row.step).map_err(|error| error.to_string())?;
        let step = step.ok_or_else(|| format!("{}: no such step", row.step))?;
        Ok(Tuning { spread_directories: false, group_prealloc: 0, ..step.tuning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(extant_linux_model)]
    fn every_row_is_simulated_or_says_why_not() {
        for post in posts().expect("the data") {
            for table in &post.table {
                let simulated: Vec<_> =
                    table.row.iter().filter(|row| row.kind != FigureKind::NotSimulated).collect();
                for row in &table.row {
                    let place = format!("{}, {}, {}", post.post, table.name, row.name);
                    assert!(row.value > 0.0, "{place}");
                    assert_eq!(row.reason.is_some(), row.kind == FigureKind::NotSimulated, "{place}");
                }
                let Some(how) = table.how() else {
                    assert!(simulated.is_empty(), "{}, {}", post.post, table.name);
                    continue;
                };
                crate::machine::Model::source(how.machine()).expect("a machine");
                simulated.iter().for_each(|row| match how {
                    How::Load(how) | How::ToSync(how, _) => {
                        assert!(how.load().is_ok() && row.cpus > 0 && how.tuning(row).is_ok(), "{row:?}");
                    }
                    How::Writeback(_) => assert!(row.contexts > 0, "{row:?}"),
                    How::Kernel(..) => {
                        let is_of_one = row.cpus == 1;
                        assert!(row.cpus > 0 && is_of_one == (row.kind == FigureKind::Base), "{row:?}");
                    }
                });
                assert_eq!(
                    simulated.iter().filter(|row| row.kind == FigureKind::Base).count(),
                    1,
                    "{}",
                    table.name
                );
            }
        }
    }

    #[test]
    fn at_most_four_rows_are_fitted_to_for_a_machine() {
        let mut fitted = std::collections::BTreeMap::<String, usize>::new();
        for table in posts().expect("the data").into_iter().flat_map(|post| post.table) {
            let Some(how) = table.how() else { continue };
            *fitted.entry(how.machine().to_owned()).or_default() +=
                table.row.iter().filter(|row| row.kind == FigureKind::Fitted).count();
        }
        assert!(fitted.values().all(|count| *count <= 4), "{fitted:?}");
    }
}
