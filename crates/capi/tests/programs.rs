//! C and C++ programs against the header, the shared and the static library.
//!
//! Those that need valgrind, a sanitizer or Go are run by `make test-capi`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// What of the host's C library a program with the static library needs (`rustc --print native-static-libs`).
const NATIVE_LIBRARIES: [&str; 4] = ["-lgcc_s", "-lpthread", "-lm", "-ldl"];

/// What the example prints.
const PRINTED: &str = "hostname\nit says: guest\n";

/// The programs that make disks in a directory.
const PROGRAMS: [&str; 4] = ["operations", "errors", "callbacks", "threads"];

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command to its end, and fails with what it printed.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// The static library that cargo built with this test: the newest, as its name has a hash.
fn archive() -> PathBuf {
    let deps = std::env::current_exe().expect("this program").parent().expect("its directory").to_owned();
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libextant_capi") && name.ends_with(".a")
    };
    let paths = std::fs::read_dir(deps).expect("deps").map(|entry| entry.expect("an entry").path());
    let newest = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).expect("its time");
    paths.filter(is_archive).max_by_key(newest).expect("the static library")
}

/// Where the library is installed for the tests.
fn prefix() -> &'static Path {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let mut install = Command::new(source("install"));
        install.arg(archive()).env("PREFIX", dir.path()).env("LIBDIR", dir.path().join("lib"));
        run(install.env("VERSION", env!("CARGO_PKG_VERSION")).env_remove("DESTDIR"));
        dir
    });
    dir.path()
}

/// The directory of the installed libraries.
fn libraries() -> PathBuf {
    prefix().join("lib")
}

/// The command with the installed library where pkg-config and the loader look for it.
fn with_library(mut command: Command) -> Command {
    command.env("PKG_CONFIG_PATH", libraries().join("pkgconfig")).env("LD_LIBRARY_PATH", libraries());
    command
}

/// A compiler with warnings as errors.
fn compiler(name: &str, standard: &str) -> Command {
    let mut compiler = Command::new(name);
    compiler
        .args([
            &format!("-std={standard}"),
            "-g",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            "-pthread",
            "-I",
        ])
        .arg(source("include"));
    compiler
}

/// Compiles and links what the compiler was told, against the shared library.
fn link(compiler: &mut Command, to: &Path) {
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(libraries());
    run(compiler.arg("-o").arg(to).arg("-L").arg(libraries()).arg("-lextant").arg(rpath));
}

/// The arguments of a program that makes disks in a directory.
fn arguments(program: &str, dir: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    match program {
        "callbacks" => vec![],
        "errors" => {
            let (image, inode) = damaged_image(dir);
            vec![text(dir), text(&image), inode]
        }
        _ => vec![text(dir)],
    }
}

/// An image with the file `/damaged`, whose inode has a wrong checksum, and the number of that inode.
fn damaged_image(dir: &Path) -> (PathBuf, String) {
    let image = dir.join("damaged.disk");
    run(Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).arg("8M"));
    let debugfs = |request: &str| {
        let output = run(Command::new("debugfs").args(["-w", "-R", request]).arg(&image));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let empty = dir.join("empty");
    std::fs::write(&empty, "").expect("a file");
    debugfs(&format!("write {} damaged", empty.display()));
    let stat = debugfs("stat damaged");
    debugfs("set_inode_field damaged checksum 0x1234");
    let inode = stat.split_whitespace().nth(1).expect("the number").to_owned();
    (image, inode)
}

/// Fails if e2fsck finds something in an image.
fn assert_clean(image: &Path) {
    let output = run(Command::new("e2fsck").arg("-fn").arg(image));
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(!text.contains("Fix?") && !text.contains("WARNING"), "{}: {text}", image.display());
}

/// Runs a program in a new directory and checks every image that it left.
fn run_program(program: &str, flags: &[&str], through: &[&str]) {
    let dir = tempfile::tempdir().expect("a directory");
    let binary = dir.path().join("program");
    link(compiler("cc", "c99").args(flags).arg(source(&format!("tests/{program}.c"))), &binary);
    let mut words: Vec<&str> = through.to_vec();
    words.push(binary.to_str().expect("UTF-8"));
    let mut command = Command::new(words[0]);
    run(command.args(&words[1..]).args(arguments(program, dir.path())));
    for image in ["operations.img", "options.img", "errors.img", "threads.img"] {
        let image = dir.path().join(image);
        if image.exists() {
            assert_clean(&image);
        }
    }
}

#[test]
fn operations_give_what_posix_says_and_a_clean_disk() {
    run_program("operations", &[], &[]);
}

#[test]
fn failures_have_their_errno_kind_and_message() {
    run_program("errors", &[], &[]);
}

#[test]
fn callbacks_are_a_device_and_keep_their_errno() {
    run_program("callbacks", &[], &[]);
}

