//! Large files on modelled devices, by the number of writeback contexts.
//!
//! Run by `make test-lab`.
#![cfg(extant_rt = "virtual")]

use std::process::Command;

/// The rows of a table: contexts, MiB/s, of the first, per cent of the device, extents per file.
fn rows(arguments: &str) -> Vec<[f64; 5]> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-lab"));
    let output = command.arg("writeback").args(arguments.split(' ')).output().expect("the lab");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    let figures = |line: &str| -> Option<[f64; 5]> {
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_end_matches(" %").parse());
        cells.collect::<Result<Vec<f64>, _>>().ok()?.try_into().ok()
    };
    let rows: Vec<_> = text.lines().filter_map(figures).collect();
    assert!(!rows.is_empty(), "{text}");
    rows
}

#[test]
fn contexts_share_what_a_flusher_computes_and_files_lie_as_before() {
    let rows = rows("--device pmem --work-ns 7290 --contexts 1,4 --file-mib 256 --cache-mib 512");
    assert!(rows[1][2] >= 3.5, "{rows:?}");
    assert!(rows[1][4] <= 1.02 * rows[0][4], "{rows:?}");
}

#[test]
fn a_device_that_one_context_fills_gives_several_no_less() {
    let rows = rows("--device bm1743 --contexts 1,12 --file-mib 256 --cache-mib 512");
    assert!(rows[0][3] >= 90.0 && rows[1][3] >= 95.0, "{rows:?}");
}
