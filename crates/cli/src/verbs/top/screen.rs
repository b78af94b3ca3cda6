//! An interval for people: lines that fit a terminal of 80 columns, and of 24 lines or as many as there are.

use super::interval::Interval;
use super::waits::{RequestKind, WaitCause, kinds, waits};
use crate::output::escape;
use crate::size;

/// A line that is longer would be broken by some terminals.
const COLUMNS_MAX: usize = 79;
/// Rows of these tables that come before more of the other.
const KINDS_FIRST: usize = 6;
const CONTEXTS_FIRST: usize = 3;

/// The lines, `rows` at most; `place` says what is mounted where. What it is spent on is the last.
pub fn lines(interval: &Interval<'_>, place: &str, rows: usize) -> Vec<String> {
    let kinds = kinds(interval);
    let mut lines = vec![title(interval, place), totals(interval, &kinds)];
    let device = device(interval);
    let engine = [journal(interval), allocator(interval), Some(memory(interval))];
    let engine: Vec<_> = engine.into_iter().flatten().collect();
    let contexts = contexts(interval);
    // What matters most takes of the room first: a head and the last line are there in any case.
    let mut room = rows.saturating_sub(lines.len() + 2);
    let mut take = |wanted: usize| {
        let taken = wanted.min(room);
        room -= taken;
        taken
    };
    let first_kinds = take(kinds.len().min(KINDS_FIRST));
    let (device_lines, engine_lines) = (take(device.len()), take(engine.len()));
    let first_contexts = take(contexts.len().min(1 + CONTEXTS_FIRST));
    let all_kinds = first_kinds + take(kinds.len() - first_kinds);
    let all_contexts = first_contexts + take(contexts.len() - first_contexts);
    lines.push(table_head());
    lines.extend(kinds.iter().take(all_kinds).map(|kind| table_row(interval, kind)));
    lines.extend(device.into_iter().take(device_lines));
    lines.extend(engine.into_iter().take(engine_lines));
    lines.extend(contexts.into_iter().take(all_contexts));
    lines.truncate(rows.saturating_sub(1));
    lines.push(end(interval, &kinds));
    lines.iter().map(|line| fit(line)).collect()
}

fn title(interval: &Interval<'_>, place: &str) -> String {
    let served = interval.end("extant_served_seconds_total", &[]).unwrap_or(0.0) as u64;
    let (hours, minutes, seconds) = (served / 3600, served / 60 % 60, served % 60);
    let what = if interval.is_whole() {
        "since mounting".to_owned()
    } else {
        format!("the last {}", time(interval.seconds))
    };
    format!("up {hours}:{minutes:02}:{seconds:02}, {what}: {place}")
}