#[test]
fn four_threads_share_a_file_system_and_a_file() {
    run_program("threads", &[], &[]);
}

#[test]
fn example_runs_with_the_static_library() {
    let dir = tempfile::tempdir().expect("a directory");
    let binary = dir.path().join("make_disk");
    let mut cc = compiler("cc", "c99");
    cc.arg(source("examples/make_disk.c")).arg("-o").arg(&binary);
    run(cc.arg(libraries().join("libextant.a")).args(NATIVE_LIBRARIES));
    let disk = dir.path().join("disk.img");
    let output = run(Command::new(&binary).arg(&disk));
    assert_eq!(String::from_utf8_lossy(&output.stdout), PRINTED);
    assert_clean(&disk);
    // Again: the file exists.
    let output = Command::new(&binary).arg(&disk).output().expect("the program");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("disk.img"), "{output:?}");
}

#[test]
fn page_shows_the_example() {
    let page = std::fs::read_to_string(source("../../docs/guides/use-from-c.md")).expect("the page");
    let example = std::fs::read_to_string(source("examples/make_disk.c")).expect("the example");
    assert!(page.contains(&format!("```c\n{example}```")), "docs/guides/use-from-c.md has another program");
    assert!(example.lines().count() <= 60, "the example is long");
}

#[test]
fn header_is_cpp_and_structures_keep_their_sizes() {
    let dir = tempfile::tempdir().expect("a directory");
    let binary = dir.path().join("program");
    link(compiler("c++", "c++11").arg(source("tests/interface.cpp")), &binary);
    run(&mut Command::new(&binary));
}

#[test]
fn pkg_config_finds_the_installed_library() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shell = with_library(Command::new("sh"));
    let build = "cc -o make_disk \"$0\" $(pkg-config --cflags --libs extant) && ./make_disk disk.img";
    shell.args(["-euc", build]).arg(source("examples/make_disk.c")).current_dir(dir.path());
    assert_eq!(String::from_utf8_lossy(&run(&mut shell).stdout), PRINTED);
    let mut version = with_library(Command::new("pkg-config"));
    let found = run(version.args(["--modversion", "extant"]));
    assert_eq!(String::from_utf8_lossy(&found.stdout).trim_end(), env!("CARGO_PKG_VERSION"));
}

/// The functions that the header declares.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(source("include/extant.h")).expect("the header");
    let mut names: Vec<String> = header
        .lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()) && line.contains("extant_"))
        .filter_map(|line| Some(line.split_once('(')?.0.rsplit([' ', '*']).next()?.to_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn shared_library_exports_what_the_header_declares_by_version_and_nothing_else() {
    let library = libraries().join("libextant.so.0");
    let output =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    exported.retain(|name| *name != "EXTANT_0" && *name != "EXTANT_0@@EXTANT_0");
    exported.sort_unstable();
    let declared: Vec<String> = declared().iter().map(|name| format!("{name}@@EXTANT_0")).collect();
    assert_eq!(exported, declared);
    assert!((30..=40).contains(&declared.len()), "{}", declared.len());
    let output = run(Command::new("readelf").arg("-d").arg(&library));
    let dynamic = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(dynamic.contains("soname: [libextant.so.0]"), "{dynamic}");
}

#[test]
#[ignore = "needs valgrind and a minute: make test-capi"]
fn no_program_leaks_or_reads_what_is_not_there() {
    for program in PROGRAMS {
        run_program(
            program,
            &[],
            &[
                "valgrind",
                "-q",
                "--error-exitcode=9",
                "--leak-check=full",
                "--errors-for-leak-kinds=definite,indirect",
            ],
        );
    }
}

#[test]
#[ignore = "make test-capi"]
fn programs_run_under_the_address_sanitizer() {
    for program in PROGRAMS {
        run_program(program, &["-fsanitize=address,undefined", "-fno-sanitize-recover"], &[]);
    }
}

#[test]
#[ignore = "needs Go: make test-capi"]
fn go_program_uses_the_library_from_goroutines() {
    let places = ["go", "/usr/local/go/bin/go"];
    let Some(go) = places.iter().find(|go| Command::new(go).arg("version").output().is_ok()) else {
        println!("skipped: no go");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let disk = dir.path().join("disk.img");
    let mut command = with_library(Command::new(go));
    command.args(["run", "."]).arg(&disk).current_dir(source("examples/go"));
    // Nothing is downloaded, and what is compiled is kept for the next time.
    command.env("GOTOOLCHAIN", "local").env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    let output = run(&mut command);
    let printed = "numbers\n\"0\\n1\\n2\\n3\\n4\\n5\\n6\\n7\\n\"\n/none: no such file or directory\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
    assert_clean(&disk);
}
