//! Disks that become larger.

use super::bench::{Bench, DISK};

#[test]
fn an_image_grows_with_its_file_system_and_is_clean() {
    let Some(bench) = Bench::new() else { return };
    let bytes = |bench: &Bench| std::fs::metadata(bench.path(DISK)).expect("the image").len();
    let before = bytes(&bench);
    let document = bench.ok(&["resize", "--json", DISK, "+300M"]).json();
    assert_eq!(document["from_bytes"], before);
    assert_eq!(document["to_bytes"], before + (300 << 20));
    assert_eq!(document["transactions"], 1);
    assert_eq!(bytes(&bench), before + (300 << 20));
    bench.program("e2fsck", &["-fn", DISK]);
    assert_eq!(bench.ok(&["cat", "disk.img:/etc/hostname"]).out, "guest\n");
    let said = bench.ok(&["resize", DISK]).out;
    assert!(said.contains("already"), "{said}");
    let said = bench.ok(&["resize", DISK, "2G"]).out;
    assert!(said.contains("grew from") && said.contains("to 2 GiB"), "{said}");
    bench.program("e2fsck", &["-fn", DISK]);
}

#[test]
fn a_size_below_the_present_one_is_refused_with_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    bench.assert_untouched(DISK, || {
        let said = bench.fails(1, &["resize", DISK, "1M"]);
        assert!(said.contains("resize2fs"), "{}", said);
        let said = bench.fails(1, &["resize", "--json", DISK, "0"]);
        assert!(said.contains("\"unsupported\""), "{}", said);
        bench.fails(2, &["resize", DISK, "many"]);
        assert!(bench.fails(2, &["resize", ".", "+1G"]).contains("how large it is to be"));
        let said = bench.fails(1, &["resize", "/proc", "1G"]);
        assert!(said.contains("cannot be made larger"), "{said}");
    });
}
