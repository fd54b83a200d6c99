//! Failpoints: places between an act and its record where a test ends the process, or makes one reconcile panic.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ABORT_AT: OnceLock<String> = OnceLock::new();
static PANIC_AT: OnceLock<String> = OnceLock::new();

/// Makes the process abort at this failpoint. Only the first call counts.
pub fn abort_at(point: String) {
    let _ = ABORT_AT.set(point);
}

/// Makes the process panic at this failpoint, once. Only the first call counts.
pub fn panic_at(point: String) {
    let _ = PANIC_AT.set(point);
}

/// Marks a failpoint: a crash here would do the most harm.
pub(crate) fn hit(name: &str) {
    if ABORT_AT.get().is_some_and(|at| at == name) {
        std::process::abort();
    }
    static PANICKED: AtomicBool = AtomicBool::new(false);
    if PANIC_AT.get().is_some_and(|at| at == name) && !PANICKED.swap(true, Ordering::Relaxed) {
        panic!("a test asked for it");
    }
}
