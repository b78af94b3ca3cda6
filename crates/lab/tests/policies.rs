//! Policies as files, beside the default and the kernel's.
//!
//! Run by `make test-lab`.
#![cfg(extant_rt = "virtual")]

use std::process::Command;

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/packed-streams.toml");

fn policy(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-lab"));
    let output = command.arg("policy").args(arguments).output().expect("the lab");
    let said = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
}

#[test]
fn the_example_stands_beside_the_others_with_the_same_figures_each_time() {
    let text = policy(&[EXAMPLE, "--disk-gb", "16", "--json"]).expect("figures");
    assert_eq!(policy(&[EXAMPLE, "--disk-gb", "16", "--json"]).as_ref(), Ok(&text));
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let all = document.as_array().expect("policies");
    assert_eq!((all.len(), all[0]["policy"].as_str()), (5, Some(EXAMPLE)), "{text}");
    let of = |policy: usize, figure: &str| all[policy][figure].as_f64().expect("a figure");
    for policy in 0..all.len() {
        assert!(of(policy, "blocks_per_search") >= 1.0 && of(policy, "groups_per_search") > 0.0, "{text}");
        assert!(of(policy, "extents_per_large_file") >= 1.0 && of(policy, "extents_per_small_file") >= 1.0);
        // Four fifths of 8 GB are files; what grew took from runs of free blocks.
        assert!(of(policy, "free_run_bytes") <= of(policy, "free_run_bytes_aged"), "{text}");
    }
    let figures = |policy: usize| {
        let mut figures = all[policy].clone();
        figures["policy"].take();
        figures
    };
    assert_ne!(figures(0), figures(1), "the policy changes nothing");
}

#[test]
fn policies_in_code_place_blocks_otherwise_and_give_the_same_figures_each_time() {
    for name in ["worst-fit", "round-robin", "rralloc"] {
        let text = policy(&[name, "--disk-gb", "16", "--json"]).expect("figures");
        assert_eq!(policy(&[name, "--disk-gb", "16", "--json"]).as_ref(), Ok(&text));
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let of = |policy: usize, figure: &str| document[policy][figure].as_f64().expect("a figure");
        assert_eq!(document[0]["policy"], name);
        assert_ne!(of(0, "free_run_bytes_aged"), of(1, "free_run_bytes_aged"), "{text}");
        assert!((0..5).all(|policy| of(policy, "appends_per_second") > 0.0), "{text}");
    }
}

#[test]
fn several_policies_stand_beside_the_others_on_a_disk_that_nothing_aged() {
    let text = policy(&["rralloc", EXAMPLE, "--disk-gb", "16", "--age", "0", "--json"]).expect("figures");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let all = document.as_array().expect("policies");
    let names: Vec<_> = all.iter().take(2).filter_map(|one| one["policy"].as_str()).collect();
    assert_eq!((all.len(), names), (6, vec!["rralloc", EXAMPLE]), "{text}");
    assert!(all.iter().all(|one| one["extents_per_aged_file"] == 0.0), "{text}");
    assert!(all.iter().all(|one| one["extents_per_mib_of_appends"].as_f64() > Some(0.0)), "{text}");
}

#[test]
fn the_picture_shows_each_policy_and_figure() {
    let picture = std::env::temp_dir().join(format!("extant-lab-policy-{}.svg", std::process::id()));
    let text =
        policy(&[EXAMPLE, "--disk-gb", "16", "--svg", picture.to_str().expect("a path")]).expect("figures");
    let svg = std::fs::read_to_string(&picture).expect("a picture");
    std::fs::remove_file(&picture).expect("the picture");
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| policy")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        // The policy, groups looked at, extents of large files and of those before, free extents before and after, appends and
        // their extents.
        for cell in [1, 4, 5, 7, 8, 9, 10, 12] {
            assert!(svg.contains(&format!(">{}</text>", cells[cell])), "{}: {svg}", cells[cell]);
        }
    }
    assert_eq!(svg.matches("<rect x=").count(), 7 * 5, "{svg}");
}

#[test]
fn the_printed_default_is_the_default() {
    let file = std::env::temp_dir().join(format!("extant-lab-default-{}.toml", std::process::id()));
    std::fs::write(&file, policy(&[]).expect("the default")).expect("a file");
    let text = policy(&[file.to_str().expect("a path"), "--disk-gb", "16", "--json"]).expect("figures");
    std::fs::remove_file(&file).expect("the file");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let figures = |policy: usize| {
        let mut figures = document[policy].clone();
        figures["policy"].take();
        figures
    };
    assert_eq!(figures(0), figures(1));
}
