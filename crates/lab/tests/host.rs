//! The lab beside the host: a machine like it, and what was measured on it. The measurements here are made up.
//!
//! Run by `make test-lab`.
#![cfg(extant_rt = "virtual")]

use std::path::PathBuf;
use std::process::Command;

fn lab(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-lab"));
    let output = command.args(arguments).output().expect("the lab");
    let said = |bytes| String::from_utf8(bytes).expect("text");
    if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
}

/// A file that is removed in the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("extant-lab-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn row(load: &str, target: &str, threads: usize, median: u64) -> String {
    let (min, max) = (median / 10 * 9, median / 10 * 11);
    format!(
        r#"{{ "load": "{load}", "target": "{target}", "threads": {threads}, "kernel": "6.18", "median": {median}, "min": {min}, "max": {max} }}"#
    )
}

#[test]
fn steps_of_a_machine_like_the_host_take_what_was_measured_less_their_lines() {
    let rates = [
        ("create-unlink", 500_000),
        ("stat", 10_000_000),
        ("fallocate2", 1_000_000),
        ("overwrite", 1_000_000),
    ];
    let rows = |rates: &[(&str, u64)]| {
        rates.iter().map(|(load, rate)| row(load, "extant", 1, *rate)).collect::<Vec<_>>()
    };
    let measured = File::new("measured.json", &format!("[{}]", rows(&rates).join(",")));
    let machine = match lab(&["calibrate", "--measured", measured.path()]) {
        Err(error) if error.contains("one CPU may be used") => return println!("skipped: {error}"),
        machine => machine.expect("a machine"),
    };
    let table: toml::Table = machine.parse().expect("a table");
    let level = table["level"].as_array().expect("levels");
    assert!(level.iter().all(|level| level["transfer_ns"].as_integer() > Some(1)), "{machine}");
    // A run on that machine does what was measured, but for rounding.
    let file = File::new("host.toml", &machine);
    for (load, rate) in rates {
        let run = lab(&["run", load, "--machine", file.path(), "--cpus", "1", "--json"]).expect("a run");
        let run: serde_json::Value = serde_json::from_str(&run).expect("JSON");
        let simulated = run["runs"][0]["per_second"].as_f64().expect("a rate");
        assert!((simulated / rate as f64 - 1.0).abs() < 0.03, "{load}: {simulated}, not {rate}");
    }
    let measured = File::new("less.json", &format!("[{}]", rows(&rates[..3]).join(",")));
    let error = lab(&["calibrate", "--measured", measured.path()]).expect_err("no overwrites");
    assert!(error.contains("less.json") && error.contains("was not measured"), "{error}");
}

#[test]
fn a_second_cpu_stands_beside_a_second_thread() {
    let step = |threads, median| {
        format!(
            r#"{{ "step": "oldest", "threads": {threads}, "directories": {threads}, "median": {median} }}"#
        )
    };
    let measured = File::new("ladder.json", &format!("[{}, {}]", step(1, 1000), step(2, 1250)));
    let text = lab(&["ladder", "--measured", measured.path()]).expect("a table");
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).map(cells).skip(1).collect();
    assert_eq!(rows.len(), 12, "{text}");
    let oldest = &rows[0];
    let simulated: f64 = oldest[2].parse().expect("a ratio");
    assert_eq!((&*oldest[3], simulated < 1.9), ("1.25", true), "{text}");
    let error = format!("{:+.0} %", 100.0 * (simulated / 1.25 - 1.0));
    let of = |error: &str| error.trim_end_matches(" %").parse::<f64>().expect("a number");
    // The ratio is printed rounded.
    assert!((of(&oldest[4]) - of(&error)).abs() <= 1.0, "{text}");
    let default: f64 = rows[11][2].parse().expect("a ratio");
    assert!(default > 1.98 && rows[11][3].is_empty(), "{text}");
    // On a host whose lines took long meanwhile.
    let step = |threads, median| step(threads, median).replace(" }", r#", "line_ns": 400.2 }"#);
    let measured = File::new("far.json", &format!("[{}, {}]", step(1, 1000), step(2, 1250)));
    let text = lab(&["ladder", "--measured", measured.path()]).expect("a table");
    let oldest = cells(text.lines().find(|line| line.contains("oldest")).expect("a row"));
    assert_eq!(oldest[5], "400", "{text}");
    assert!(oldest[2].parse::<f64>().expect("a ratio") < simulated - 0.2, "{text}");
}

#[test]
fn the_picture_has_what_was_published_simulated_and_measured() {
    let rows = [row("fallocate2", "ext4", 1, 400_000), row("fallocate2", "extant", 1, 1_600_000)];
    let measured = File::new("both.json", &format!("[{}, {}]", rows[0], rows[1]));
    let svg = File::new("scaling.svg", "");
    let scaling = ["scaling", "--cpus", "1,4", "--measured", measured.path()];
    let text = lab(&[&scaling[..], &["--svg", svg.path()]].concat()).expect("a table");
    let of_four = text.lines().find(|line| line.starts_with("| 4 | 33865 | ")).expect("a row");
    assert!(of_four.ends_with(" |  |  |"), "{text}");
    assert!(text.lines().any(|line| line == "| 80 |  |  | 19342 |  |  |  |  |"), "{text}");
    let picture = std::fs::read_to_string(&svg.0).expect("a picture");
    for title in [
        "Linux 6.16, published",
        "Linux 6.17, published",
        "Linux 6.17, simulated",
        "Linux 6.18, measured here",
        "Extant, measured here",
    ] {
        assert!(picture.contains(title) && text.contains(title), "{title}: {text}");
    }
    for words in ["system calls", "calls in process", "operations/s of each CPU", "Bands: ±"] {
        assert!(picture.contains(words), "{words}");
    }
    let bars = lab(&["scaling", "--cpus", "1,4", "--bars"]).expect("bars");
    assert!(bars.starts_with("4 CPUs append") && bars.contains("% off\non 4 CPUs"), "{bars}");
    let only = File::new("only.json", &format!("[{}]", rows[1]));
    let error = lab(&["scaling", "--cpus", "1", "--measured", only.path()]).expect_err("nothing of ext4");
    assert!(error.contains("not measured of ext4"), "{error}");
}

#[test]
fn a_point_is_predicted_from_one_thread_of_its_load() {
    let rows =
        [row("mwcl", "extant", 1, 500_000), row("mwcl", "extant", 4, 1_000_000), row("mwcl", "ext4", 4, 1)];
    let measured = File::new("points.json", &format!("[{}]", rows.join(",")));
    let predict = ["predict", "--machine", "kunpeng920", "--measured", measured.path()];
    let text = lab(&predict).expect("a table");
    let points: Vec<_> = text.lines().filter(|line| line.starts_with("| mwcl")).collect();
    assert_eq!(points.len(), 2, "{text}");
    assert!(points[1].starts_with("| mwcl | 4 | 1000.0 | 2.00 | "), "{text}");
    let document = lab(&[&predict[..], &["--json"]].concat()).expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let of = |what: &str| document[1][what].as_f64().expect("a figure");
    assert!((3.5..=4.01).contains(&of("predicted_gain")), "directories of one's own scale: {document}");
    assert!((of("error") - (of("predicted_gain") / 2.0 - 1.0)).abs() < 1e-9, "{document}");
    let measured = File::new("no-one.json", &format!("[{}]", rows[1]));
    let predict = ["predict", "--machine", "kunpeng920", "--measured", measured.path()];
    let error = lab(&predict).expect_err("nothing of one thread");
    assert!(error.contains("with one thread was not measured"), "{error}");
}
