//! Conflicts as text, JSON or a picture.

use std::fmt::Write as _;

use super::{Conflict, REFILLS_MAX, SharedLine};

/// Places that text names for each pair: those shared most.
const SHOWN: usize = 4;
/// Of the picture: a cell's sides and the room for names, in pixels.
const CELL: (usize, usize) = (64, 28);
const NAMES: (usize, usize) = (190, 30);

/// One JSON document.
///
/// # Errors
/// None that is known.
pub fn json(conflicts: &[Conflict]) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(conflicts)? + "\n")
}

/// A pair's places, most shared first; or that there are none but for refills.
pub fn pair(conflict: &Conflict) -> String {
    let [first, second] = &conflict.operations;
    let mut text = format!("{first} beside {second}: {:.3} lines per operation\n\n", conflict.shared);
    text.push_str("| lines touched at | lock | touched | another's | ns waited |\n|---|---|--:|--:|--:|\n");
    for SharedLine { place, class, share } in &conflict.lines {
        let class = class.unwrap_or("");
        let (touched, shared, waited) = (share.accesses, share.shared, share.waited_ns);
        let _ = writeln!(text, "| {place} | {class} | {touched:.3} | {shared:.3} | {waited:.1} |");
    }
    text
}

/// The loads in the order of the first ones of the pairs.
fn names(conflicts: &[Conflict]) -> Vec<&str> {
    let mut names: Vec<&str> = conflicts.iter().map(|conflict| conflict.operations[0].as_str()).collect();
    names.dedup();
    names
}

fn find<'a>(conflicts: &'a [Conflict], first: &str, second: &str) -> Option<&'a Conflict> {
    conflicts.iter().find(|conflict| conflict.operations == [first, second])
}

/// All pairs as a table, and the places of those that share more than refills.
pub fn matrix(conflicts: &[Conflict]) -> String {
    let names = names(conflicts);
    let mut text = String::from(
        "Cache lines that two CPUs pass to and fro, per operation, simulated; disjoint files, directories and bands\n\n",
    );
    let _ = writeln!(text, "| | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()));
    for second in &names {
        let cell = |first: &&str| {
            find(conflicts, first, second).map_or(String::new(), |conflict| format!("{:.3}", conflict.shared))
        };
        let _ = writeln!(text, "| {second} | {} |", names.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    for conflict in conflicts.iter().filter(|conflict| conflict.shared > REFILLS_MAX) {
        let [first, second] = &conflict.operations;
        let _ = writeln!(text, "\n{first} beside {second}: {:.3}", conflict.shared);
        for SharedLine { place, class, share } in conflict.lines.iter().take(SHOWN) {
            let class = class.map(|class| format!(" ({class})")).unwrap_or_default();
            let _ = writeln!(text, "  {:.3} at {place}{class}", share.shared);
        }
    }
    text
}

/// All pairs as a picture: the darker, the more lines; white up to refills.
pub fn svg(conflicts: &[Conflict]) -> String {
    let names = names(conflicts);
    let (width, height) = (NAMES.0 + CELL.0 * names.len() + 10, NAMES.1 + CELL.1 * names.len() + 150);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\">Cache lines \
         passed between two CPUs per operation (simulated; white: at most one in 64 operations)</text>\n"
    );
    for (row, second) in names.iter().enumerate() {
        let top = NAMES.1 + CELL.1 * row;
        let middle = top + CELL.1 / 2 + 4;
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{second}</text>", NAMES.0 - 8);
        for (column, first) in names.iter().enumerate() {
            let Some(conflict) = find(conflicts, first, second) else { continue };
            let left = NAMES.0 + CELL.0 * column;
            let colour = shade(conflict.shared);
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"{colour}\" stroke=\"#999\"/>\
                 <text x=\"{}\" y=\"{middle}\" text-anchor=\"middle\">{:.3}</text>",
                CELL.0,
                CELL.1,
                left + CELL.0 / 2,
                conflict.shared
            );
        }
    }
    let bottom = NAMES.1 + CELL.1 * names.len() + 14;
    for (column, first) in names.iter().enumerate() {
        let left = NAMES.0 + CELL.0 * column + CELL.0 / 2;
        let _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"{bottom}\" text-anchor=\"end\" transform=\"rotate(-45 {left} {bottom})\">{first}</text>"
        );
    }
    svg + "</svg>\n"
}

/// From white at refills to red at a line per operation.
fn shade(shared: f64) -> String {
    if shared <= REFILLS_MAX {
        return "#ffffff".to_owned();
    }
    let depth = (shared.min(1.0) * 190.0) as u32;
    format!("#ff{0:02x}{0:02x}", 235 - depth)
}
