//! Ctrl-C and SIGTERM: the first asks the work to stop; training ends at once at the second.

use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);
static IMPATIENT: AtomicBool = AtomicBool::new(false);

/// The exit code of an interrupted command.
pub const EXIT_CODE: u8 = 130;

/// Lets [`asked`] tell of signals from now on, instead of dying of them.
pub fn watch() {
    // Fails only where a handler is already set, which is this one.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::Relaxed) && IMPATIENT.load(Ordering::Relaxed) {
            std::process::exit(EXIT_CODE.into());
        }
    });
}

/// Lets a second signal end the process on the spot: for work whose files are whole at any moment.
pub fn end_at_second() {
    IMPATIENT.store(true, Ordering::Relaxed);
}

/// Whether there was a signal.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
