//! Errors name the path, and keep their kind and number as an `io::Error`.

use std::error::Error as _;
use std::io;
use std::path::Path;

use extant::Error;

use crate::new_disk;

/// Where the standard library gives a number of Linux a kind, the error has that kind.
#[cfg(target_os = "linux")]
#[test]
fn kinds_are_those_of_the_numbers() {
    use extant::Mount;
    use extant::device::{Create, DeviceAccess, FileDevice};

    let errors = [
        Error::ReadOnly,
        Error::NoSpace,
        Error::NoInodes,
        Error::QuotaExceeded,
        Error::CrossProject,
        Error::NotFound,
        Error::Exists,
        Error::NotADirectory,
        Error::IsADirectory,
        Error::NotEmpty,
        Error::PermissionDenied,
        Error::NotPermitted,
        Error::TooManyLinks,
        Error::NameTooLong,
        Error::FileTooLarge,
        Error::InvalidArgument("x"),
        Error::OutOfRange { what: "x", min: 1, max: 2 },
        Error::Stale,
        Error::Interrupted,
        Error::Busy("x"),
        Error::Unsupported("x"),
        Error::Incompatible("x".into()),
    ];
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let image = dir.path().join("disk.img");
    let held = FileDevice::open(&image, DeviceAccess { create: Create::New, ..DeviceAccess::default() });
    let open = |path: &Path| Mount::new().open(path).expect_err("no disk, or one in use");
    let of_devices = [open(&image), open(dir.path()), open(&dir.path().join("none"))];
    drop(held.expect("a new image"));
    assert_eq!(of_devices.each_ref().map(Error::raw_os_error), [16, 22, 2], "{of_devices:?}");
    for error in errors.into_iter().chain(of_devices) {
        let of_number = io::Error::from_raw_os_error(error.raw_os_error());
        assert_eq!(error.kind(), of_number.kind(), "{error:?} and {of_number:?}");
    }
}

#[test]
fn an_io_error_keeps_path_number_text_and_source() {
    let fs = new_disk(32);
    let error = fs.open("/none").expect_err("nothing there");
    assert_eq!(error.path(), Some(Path::new("/none")));
    #[cfg(target_os = "linux")]
    assert_eq!(error.raw_os_error(), 2);
    assert!(matches!(error.cause(), Error::NotFound));
    let error = io::Error::from(error);
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (io::ErrorKind::NotFound, "/none: no such file or directory")
    );
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no such file or directory"));
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).expect("the engine's error");
    assert!(matches!(inner.cause(), Error::NotFound));
    #[cfg(target_os = "linux")]
    assert_eq!(inner.raw_os_error(), 2);
    assert!(matches!(error.downcast::<Error>().expect("the engine's error").into_cause(), Error::NotFound));
}

#[test]
fn errors_name_the_path_that_was_given() {
    let fs = new_disk(32);
    fs.create_dir("/dir").expect("a directory");
    fs.write("/dir/file", "").expect("a file");
    fs.write("/file", [0xFF]).expect("a file");
    let told: [(Error, &str); 16] = [
        (fs.open("x/y").expect_err("1"), "x/y"),
        (fs.read("/dir").expect_err("2"), "/dir"),
        (fs.write("/dir", "").expect_err("3"), "/dir"),
        (fs.create_dir("/dir").expect_err("4"), "/dir"),
        (fs.create_dir_all("/file/x").expect_err("5"), "/file/x"),
        (fs.remove_dir("/dir").expect_err("6"), "/dir"),
        (fs.remove_file("//dir").expect_err("7"), "//dir"),
        (fs.remove_dir_all("/none").expect_err("8"), "/none"),
        (fs.rename("/none", "/new").expect_err("9"), "/none"),
        (fs.rename("/file", "/none/new").expect_err("10"), "/none/new"),
        (fs.hard_link("/file", "/dir/file").expect_err("11"), "/dir/file"),
        (fs.symlink("x", "/file").expect_err("12"), "/file"),
        (fs.read_link("/file").expect_err("13"), "/file"),
        (fs.read_to_string("/file").expect_err("14"), "/file"),
        (fs.copy("/file", "/none/x").expect_err("15"), "/none/x"),
        (fs.read_dir("/file").expect_err("16"), "/file"),
    ];
    for (error, path) in told {
        assert_eq!(error.path(), Some(Path::new(path)), "{error}");
        assert!(
            error.cause().path().is_none() && error.to_string().starts_with(&format!("{path}: ")),
            "{error}"
        );
    }
}
