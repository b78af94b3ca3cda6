//! Where the time of requests goes.

use super::interval::Interval;

/// What a request's time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// Reads of the device, in the request's own thread, as the next three.
    Reads,
    Writes,
    Flushes,
    Discards,
    /// A writer was stopped until writeback caught up.
    Throttling,
    /// The rest: computing, locks of the server, commits and writeback by other threads.
    Server,
}

/// All, in their order.
pub const ALL: [WaitCause; 6] = [
    WaitCause::Reads,
    WaitCause::Writes,
    WaitCause::Flushes,
    WaitCause::Discards,
    WaitCause::Throttling,
    WaitCause::Server,
];

impl WaitCause {
    /// What is said of it at the end.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reads => "device reads",
            Self::Writes => "device writes",
            Self::Flushes => "device flushes",
            Self::Discards => "device discards",
            Self::Throttling => "throttling",
            Self::Server => "server",
        }
    }

    /// Its word for programs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Reads => "device_read",
            Self::Writes => "device_write",
            Self::Flushes => "device_flush",
            Self::Discards => "device_discard",
            Self::Throttling => "throttling",
            Self::Server => "server",
        }
    }

    /// How the server calls what it asks of the device.
    const fn io(self) -> Option<&'static str> {
        match self {
            Self::Reads => Some("read"),
            Self::Writes => Some("write"),
            Self::Flushes => Some("flush"),
            Self::Discards => Some("discard"),
            Self::Throttling | Self::Server => None,
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestKind<'s> {
    /// Its name.
    pub op: &'s str,
    /// How many were answered.
    pub count: f64,
    /// How many are under way.
    pub under_way: f64,
    /// What those that were answered took.
    pub seconds: f64,
    /// On what they spent it, in the order of [`ALL`].
    pub on: [f64; ALL.len()],
}

/// The kinds of which there were any, the one that took most time first.
pub fn kinds<'s>(interval: &Interval<'s>) -> Vec<RequestKind<'s>> {
    let throttled = interval.grown_together("extant_writeback_throttled_seconds_total", "context");
    let mut kinds = Vec::new();
    for op in interval.words("extant_requests_total", "op") {
        let label = [("op", op)];
        let grown = |name: &str| interval.grown(name, &label).unwrap_or(0.0);
        let (count, seconds) = (grown("extant_requests_total"), grown("extant_request_seconds_total"));
        let under_way = interval.end("extant_requests_under_way", &label).unwrap_or(0.0);
        if count == 0.0 && under_way == 0.0 {
            continue;
        }
        // The parts are read one after the other, and add up all the same.
        let mut rest = seconds;
        let on = ALL.map(|on| {
            let spent = match (on, on.io()) {
                (_, Some(io)) => interval
                    .grown("extant_request_device_seconds_total", &[("op", op), ("io", io)])
                    .unwrap_or(0.0),
                // Only writes are throttled.
                (WaitCause::Throttling, _) if op == "write" => throttled,
                (WaitCause::Server, _) => rest,
                _ => 0.0,
            };
            let spent = spent.min(rest);
            rest -= spent;
            spent
        });
        kinds.push(RequestKind { op, count, under_way, seconds, on });
    }
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(b.count.total_cmp(&a.count)));
    kinds
}

/// What the time of all requests is spent on.
#[derive(Debug, PartialEq)]
pub struct Wait<'s> {
    pub on: WaitCause,
    pub seconds: f64,
    /// Its part of the time of all requests.
    pub share: f64,
    /// The kinds of requests that make up a tenth of it or more, the largest first.
    pub ops: Vec<&'s str>,
}

/// The waits, the longest first.
pub fn waits<'s>(kinds: &[RequestKind<'s>]) -> Vec<Wait<'s>> {
    let all: f64 = kinds.iter().map(|kind| kind.seconds).sum();
    let mut waits = Vec::new();
    for (index, on) in ALL.into_iter().enumerate() {
        let mut parts: Vec<_> = kinds.iter().map(|kind| (kind.on[index], kind.op)).collect();
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let seconds: f64 = parts.iter().map(|part| part.0).sum();
        if seconds > 0.0 {
            let ops = parts.iter().filter(|part| part.0 * 10.0 >= seconds).map(|part| part.1).collect();
            waits.push(Wait { on, seconds, share: seconds / all, ops });
        }
    }
    waits.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    waits
}

#[cfg(test)]
mod tests {
    use super::super::interval::Interval;
    use super::super::snapshot::Snapshot;
    use super::{WaitCause, kinds, waits};

    const TEXT: &str = "extant_served_seconds_total 10
extant_requests_total{op=\"fsync\"} 20
extant_requests_total{op=\"write\"} 1000
extant_requests_total{op=\"lookup\"} 0
extant_requests_total{op=\"getattr\"} 3
extant_request_seconds_total{op=\"fsync\"} 8
extant_request_seconds_total{op=\"write\"} 2
extant_request_device_seconds_total{op=\"fsync\",io=\"flush\"} 6
extant_request_device_seconds_total{op=\"fsync\",io=\"write\"} 1
extant_request_device_seconds_total{op=\"write\",io=\"read\"} 0.5
extant_writeback_throttled_seconds_total{context=\"0\"} 0.75
extant_writeback_throttled_seconds_total{context=\"1\"} 0.25
# EOF
";

    #[test]
    fn time_of_requests_is_told_by_what_it_is_spent_on() {
        let snapshot = Snapshot::parse(TEXT).expect("text");
        let interval = Interval::new(None, &snapshot).expect("an interval");
        let kinds = kinds(&interval);
        let of = |op: &str| kinds.iter().find(|kind| kind.op == op).map(|kind| kind.on);
        assert_eq!(kinds.iter().map(|kind| kind.op).collect::<Vec<_>>(), ["fsync", "write", "getattr"]);
        assert_eq!(of("fsync"), Some([0.0, 1.0, 6.0, 0.0, 0.0, 1.0]));
        assert_eq!(of("write"), Some([0.5, 0.0, 0.0, 0.0, 1.0, 0.5]));
        let waits = waits(&kinds);
        let told: Vec<_> = waits.iter().map(|wait| (wait.on, wait.share, &wait.ops[..])).collect();
        assert_eq!(told[0], (WaitCause::Flushes, 0.6, &["fsync"][..]));
        assert_eq!(told[1], (WaitCause::Server, 0.15, &["fsync", "write"][..]));
        assert_eq!(told.iter().map(|wait| wait.1).sum::<f64>(), 1.0);
    }

    #[test]
    fn parts_that_are_more_than_the_whole_are_cut() {
        let text =
            TEXT.replace("{op=\"fsync\",io=\"flush\"} 6", "{op=\"fsync\",io=\"flush\"} 18446744073709551615");
        let snapshot = Snapshot::parse(&text).expect("text");
        let kinds = kinds(&Interval::new(None, &snapshot).expect("an interval"));
        assert_eq!(kinds[0].on, [0.0, 1.0, 7.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_mount_in_no_use_waits_for_nothing() {
        let snapshot = Snapshot::parse(TEXT).expect("text");
        let interval = Interval::new(Some(&snapshot), &snapshot).expect("an interval");
        assert_eq!((kinds(&interval), waits(&[])), (vec![], vec![]));
    }
}
