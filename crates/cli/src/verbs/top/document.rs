//! An interval for programs.

use serde_json::{Map, Value, json};

use super::interval::Interval;
use super::waits::{ALL, kinds, waits};

/// One document: counts and times of the interval, and the state at its end.
pub fn document(interval: &Interval<'_>) -> Map<String, Value> {
    let kinds = kinds(interval);
    let requests: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            let mut request = object(json!({
                "request": kind.op,
                "count": whole(kind.count),
                "under_way": whole(kind.under_way),
                "time_ns": nanoseconds(kind.seconds),
            }));
            request.extend(ALL.map(|on| (format!("{}_ns", on.key()), nanoseconds(kind.on[on as usize]))));
            Value::Object(request)
        })
        .collect();
    let waits: Vec<Value> = waits(&kinds)
        .iter()
        .map(|wait| {
            json!({
                "on": wait.on.key(),
                "time_ns": nanoseconds(wait.seconds),
                "share": wait.share,
                "requests": wait.ops,
            })
        })
        .collect();
    object(json!({
        "is_since_mounting": interval.is_whole(),
        "interval_ns": nanoseconds(interval.seconds),
        "mounted_for_ns": interval.end("extant_served_seconds_total", &[]).map(nanoseconds),
        "cpu_ns": interval.grown("extant_cpu_seconds_total", &[]).map(nanoseconds),
        "read_bytes": grown(interval, "extant_read_bytes_total"),
        "written_bytes": grown(interval, "extant_written_bytes_total"),
        "requests": requests,
        "device": device(interval),
        "journal": {
            "commits": grown(interval, "extant_journal_commits_total"),
            "log_blocks": grown(interval, "extant_journal_log_blocks_total"),
            "log_bytes": grown(interval, "extant_journal_log_bytes_total"),
            "home_bytes": grown(interval, "extant_journal_home_bytes_total"),
            "checkpoints": grown(interval, "extant_journal_checkpoints_total"),
            "start_waits": grown(interval, "extant_journal_start_waits_total"),
        },
        "allocator": {
            "searches": grown(interval, "extant_allocator_searches_total"),
            "goal_hits": grown(interval, "extant_allocator_goal_hits_total"),
            "blocks": grown(interval, "extant_allocator_blocks_total"),
            "groups_considered": whole(
                interval.grown_together("extant_allocator_groups_considered_total", "criterion"),
            ),
            "groups_skipped": grown(interval, "extant_allocator_groups_skipped_total"),
            "groups_waited": grown(interval, "extant_allocator_groups_waited_total"),
        },
        "known_inodes": end(interval, "extant_known_inodes"),
        "page_cache_bytes": end(interval, "extant_page_cache_bytes"),
        "page_cache_dirty_bytes": end(interval, "extant_page_cache_dirty_bytes"),
        "page_cache_dirty_max_bytes": end(interval, "extant_page_cache_dirty_max_bytes"),
        "contexts": contexts(interval),
        "waiting_on": waits,
    }))
}

fn device(interval: &Interval<'_>) -> Vec<Value> {
    let each = |io: &str| {
        let label = [("io", io)];
        json!({
            "operation": io,
            "count": interval.grown("extant_device_operations_total", &label).map(whole),
            "under_way": interval.end("extant_device_operations_under_way", &label).map(whole),
            "bytes": interval.grown("extant_device_bytes_total", &label).map(whole),
            "time_ns": interval.grown("extant_device_seconds_total", &label).map(nanoseconds),
        })
    };
    interval.words("extant_device_operations_total", "io").into_iter().map(each).collect()
}

fn contexts(interval: &Interval<'_>) -> Vec<Value> {
    let each = |index: &str| {
        let label = [("context", index)];
        json!({
            "context": index,
            "dirty_bytes": interval.end("extant_writeback_dirty_bytes", &label).map(whole),
            "dirty_max_bytes": interval.end("extant_writeback_dirty_max_bytes", &label).map(whole),
            "dirty_inodes": interval.end("extant_writeback_dirty_inodes", &label).map(whole),
            "inodes_in_flight": interval.end("extant_writeback_inodes_in_flight", &label).map(whole),
            "dirtied_bytes": interval.grown("extant_writeback_dirtied_bytes_total", &label).map(whole),
            "written_bytes": interval.grown("extant_writeback_written_bytes_total", &label).map(whole),
            "throttled_ns": interval.grown("extant_writeback_throttled_seconds_total", &label).map(nanoseconds),
        })
    };
    interval.words("extant_writeback_dirty_bytes", "context").into_iter().map(each).collect()
}

/// By how much a counter grew; null if the server does not report it.
fn grown(interval: &Interval<'_>, name: &str) -> Value {
    interval.grown(name, &[]).map(whole).into()
}

fn end(interval: &Interval<'_>, name: &str) -> Value {
    interval.end(name, &[]).map(whole).into()
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(object) = value { object } else { Map::new() }
}

fn whole(number: f64) -> Value {
    (number.round() as u64).into()
}

fn nanoseconds(seconds: f64) -> Value {
    whole(seconds * 1e9)
}
