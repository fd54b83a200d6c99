//! Failpoints: named places between a write and its record, where a test can end the process or one pass.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ABORT_AT: OnceLock<String> = OnceLock::new();
static PANIC_AT: OnceLock<String> = OnceLock::new();

/// Ends the process when it reaches this failpoint. Only the first call counts.
pub fn abort_at(name: String) {
    let _ = ABORT_AT.set(name);
}

/// Panics once, when the process reaches this failpoint. Only the first call counts.
pub fn panic_at(name: String) {
    let _ = PANIC_AT.set(name);
}

/// Marks a failpoint: a place where a crash does the most harm.
///
/// # Panics
/// If a test asked for it with [`panic_at`].
pub fn hit(name: &str) {
    if ABORT_AT.get().is_some_and(|at| at == name) {
        std::process::abort();
    }
    static PANICKED: AtomicBool = AtomicBool::new(false);
    if PANIC_AT.get().is_some_and(|at| at == name) && !PANICKED.swap(true, Ordering::Relaxed) {
        panic!("a test asked for it");
    }
}
