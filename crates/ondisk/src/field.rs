//! Little-endian fields at fixed offsets, and the macro that makes accessors of them.
//!
//! A structure is a newtype over its raw bytes, so that bytes no field names survive a read and a write.
//!
//! Invariant, asserted at compile time: the fields of a structure ascend, do not overlap and lie inside it.

/// A value with a little-endian form of fixed size.
pub(crate) trait Field: Sized {
    /// Decodes from exactly `size_of::<Self>()` bytes; fewer decode as zeros.
    fn read(bytes: &[u8]) -> Self;
    /// Encodes into exactly `size_of::<Self>()` bytes; fewer are left alone.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! integer {
    ($($raw:ty)*) => {$(
        impl Field for $raw {
            #[inline]
            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, <$raw>::from_le_bytes)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                if bytes.len() == size_of::<$raw>() {
                    bytes.copy_from_slice(&self.to_le_bytes());
                }
            }
        }
    )*};
}

integer!(u8 u16 u32 u64);

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    fn read(bytes: &[u8]) -> Self {
        let mut values = [T::default(); N];
        for (value, chunk) in values.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
            *value = T::read(chunk);
        }
        values
    }

    fn write(self, bytes: &mut [u8]) {
        for (value, chunk) in self.into_iter().zip(bytes.chunks_exact_mut(size_of::<T>())) {
            value.write(chunk);
        }
    }
}

/// The field at `offset`, or zeros when the bytes end before it does.
#[inline]
pub(crate) fn read<T: Field>(bytes: &[u8], offset: usize) -> T {
    let end = offset.saturating_add(size_of::<T>());
    T::read(bytes.get(offset..end).unwrap_or_default())
}

/// The field at `offset`, or `None` when the bytes end before it does.
#[inline]
pub(crate) fn get<T: Field>(bytes: &[u8], offset: usize) -> Option<T> {
    bytes.get(offset..offset.checked_add(size_of::<T>())?).map(T::read)
}

/// Sets the field at `offset`; nothing when the bytes end before it does.
#[inline]
pub(crate) fn write<T: Field>(bytes: &mut [u8], offset: usize, value: T) {
    let end = offset.saturating_add(size_of::<T>());
    value.write(bytes.get_mut(offset..end).unwrap_or_default());
}

/// Whether fields given as (offset, bytes) ascend without overlap and end within `size`.
pub(crate) const fn are_disjoint(fields: &[(usize, usize)], size: usize) -> bool {
    let mut end = 0;
    let mut i = 0;
    while i < fields.len() {
        if fields[i].0 < end {
            return false;
        }
        end = fields[i].0 + fields[i].1;
        i += 1;
    }
    end <= size
}

/// Makes a getter and a setter for each field of a structure that keeps its bytes in `self.bytes`.
macro_rules! fields {
    ($name:ident, $size:expr; $($(#[$doc:meta])* $get:ident, $set:ident: $ty:ty = $offset:literal;)*) => {
        const _: () = assert!(
            $crate::field::are_disjoint(&[$(($offset, size_of::<$ty>())),*], $size),
            concat!("fields of ", stringify!($name), " overlap or lie outside of it"),
        );

        impl $name {
            $(
                $(#[$doc])*
                #[doc = concat!("`", stringify!($get), "`, at byte ", stringify!($offset), ".")]
                #[inline]
                #[must_use]
                pub fn $get(&self) -> $ty {
                    $crate::field::read(&self.bytes[..], $offset)
                }

                #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
                #[inline]
                pub fn $set(&mut self, value: $ty) {
                    $crate::field::write(&mut self.bytes[..], $offset, value);
                }
            )*
        }
    };
}

pub(crate) use fields;
