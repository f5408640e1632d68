//! Ctrl-C and SIGTERM: the first signal requests to stop; a second one ends training at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::say;

static ASKED: AtomicBool = AtomicBool::new(false);
static IMPATIENT: AtomicBool = AtomicBool::new(false);
static ALONE: AtomicBool = AtomicBool::new(false);
static RANK: AtomicBool = AtomicBool::new(false);
static SILENT: AtomicBool = AtomicBool::new(false);
static AT_ONCE: AtomicBool = AtomicBool::new(false);
static TRAINING: AtomicBool = AtomicBool::new(false);
static FIRST: Mutex<Option<Instant>> = Mutex::new(None);

/// Signals within this time count as one: a launcher and a terminal may both send one.
const ONE: Duration = Duration::from_millis(500);

/// How long one of several ranks waits before it reports a signal: a launcher also sends one when another rank has failed,
/// and then that failure is reported instead.
const HESITATION: Duration = Duration::from_millis(300);

/// The exit code of an interrupted command.
pub const EXIT_CODE: u8 = 130;

/// Installs the signal handler: signals no longer end the process, and [`asked`] reports them.
pub fn watch() {
    // Fails only where a handler is already set, which is this one.
    let _ = ctrlc::set_handler(|| {
        if ALONE.load(Ordering::Relaxed) {
            say("error: ended by a signal before all ranks had come together");
            std::process::exit(EXIT_CODE.into());
        }
        // One of several ranks must notify the others; its launcher ends it.
        if AT_ONCE.load(Ordering::Relaxed) && !RANK.load(Ordering::Relaxed) {
            say("\ninterrupted; nothing was written");
            std::process::exit(EXIT_CODE.into());
        }
        let mut first = FIRST.lock().unwrap_or_else(|e| e.into_inner());
        let since = *first.get_or_insert_with(Instant::now);
        let again = ASKED.swap(true, Ordering::Relaxed) && since.elapsed() > ONE;
        if !IMPATIENT.load(Ordering::Relaxed) {
            return;
        }
        if again {
            tell("\ninterrupted twice; what the last checkpoint does not hold is lost");
            std::process::exit(EXIT_CODE.into());
        }
        if RANK.load(Ordering::Relaxed) {
            std::thread::sleep(HESITATION);
        }
        tell(if TRAINING.load(Ordering::Relaxed) {
            "\ninterrupted: finishing this epoch, then saving; once more to quit without"
        } else {
            "\ninterrupted: ending before the first epoch"
        });
    });
}

/// Lets a second signal end the process at once: for work whose files are complete at any moment.
pub fn end_at_second() {
    IMPATIENT.store(true, Ordering::Relaxed);
}

/// Sets whether this process still waits for the other ranks to join: then a signal ends it at once.
pub fn end_at_first(alone: bool) {
    watch();
    ALONE.store(alone, Ordering::Relaxed);
}

/// Sets whether a signal ends the process at once: during work that cannot be cancelled, while nothing is on disk.
pub fn end_at_once(active: bool) {
    AT_ONCE.store(active, Ordering::Relaxed);
}

/// Marks the start of the first epoch, for the message about a signal.
pub fn training() {
    TRAINING.store(true, Ordering::Relaxed);
}

/// Delays the message about a signal, because the launcher may have sent it after a failure of another rank.
pub fn hesitate() {
    RANK.store(true, Ordering::Relaxed);
}

/// Prints nothing about signals from now on: for all ranks but one.
pub fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

fn tell(line: &str) {
    if !SILENT.load(Ordering::Relaxed) {
        say(line);
    }
}

/// Returns whether there was a signal.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
