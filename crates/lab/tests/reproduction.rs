//! The posts' rows beside the lab's.
//!
//! Run by `make test-lab`.
#![cfg(extant_rt = "virtual")]

use std::process::Command;

use serde_json::Value;

fn reproduce(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-lab"));
    let output = command.arg("reproduce").args(arguments).output().expect("the lab");
    let said = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(said).expect("text"))
}

#[test]
fn rows_are_ratios_to_their_base_and_give_the_same_bytes_each_time() {
    let (_, text) = reproduce(&["A", "--table", "curve", "--json"]);
    assert_eq!(reproduce(&["a", "--table", "curve", "--json"]).1, text);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let rows = document.as_array().expect("rows");
    assert_eq!(rows.len(), 7, "{text}");
    assert_eq!((rows[0]["kind"].as_str(), rows[0]["simulated_ratio"].as_f64()), (Some("base"), Some(1.0)));
    let of = |row: &Value, what: &str| row[what].as_f64().unwrap_or_else(|| panic!("no {what}: {row}"));
    // The reader of JSON may be off by the last bit.
    let same = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} is not {b}");
    for row in rows {
        let (published, simulated) = (of(row, "published_ratio"), of(row, "simulated_ratio"));
        same(published, of(row, "published") / 295_287.0);
        same(simulated, of(row, "simulated") / of(&rows[0], "simulated"));
        same(of(row, "error"), simulated / published - 1.0);
    }
    assert!(of(&rows[6], "simulated_ratio") < 0.05, "the old allocator does not scale: {text}");
}

#[test]
fn a_hold_more_for_each_inode_costs_creates_and_no_removals() {
    let (_, text) = reproduce(&["C", "--json"]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let rates: Vec<_> =
        document.as_array().expect("rows").iter().map(|row| row["simulated"].as_f64()).collect();
    let [Some(before), Some(posted), Some(merged), Some(removed_before), Some(removed)] = rates[..] else {
        panic!("{text}")
    };
    assert!(5.0 * before < posted && 1.1 * posted < merged, "{rates:?}");
    assert!((removed / removed_before - 1.0).abs() < 0.02, "{rates:?}");
}

#[test]
fn rows_that_cannot_be_simulated_are_listed_with_the_reason() {
    let (done, text) = reproduce(&["d", "--table", "contexts"]);
    assert!(done && text.contains("| 6 | 163 |  |  |  |  | not simulated: as above |"), "{text}");
    let (done, text) = reproduce(&["g"]);
    assert!(!done && text.contains("no such post"), "{text}");
}

/// A row's ratio to the base of its table.
fn gain(post: &str, table: &str, row: &str) -> f64 {
    let (_, text) = reproduce(&[post, "--table", table, "--json"]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let mut rows = document.as_array().expect("rows").iter();
    rows.find(|known| known["row"] == row).and_then(|row| row["simulated_ratio"].as_f64()).expect("simulated")
}

#[test]
fn sparse_writes_pay_for_each_preallocation_that_a_list_is_searched_for() {
    let gain = gain("e", "sparse", "tree");
    // Without what a look takes beside its lock it would be 1.28.
    assert!((1.4..2.5).contains(&gain), "{gain}");
}

#[test]
fn a_file_filled_at_random_pays_little_for_a_list_that_has_an_item_for_each_chunk() {
    let gain = gain("E", "random fill", "tree");
    assert!((1.0..1.15).contains(&gain), "{gain}");
}

#[test]
fn writers_at_random_gain_by_contexts_of_their_own() {
    let gain = gain("d", "12 files, BM1743", "after");
    assert!((2.0..4.0).contains(&gain), "{gain}");
}

#[test]
fn groups_in_order_are_walked_faster_than_heads_of_lists_are_fought_over() {
    let gain = gain("b", "ordered", "ordered");
    assert!(gain > 1.1, "{gain}");
}

#[test]
fn skipping_busy_groups_gains_little_where_each_lock_taken_takes_a_line_from_all_searches() {
    let gain = gain("A", "64-optimised", "busy groups are skipped");
    assert!((1.1..1.6).contains(&gain), "{gain}");
}

#[test]
fn rows_entered_when_all_constants_had_been_chosen_have_a_score_of_their_own() {
    let (done, text) = reproduce(&["F", "--table", "one-amd-linear"]);
    let score = text.lines().last().expect("a summary");
    assert!(done && score.starts_with("6 rows, 5 simulated. Of 4 entered when no constant was"), "{text}");
    let (_, text) = reproduce(&["b", "--table", "ordered"]);
    let score = text.lines().last().expect("a summary");
    assert!(score.contains(" predicted: ") && !score.contains("entered"), "{text}");
}

#[test]
fn operations_of_the_kernel_have_a_score_of_their_own() {
    let (done, text) = reproduce(&["orphans"]);
    let score = text.lines().last().expect("a summary");
    assert!(
        done && score.starts_with("20 rows, 4 simulated. Of 2 of operations that were modelled"),
        "{text}"
    );
    assert_eq!(reproduce(&["orphans"]).1, text);
}

#[test]
fn computation_of_an_operation_of_the_kernel_follows_from_the_rate_of_one_cpu() {
    let (_, text) = reproduce(&["fxmark-nvme", "--table", "mwrm", "--json"]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let base = document[0]["simulated"].as_f64().expect("simulated");
    assert!((base / 15_359.0 - 1.0).abs() < 0.01, "{text}");
}

#[test]
fn reads_of_files_of_ones_own_scale_and_those_of_one_page_wait_for_its_reference_count() {
    let (own, same) = (gain("fxmark-ramdisk", "drbl", "16"), gain("fxmark-ramdisk", "drbh", "16"));
    assert!(own > 15.5 && same < 2.0, "{own} {same}");
}

#[test]
fn overwrites_of_files_of_ones_own_meet_in_the_journal_and_those_of_one_file_in_its_lock() {
    let (own, one) = (gain("fxmark-ramdisk", "dwol", "16"), gain("fxmark-ramdisk", "dwom", "16"));
    assert!((1.0..8.0).contains(&own) && one < 0.8, "{own} {one}");
}

#[test]
fn renames_between_directories_follow_one_another() {
    let gain = gain("fxmark-nvme", "mwrm", "24");
    assert!((0.9..1.0).contains(&gain), "{gain}");
}