fn totals(interval: &Interval<'_>, kinds: &[RequestKind<'_>]) -> String {
    let of = |each: fn(&RequestKind<'_>) -> f64| kinds.iter().fold(0.0, |all, kind| all + each(kind));
    let grown = |name: &str| interval.grown(name, &[]).unwrap_or(0.0);
    format!(
        "requests {}/s, {} now; read {}/s, written {}/s; CPU {}",
        count(interval.per_second(of(|kind| kind.count))),
        count(of(|kind| kind.under_way)),
        bytes(interval.per_second(grown("extant_read_bytes_total"))),
        bytes(interval.per_second(grown("extant_written_bytes_total"))),
        percent(grown("extant_cpu_seconds_total"), interval.seconds),
    )
}

/// Rows of requests and of the device: a name, how many in a second, how long each, how many now, how much of the time.
fn row(interval: &Interval<'_>, name: &str, number: f64, now: f64, seconds: f64) -> String {
    let average = if number > 0.0 { time(seconds / number) } else { "-".to_owned() };
    format!(
        "{:<12}{:>8}{average:>9}{:>5}{:>7}",
        fit_to(&escape(name.as_bytes()), 11),
        count(interval.per_second(number)),
        count(now),
        percent(seconds, interval.seconds),
    )
}

fn table_head() -> String {
    format!(
        "{:<12}{:>8}{:>9}{:>5}{:>7}{:>7}{:>7}{:>8}{:>8}{:>7}",
        "request", "per s", "each", "now", "time", "reads", "writes", "flushes", "stopped", "server"
    )
}

fn table_row(interval: &Interval<'_>, kind: &RequestKind<'_>) -> String {
    let part = |on: WaitCause| percent(kind.on[on as usize], kind.seconds);
    format!(
        "{}{:>7}{:>7}{:>8}{:>8}{:>7}",
        row(interval, kind.op, kind.count, kind.under_way, kind.seconds),
        part(WaitCause::Reads),
        part(WaitCause::Writes),
        part(WaitCause::Flushes),
        part(WaitCause::Throttling),
        part(WaitCause::Server),
    )
}

/// What the device was asked, with a head; nothing if the server does not report it.
fn device(interval: &Interval<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for io in interval.words("extant_device_operations_total", "io") {
        let label = [("io", io)];
        let grown = |name: &str| interval.grown(name, &label).unwrap_or(0.0);
        // What it was never asked is not worth a line.
        if interval.end("extant_device_operations_total", &label).is_none_or(|ended| ended == 0.0) {
            continue;
        }
        let now = interval.end("extant_device_operations_under_way", &label).unwrap_or(0.0);
        let row = row(
            interval,
            io,
            grown("extant_device_operations_total"),
            now,
            grown("extant_device_seconds_total"),
        );
        lines.push(format!("{row}{:>12}/s", bytes(interval.per_second(grown("extant_device_bytes_total")))));
    }
    if !lines.is_empty() {
        lines.insert(
            0,
            format!("{:<12}{:>8}{:>9}{:>5}{:>7}{:>14}", "device", "per s", "each", "now", "time", "bytes"),
        );
        // Four are all that there are.
        lines.truncate(5);
    }
    lines
}

fn journal(interval: &Interval<'_>) -> Option<String> {
    let rate = |name: &str| interval.grown(name, &[]).map(|grown| interval.per_second(grown));
    let commits = rate("extant_journal_commits_total")?;
    let of = |name: &str| rate(name).unwrap_or(0.0);
    Some(format!(
        "journal     {} commits/s; log {}/s, home {}/s; {} waits/s",
        count(commits),
        bytes(of("extant_journal_log_bytes_total")),
        bytes(of("extant_journal_home_bytes_total")),
        count(of("extant_journal_start_waits_total")),
    ))
}

fn allocator(interval: &Interval<'_>) -> Option<String> {
    let searches = interval.grown("extant_allocator_searches_total", &[])?;
    let grown = |name: &str| interval.grown(name, &[]).unwrap_or(0.0);
    let looked = interval.grown_together("extant_allocator_groups_considered_total", "criterion");
    Some(format!(
        "allocator   {} searches/s, {} at goal; {} groups/s, {} skipped, {} waited",
        count(interval.per_second(searches)),
        percent(grown("extant_allocator_goal_hits_total"), searches),
        count(interval.per_second(looked)),
        count(interval.per_second(grown("extant_allocator_groups_skipped_total"))),
        count(interval.per_second(grown("extant_allocator_groups_waited_total"))),
    ))
}

fn memory(interval: &Interval<'_>) -> String {
    let end = |name: &str| interval.end(name, &[]);
    let inodes = count(end("extant_known_inodes").unwrap_or(0.0));
    match (end("extant_page_cache_bytes"), end("extant_page_cache_dirty_bytes")) {
        (Some(all), Some(dirty)) => {
            let stop = bytes(end("extant_page_cache_dirty_max_bytes").unwrap_or(0.0));
            format!(
                "memory      {inodes} inodes; page cache {}, dirty {} of {stop}",
                bytes(all),
                bytes(dirty)
            )
        }
        _ => format!("memory      {inodes} inodes; no page cache"),
    }
}

/// The writeback contexts with a head, the one with most to do first; nothing without a page cache.
fn contexts(interval: &Interval<'_>) -> Vec<String> {
    let mut contexts = Vec::new();
    for index in interval.words("extant_writeback_dirty_bytes", "context") {
        let label = [("context", index)];
        let end = |name: &str| interval.end(name, &label).unwrap_or(0.0);
        let rate = |name: &str| interval.per_second(interval.grown(name, &label).unwrap_or(0.0));
        let (dirty, written) =
            (end("extant_writeback_dirty_bytes"), rate("extant_writeback_written_bytes_total"));
        let line = format!(
            "{:<9}{:>10}{:>10}{:>12}/s{:>12}/s{:>8}{:>6}{:>8}",
            fit_to(&escape(index.as_bytes()), 8),
            bytes(dirty),
            bytes(end("extant_writeback_dirty_max_bytes")),
            bytes(rate("extant_writeback_dirtied_bytes_total")),
            bytes(written),
            count(end("extant_writeback_dirty_inodes") + end("extant_writeback_inodes_requeued")),
            count(end("extant_writeback_inodes_in_flight")),
            percent(rate("extant_writeback_throttled_seconds_total"), 1.0),
        );
        contexts.push((dirty + written, line));
    }
    contexts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut lines: Vec<_> = contexts.into_iter().map(|(_, line)| line).collect();
    if !lines.is_empty() {
        let head = format!(
            "{:<9}{:>10}{:>10}{:>14}{:>14}{:>8}{:>6}{:>8}",
            "context", "dirty", "of", "dirtied", "written", "inodes", "now", "stopped"
        );
        lines.insert(0, head);
    }
    lines
}

/// What the time is spent waiting on: as many waits as a line has room for.
fn end(interval: &Interval<'_>, kinds: &[RequestKind<'_>]) -> String {
    let all = kinds.iter().fold(0.0, |all, kind| all + kind.seconds);
    // Less than that is no wait worth reporting; it includes the reads by `top` itself.
    if all < interval.seconds / 100.0 {
        let now = under_way(interval, kinds);
        if !now.is_empty() {
            return format!("waits on what has not ended yet: {}", now.join(", "));
        }
        return format!("waits on nothing: requests took {} of {}", time(all), time(interval.seconds));
    }
    let waits = waits(kinds);
    let mut line = "waits on".to_owned();
    for (index, wait) in waits.iter().enumerate() {
        let op = escape(wait.ops.first().unwrap_or(&"").as_bytes());
        let comma = if index > 0 { "," } else { "" };
        let part = format!("{comma} {} {} ({op})", wait.on.words(), percent(wait.share, 1.0));
        if index > 0 && (wait.share < 0.01 || columns(&line) + columns(&part) > COLUMNS_MAX) {
            break;
        }
        line += &part;
    }
    line
}

