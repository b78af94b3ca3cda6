//! The figures of several policies as bars, a panel for each figure, as SVG.

use std::fmt::Write as _;

use super::compare::{Disk, Figures};

/// Pixels: the picture's width, the margin around everything, the width of names, the longest bar, and the height of a row.
const WIDTH: usize = 760;
const MARGIN: usize = 12;
const NAMES: usize = 230;
const BAR: f64 = 420.0;
const ROW: usize = 20;
const COLOURS: [&str; 2] = ["#286ec8", "#9a9a9a"];

/// What a panel shows of a policy, with its title and the digits behind the point.
type Panel = (&'static str, fn(&Figures) -> f64, usize);

const PANELS: [Panel; 7] = [
    ("appends/s of each of 64 CPUs on the aged disk, simulated", |one| one.appends_per_second, 0),
    ("groups looked at by a search", |one| one.groups_per_search, 2),
    ("extents per MiB of the files that 64 CPUs append to", |one| one.extents_per_mib_of_appends, 2),
    ("extents of a large file", |one| one.extents_per_large_file, 1),
    ("extents of a file that aged the disk", |one| one.extents_per_aged_file, 2),
    ("mean free extent of the aged disk, KiB", |one| one.free_run_bytes_aged / 1024.0, 0),
    ("mean free extent at the end, KiB", |one| one.free_run_bytes / 1024.0, 0),
];

/// Draws all policies; the first ones, `own` of them, which are compared, in a colour of their own.
pub fn svg(disk: Disk, all: &[Figures], own: usize) -> String {
    let panel_height = ROW * (all.len() + 2);
    let height = 2 * MARGIN + ROW + panel_height * PANELS.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let text = |x: usize, y: usize, style: &str, words: &str| {
        let words = words.replace('&', "&amp;").replace('<', "&lt;");
        format!("<text x=\"{x}\" y=\"{y}\" {style}>{words}</text>\n")
    };
    let title = format!(
        "A disk of {} GB with blocks of {} KiB aged to {} %, seed {}",
        disk.gb, disk.block_kib, disk.age, disk.seed
    );
    svg.push_str(&text(MARGIN, MARGIN + 14, "font-size=\"16\"", &title));
    for (index, (title, figure, digits)) in PANELS.iter().enumerate() {
        let top = MARGIN + ROW + panel_height * index;
        svg.push_str(&text(NAMES, top + ROW, "font-weight=\"bold\"", title));
        let most = all.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max);
        for (row, one) in all.iter().enumerate() {
            let (y, value) = (top + ROW * (row + 1) + 6, figure(one));
            let (width, colour) = ((value / most * BAR).max(1.0), COLOURS[usize::from(row >= own)]);
            svg.push_str(&text(NAMES - 8, y + 14, "text-anchor=\"end\"", &one.policy));
            let height = ROW - 4;
            let _ = writeln!(
                svg,
                "<rect x=\"{NAMES}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>"
            );
            svg.push_str(&text(NAMES + width as usize + 6, y + 14, "", &format!("{value:.digits$}")));
        }
    }
    svg + "</svg>\n"
}
