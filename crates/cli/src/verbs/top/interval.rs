//! The changes of the metrics from one snapshot to the next, or since mounting.

use super::snapshot::Snapshot;

/// See the module.
#[derive(Debug)]
pub struct Interval<'s> {
    before: Option<&'s Snapshot>,
    after: &'s Snapshot,
    /// Its length.
    pub seconds: f64,
}

const SERVED: &str = "extant_served_seconds_total";
const REQUESTS: &str = "extant_requests_total";

impl<'s> Interval<'s> {
    /// From `before`, or from mounting if there is none or if it is of another server, to `after`; None if that does not
    /// say how long it was.
    pub fn new(before: Option<&'s Snapshot>, after: &'s Snapshot) -> Option<Self> {
        let before = before.filter(|before| !has_restarted(before, after));
        let start = before.map_or(Some(0.0), |before| before.value(SERVED, &[]))?;
        Some(Self { before, after, seconds: after.value(SERVED, &[])? - start })
    }

    /// Whether it began with the mount.
    pub fn is_whole(&self) -> bool {
        self.before.is_none()
    }

    /// By how much a counter grew.
    pub fn grown(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let after = self.after.value(name, labels)?;
        // A counter missing from the first snapshot had not begun. One that fell counts as unchanged.
        let before = self.before.and_then(|before| before.value(name, labels)).unwrap_or(0.0);
        Some((after - before).max(0.0))
    }

    /// By how much the counters of a name grew together, one for each word of `label`.
    pub fn grown_together(&self, name: &str, label: &str) -> f64 {
        let each = self.words(name, label).into_iter().filter_map(|word| self.grown(name, &[(label, word)]));
        each.fold(0.0, |all, grown| all + grown)
    }

    /// A gauge's value at its end.
    pub fn end(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.after.value(name, labels)
    }

    /// As [`Snapshot::words`], at its end.
    pub fn words(&self, name: &str, label: &str) -> Vec<&'s str> {
        self.after.words(name, label)
    }

    /// So much in each second.
    pub fn per_second(&self, grown: f64) -> f64 {
        if self.seconds > 0.0 { grown / self.seconds } else { 0.0 }
    }
}

/// Whether `after` is of a server that began later: its clock or its requests fell.
fn has_restarted(before: &Snapshot, after: &Snapshot) -> bool {
    let fell =
        |name: &str, labels: &[(&str, &str)]| match (before.value(name, labels), after.value(name, labels)) {
            (Some(before), Some(after)) => after < before,
            _ => false,
        };
    fell(SERVED, &[]) || after.words(REQUESTS, "op").iter().any(|op| fell(REQUESTS, &[("op", op)]))
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Snapshot;
    use super::Interval;

    fn snapshot(served: &str, lines: &str) -> Snapshot {
        Snapshot::parse(&format!("extant_served_seconds_total {served}\n{lines}\n# EOF\n")).expect("text")
    }

    #[test]
    fn the_first_is_since_mounting_and_the_next_is_what_changed() {
        let before = snapshot("10", "extant_requests_total{op=\"read\"} 100");
        let after =
            snapshot("12.5", "extant_requests_total{op=\"read\"} 150\nextant_requests_total{op=\"new\"} 5");
        let whole = Interval::new(None, &before).expect("an interval");
        assert!(whole.is_whole());
        assert_eq!(whole.grown("extant_requests_total", &[("op", "read")]), Some(100.0));
        assert_eq!(whole.per_second(100.0), 10.0);
        let interval = Interval::new(Some(&before), &after).expect("an interval");
        assert!(!interval.is_whole());
        assert_eq!(interval.grown("extant_requests_total", &[("op", "read")]), Some(50.0));
        assert_eq!(interval.per_second(50.0), 20.0);
        assert_eq!(interval.grown("extant_requests_total", &[("op", "new")]), Some(5.0));
        assert_eq!(interval.grown("extant_requests_total", &[("op", "old")]), None);
        assert_eq!(interval.grown_together("extant_requests_total", "op"), 55.0);
    }

    #[test]
    fn a_server_that_began_anew_is_told_from_its_beginning() {
        let before = snapshot("10", "extant_requests_total{op=\"read\"} 100\nx_total 7");
        for (served, requests) in [("3", 200), ("11", 20)] {
            let after = snapshot(served, &format!("extant_requests_total{{op=\"read\"}} {requests}"));
            let interval = Interval::new(Some(&before), &after).expect("an interval");
            assert!(interval.is_whole());
            let grown = interval.grown("extant_requests_total", &[("op", "read")]);
            assert_eq!(grown, Some(f64::from(requests)));
        }
        let fallen = snapshot("11", "x_total 3");
        let interval = Interval::new(Some(&before), &fallen).expect("an interval");
        assert_eq!(interval.grown("x_total", &[]), Some(0.0));
    }

    #[test]
    fn no_time_has_no_rates_and_no_clock_no_interval() {
        let same = snapshot("10", "x_total 1");
        assert_eq!(Interval::new(Some(&same), &same).expect("an interval").per_second(5.0), 0.0);
        assert!(Interval::new(None, &snapshot("NaN", "")).is_none());
        assert!(Interval::new(Some(&snapshot("NaN", "")), &same).is_none());
    }
}
