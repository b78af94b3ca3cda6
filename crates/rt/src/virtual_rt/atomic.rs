//! Atomics whose every access is a scheduling point.

use std::sync::atomic::Ordering;

use super::lines::LineAccess;
use super::world::touch;

macro_rules! atomic {
    ($(#[$doc:meta])* $name:ident, $value:ty, [$($operation:ident),*]) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// Holds `value`.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// The value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                touch(self, LineAccess::Read);
                self.0.load(order)
            }

            /// Replaces the value.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                touch(self, LineAccess::Write);
                self.0.store(value, order);
            }

            /// Replaces the value if it is `current`; as `std`'s.
            ///
            /// # Errors
            /// The value, if it is another.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                touch(self, LineAccess::Write);
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As [`Self::compare_exchange`]; in virtual time it does not fail without a reason.
            ///
            /// # Errors
            /// The value, if it is another.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by what `update` makes of it, in one step; as `std`'s.
            ///
            /// # Errors
            /// The value, if `update` returns none.
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                touch(self, LineAccess::Write);
                self.0.fetch_update(set, fetch, update)
            }

            $(
                /// As `std`'s: changes the value and returns the one before.
                #[track_caller]
                pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    touch(self, LineAccess::Write);
                    self.0.$operation(value, order)
                }
            )*

            /// The value, which no other thread can see.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// The value.
            #[must_use]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
        }
    };
}

atomic!(/// A flag.
    AtomicBool, bool, [swap, fetch_and, fetch_or, fetch_xor]);
atomic!(/// 32 bits.
    AtomicU32, u32, [swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
atomic!(/// 64 bits.
    AtomicU64, u64, [swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
atomic!(/// As many bits as an address.
    AtomicUsize, usize, [swap, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min]);
