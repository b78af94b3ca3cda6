//! `include/extant.h` is what cbindgen makes of the sources.

use std::path::Path;

#[test]
fn header_is_made_of_the_sources() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(dir.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::generate_with_config(dir, config).expect("bindings");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).expect("UTF-8");
    let header = dir.join("include/extant.h");
    if std::env::var_os("EXTANT_BLESS").is_some() {
        std::fs::write(&header, &made).expect("the header");
    }
    let committed = std::fs::read_to_string(&header).unwrap_or_default();
    assert!(
        committed == made,
        "{} is not what the sources say; EXTANT_BLESS=1 cargo test -p extant-capi --test header rewrites it",
        header.display()
    );
}
