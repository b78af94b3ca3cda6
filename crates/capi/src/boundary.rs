//! The border to C: results and panics on the way out, pointers on the way in.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::slice;

use crate::error::{Failure, extant_error};

/// Where a caller wants a failure described; NULL if it does not. Uninitialised until then.
pub(crate) type ErrorOut<'e> = Option<&'e mut MaybeUninit<extant_error>>;

/// The result of `act`; what it unwound with, if it panicked.
///
/// The engine's own state stays whole through a panic: an update that is dropped after its first change aborts the journal. So nothing that
/// is seen afterwards is half changed.
fn guarded<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|payload| Err(Failure::panicked(message_of(&*payload))))
}

fn message_of(payload: &(dyn Any + Send)) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("panic")
}

fn describe(failure: &Failure, error: ErrorOut<'_>) {
    if let Some(error) = error {
        error.write(failure.to_c());
    }
}

/// 0, or the negative `errno` of a failure, which is described in `error`.
pub(crate) fn status(error: ErrorOut<'_>, act: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match guarded(act) {
        Ok(()) => 0,
        Err(failure) => {
            describe(&failure, error);
            -failure.errno
        }
    }
}

/// A count, likewise.
pub(crate) fn count(error: ErrorOut<'_>, act: impl FnOnce() -> Result<u64, Failure>) -> i64 {
    let in_range = |count: u64| {
        i64::try_from(count).map_err(|_| Failure::refused(libc::EOVERFLOW, "the result exceeds INT64_MAX"))
    };
    match guarded(|| act().and_then(in_range)) {
        Ok(count) => count,
        Err(failure) => {
            describe(&failure, error);
            (-failure.errno).into()
        }
    }
}

/// Drops what a handle owns. A panic of its destructor ends here too.
pub(crate) fn release<T>(owned: T) {
    // There is nobody to report it to.
    let _ = guarded(|| {
        drop(owned);
        Ok(())
    });
}

/// What a pointer leads to, unless it is NULL.
pub(crate) fn given<T>(pointer: Option<T>, what: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::argument(&format!("{what} is NULL")))
}

/// Refuses flags other than these.
pub(crate) fn check_flags(flags: u32, known: u32) -> Result<(), Failure> {
    let unknown = flags & !known;
    if unknown == 0 { Ok(()) } else { Err(Failure::argument(&format!("unknown flags {unknown:#x}"))) }
}

/// Refuses fields that a later version may give a meaning.
pub(crate) fn check_reserved(reserved: &[u64]) -> Result<(), Failure> {
    if reserved.iter().all(|field| *field == 0) {
        Ok(())
    } else {
        Err(Failure::argument("a reserved field is not 0"))
    }
}

/// The bytes of a string, without its NUL.
///
/// # Safety
/// `text` is NULL or leads to a string that ends with NUL and does not change for `'t`.
pub(crate) unsafe fn text<'t>(text: *const c_char, what: &str) -> Result<&'t [u8], Failure> {
    given((!text.is_null()).then_some(text), what)
        // SAFETY: not NULL, so a string by the caller's promise.
        .map(|text| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A path, in the bytes of a string.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'t>(path: *const c_char, what: &str) -> Result<&'t Path, Failure> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(path, what) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The size of a buffer as a length that a slice can have.
fn slice_len(size: u64) -> Result<usize, Failure> {
    isize::try_from(size)
        .map(isize::unsigned_abs)
        .map_err(|_| Failure::argument("the size exceeds the address space"))
}

/// The bytes that a caller gives. NULL is no error if there are none.
///
/// # Safety
/// Unless NULL, `size` bytes at `bytes` may be read, and do not change for `'b`.
pub(crate) unsafe fn input<'b>(bytes: *const c_void, size: u64, what: &str) -> Result<&'b [u8], Failure> {
    if size == 0 {
        return Ok(&[]);
    }
    let bytes = given((!bytes.is_null()).then_some(bytes), what)?;
    // SAFETY: not NULL, and readable for `size` bytes by the caller's promise; no longer than a slice can be.
    Ok(unsafe { slice::from_raw_parts(bytes.cast(), slice_len(size)?) })
}

/// A buffer to be filled, likewise.
///
/// # Safety
/// Unless NULL, `size` bytes at `bytes` may be written, and nothing else accesses them for `'b`.
pub(crate) unsafe fn output<'b>(bytes: *mut c_void, size: u64, what: &str) -> Result<&'b mut [u8], Failure> {
    if size == 0 {
        return Ok(&mut []);
    }
    let bytes = given((!bytes.is_null()).then_some(bytes), what)?;
    // SAFETY: not NULL, and writable for `size` bytes by the caller's promise; no longer than a slice can be. C allocated it, so its
    // bytes have some value, and the engine writes them only.
    Ok(unsafe { slice::from_raw_parts_mut(bytes.cast(), slice_len(size)?) })
}

/// Answers a request for bytes of unknown length, as `getxattr(2)` does: their number, and the bytes themselves unless `size` is 0.
///
/// # Safety
/// As [`output`].
pub(crate) unsafe fn copy_out(bytes: &[u8], buf: *mut c_void, size: u64) -> Result<u64, Failure> {
    // SAFETY: the caller's promise.
    let buf = unsafe { output(buf, size, "buf") }?;
    if !buf.is_empty() {
        buf.get_mut(..bytes.len())
            .ok_or_else(|| Failure::refused(libc::ERANGE, "the buffer is too small"))?
            .copy_from_slice(bytes);
    }
    Ok(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::extant_error_kind::EXTANT_ERROR_PANIC;

    #[test]
    fn panic_becomes_an_error_with_its_message() {
        let mut error = MaybeUninit::uninit();
        let result = status(Some(&mut error), || panic!("seven of {}", 9));
        assert_eq!(result, -libc::ENOTRECOVERABLE);
        // SAFETY: a failure was described.
        let error = unsafe { error.assume_init() };
        // SAFETY: messages end with NUL.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy();
        assert_eq!((error.code, error.kind), (libc::ENOTRECOVERABLE, EXTANT_ERROR_PANIC as u32));
        assert!(message.ends_with("seven of 9"), "{message}");
        assert_eq!(count(None, || panic!("no text")), i64::from(-libc::ENOTRECOVERABLE));
    }

    #[test]
    fn panicking_destructor_ends_at_the_border() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        release(Bomb);
    }

    #[test]
    fn count_that_c_cannot_express_is_an_error() {
        assert_eq!(count(None, || Ok(i64::MAX as u64)), i64::MAX);
        assert_eq!(count(None, || Ok(1 << 63)), i64::from(-libc::EOVERFLOW));
    }
}