/// What requests and the device are at; nothing without requests.
fn under_way(interval: &Interval<'_>, kinds: &[RequestKind<'_>]) -> Vec<String> {
    let requests = kinds.iter().filter(|kind| kind.under_way > 0.0);
    let mut now: Vec<_> =
        requests.map(|kind| format!("{} {}", count(kind.under_way), escape(kind.op.as_bytes()))).collect();
    if now.is_empty() {
        return now;
    }
    let name = "extant_device_operations_under_way";
    for io in interval.words(name, "io") {
        let at = interval.end(name, &[("io", io)]).filter(|at| *at > 0.0);
        now.extend(at.map(|at| format!("{} device {}", count(at), escape(io.as_bytes()))));
    }
    now
}

/// A number in six columns.
fn count(number: f64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut scaled = number;
    let mut unit = 0;
    while scaled >= 99_999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(scaled < 99.95 && scaled.fract() > 0.0);
    format!("{scaled:.digits$}{}", UNITS[unit])
}

fn bytes(number: f64) -> String {
    size::show(number as u64)
}

/// A time in eight columns, but for those of months.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 99.95 => format!("{seconds:.0} s"),
        _ if seconds >= 0.9995 => format!("{seconds:.1} s"),
        _ if seconds >= 0.000_999_5 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.1} us", seconds * 1e6),
    }
}

/// A part of a whole; nothing has no parts.
fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{}%", count((part * 100.0 / whole).round())) } else { "-".to_owned() }
}

/// Columns that a text takes at most.
fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Letters of other scripts may take two.
fn columns_of(letter: char) -> usize {
    if letter.is_ascii() { 1 } else { 2 }
}

fn fit(line: &str) -> String {
    fit_to(line, COLUMNS_MAX)
}

