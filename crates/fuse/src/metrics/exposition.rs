//! Text in the form of OpenMetrics 1.0.

use std::fmt::{Display, Write};
use std::time::Duration;

/// The text so far.
#[derive(Default)]
pub(super) struct Exposition(String);

impl Exposition {
    fn family(
        &mut self,
        (name, kind, suffix): (&str, &str, &str),
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        // Writing into a String does not fail.
        let _ = writeln!(self.0, "# HELP extant_{name} {help}\n# TYPE extant_{name} {kind}");
        // A unit is the end of the name.
        for unit in ["seconds", "bytes"].iter().filter(|unit| name.ends_with(*unit)) {
            let _ = writeln!(self.0, "# UNIT extant_{name} {unit}");
        }
        for (labels, value) in samples {
            let _ = writeln!(self.0, "extant_{name}{suffix}{labels} {value}");
        }
    }

    /// Words that do not change.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: String) {
        self.family((name, "info", "_info"), help, [(labels, 1)]);
    }

    /// A count that only grows.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.counters(name, help, [(String::new(), value)]);
    }

    /// Counts that only grow, each with its [`labels`].
    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        self.family((name, "counter", "_total"), help, samples);
    }

    /// A gauge of one value.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.gauges(name, help, [(String::new(), value)]);
    }

    /// Several gauges of one name, each with its [`labels`].
    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        self.family((name, "gauge", ""), help, samples);
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.0 + "# EOF\n"
    }
}

/// Labels of a sample. None of Extant's needs an escape.
pub(super) fn labels<const N: usize>(labels: [(&str, &dyn Display); N]) -> String {
    let each = labels.map(|(name, value)| format!("{name}=\"{value}\""));
    format!("{{{}}}", each.join(","))
}

/// Seconds, exactly.
pub(super) fn seconds(time: Duration) -> String {
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}
