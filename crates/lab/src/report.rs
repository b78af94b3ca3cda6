//! What runs showed, as tables or JSON.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use extant_loads::Load;
use serde::Serialize;

use crate::causal::Cause;
use crate::run::Run;
use crate::sensitivity::OfLinear;

/// Classes of locks and places that a table shows: those that were waited for longest.
const SHOWN: usize = 8;

/// The name of a load on the command line.
pub fn name(load: Load) -> String {
    load.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// One JSON document.
///
/// # Errors
/// None that is known.
pub fn json(
    load: Load,
    runs: &[Run],
    causes: Option<&[Cause]>,
    of_linear: Option<&[OfLinear]>,
) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        load: &'a str,
        runs: &'a [Run],
        #[serde(skip_serializing_if = "Option::is_none")]
        causes: Option<&'a [Cause]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        of_linear: Option<&'a [OfLinear]>,
    }

    let mut text = serde_json::to_string_pretty(&Document { load: load.title(), runs, causes, of_linear })?;
    text.push('\n');
    Ok(text)
}

/// Throughput over CPUs, and for the most of them what they waited for.
pub fn tables(load: Load, runs: &[Run]) -> String {
    let mut text = format!("{}, simulated\n\n", load.title());
    text.push_str(
        "| CPUs | operations/s of each | of linear | groups looked at by a search | extents per MiB |\n",
    );
    text.push_str("|--:|--:|--:|--:|--:|\n");
    let Some(first) = runs.first() else { return text };
    for run in runs {
        let share = 100.0 * run.per_second / first.per_second;
        let extents = run.extents_per_mib.map(|extents| format!("{extents:.2}")).unwrap_or_default();
        let (cpus, rate, groups) = (run.cpus, run.per_second, run.groups_per_search);
        let _ = writeln!(text, "| {cpus} | {rate:.0} | {share:.1} % | {groups:.2} | {extents} |");
    }
    let Some(most) = runs.iter().max_by_key(|run| run.cpus) else { return text };
    let _ = writeln!(text, "\nPer operation on {} CPUs\n", most.cpus);
    text.push_str("| locks | taken | waited for | ns waited |\n|---|--:|--:|--:|\n");
    let mut locks: Vec<_> = most.locks.iter().collect();
    locks.sort_by(|(_, a), (_, b)| b.waited_ns.total_cmp(&a.waited_ns));
    for (class, share) in locks.into_iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "| {class} | {:.3} | {:.3} | {:.1} |",
            share.acquired, share.contended, share.waited_ns
        );
    }
    text.push_str("\n| lines touched at | touched | another's | ns waited |\n|---|--:|--:|--:|\n");
    let mut lines: Vec<_> = most.lines.iter().collect();
    lines.sort_by(|(_, a), (_, b)| b.waited_ns.total_cmp(&a.waited_ns));
    for (place, share) in lines.into_iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "| {place} | {:.3} | {:.3} | {:.1} |",
            share.accesses, share.shared, share.waited_ns
        );
    }
    text
}