/// As much of a text as these columns hold.
fn fit_to(text: &str, columns_max: usize) -> String {
    let mut columns = 0;
    let fits = |letter: &char| {
        columns += columns_of(*letter);
        columns <= columns_max
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::super::interval::Interval;
    use super::super::snapshot::Snapshot;
    use super::*;

    fn shown(text: &str, rows: usize) -> Vec<String> {
        let text = format!("extant_served_seconds_total 10\n{text}\n# EOF\n");
        let snapshot = Snapshot::parse(&text).expect("text");
        lines(&Interval::new(None, &snapshot).expect("an interval"), "disk.img on /mnt", rows)
    }

    /// All that a server can report, with `value` for every number.
    fn everything(value: &str) -> String {
        let mut text = String::new();
        for op in 0..19 {
            let op = format!("op=\"operation\u{1b}[31m{op}\"");
            for name in ["requests_total", "request_seconds_total", "requests_under_way"] {
                text += &format!("extant_{name}{{{op}}} {value}\n");
            }
            for io in ["read", "write", "flush", "discard"] {
                text += &format!("extant_request_device_seconds_total{{{op},io=\"{io}\"}} {value}\n");
            }
        }
        for io in ["read", "write", "flush", "discard", "more", "still more"] {
            for name in ["operations_total", "operations_under_way", "bytes_total", "seconds_total"] {
                text += &format!("extant_device_{name}{{io=\"{io}\"}} {value}\n");
            }
        }
        for context in 0..12 {
            for name in [
                "dirty_bytes",
                "dirty_max_bytes",
                "dirtied_bytes_total",
                "written_bytes_total",
                "dirty_inodes",
                "inodes_in_flight",
                "throttled_seconds_total",
            ] {
                text += &format!("extant_writeback_{name}{{context=\"{context}\"}} {value}\n");
            }
        }
        for name in [
            "cpu_seconds_total",
            "read_bytes_total",
            "written_bytes_total",
            "known_inodes",
            "page_cache_bytes",
            "page_cache_dirty_bytes",
            "page_cache_dirty_max_bytes",
            "journal_commits_total",
            "journal_log_blocks_total",
            "journal_log_bytes_total",
            "journal_home_bytes_total",
            "journal_start_waits_total",
            "allocator_searches_total",
            "allocator_goal_hits_total",
            "allocator_groups_skipped_total",
            "allocator_groups_waited_total",
        ] {
            text += &format!("extant_{name} {value}\n");
        }
        text
    }

    #[test]
    fn everything_fits_and_the_last_line_is_there() {
        for value in ["0", "1", "123456.789", "18446744073709551615"] {
            for rows in [1, 5, 23, 60] {
                let lines = shown(&everything(value), rows);
                assert!(lines.len() <= rows, "{} of {rows} lines", lines.len());
                for line in &lines {
                    assert!(columns(line) < 80, "{line}");
                    assert!(!line.contains('\u{1b}'), "{line:?}");
                }
                assert!(lines.last().expect("a line").starts_with("waits on "), "{lines:?}");
            }
        }
        let lines = shown(&everything("1"), 23);
        assert_eq!(lines.len(), 23);
        let counted = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!((counted("operation"), counted("context"), counted("journal")), (7, 1, 1));
        assert!(
            lines[lines.len() - 4..lines.len() - 1].iter().all(|line| line.starts_with(char::is_numeric))
        );
        assert_eq!(
            shown(&everything("1"), 60).iter().filter(|line| line.starts_with("operation")).count(),
            19
        );
    }

    #[test]
    fn little_is_told_of_who_tells_little() {
        let lines = shown("", 23);
        assert_eq!(lines[0], "up 0:00:10, since mounting: disk.img on /mnt");
        assert_eq!(
            lines.last().map(String::as_str),
            Some("waits on nothing: requests took 0.0 us of 10.0 s")
        );
        assert_eq!(lines.len(), 5, "{lines:?}");
        let stuck = shown(
            "extant_requests_total{op=\"fsync\"} 0
extant_requests_under_way{op=\"fsync\"} 2
extant_device_operations_under_way{io=\"flush\"} 1",
            23,
        );
        let last = "waits on what has not ended yet: 2 fsync, 1 device flush";
        assert_eq!(stuck.last().map(String::as_str), Some(last));
    }

    #[test]
    fn numbers_are_short() {
        let counts = [0.0, 0.25, 12.0, 99.96, 99_999.0, 123_456.0, 1e19].map(count);
        assert_eq!(counts, ["0", "0.2", "12", "100", "99999", "123k", "10000P"]);
        let times = [0.0, 15e-6, 0.0153, 1.25, 3600.0].map(time);
        assert_eq!(times, ["0.0 us", "15.0 us", "15.3 ms", "1.2 s", "3600 s"]);
        assert_eq!((percent(1.0, 0.0), percent(1.87, 1.0)), ("-".to_owned(), "187%".to_owned()));
        assert_eq!(fit_to("aüb", 3), "aü");
    }
}
