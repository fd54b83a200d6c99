//! Fault points, where a test can end the process or one reconcile between an act and its record.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ABORT_AT: OnceLock<String> = OnceLock::new();
static PANIC_AT: OnceLock<String> = OnceLock::new();

/// Ends the process at this point from now on; only the first call counts.
pub fn abort_at(point: String) {
    let _ = ABORT_AT.set(point);
}

/// Panics at this point, once; only the first call counts.
pub fn panic_at(point: String) {
    let _ = PANIC_AT.set(point);
}

/// Here a crash would be worst.
pub(crate) fn point(name: &str) {
    if ABORT_AT.get().is_some_and(|at| at == name) {
        std::process::abort();
    }
    static PANICKED: AtomicBool = AtomicBool::new(false);
    if PANIC_AT.get().is_some_and(|at| at == name) && !PANICKED.swap(true, Ordering::Relaxed) {
        panic!("a test asked for it");
    }
}
