//! Ctrl-C and SIGTERM: the first asks the work to stop; training ends at once at the second.

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

/// Signals so close together are one: a launcher and a terminal may both send theirs.
const ONE: Duration = Duration::from_millis(500);

/// How long one of several ranks waits before it speaks of a signal: a launcher sends one when another rank has failed,
/// and then that is what is to be said.
const HESITATION: Duration = Duration::from_millis(300);

/// The exit code of an interrupted command.
pub const EXIT_CODE: u8 = 130;

/// Lets [`asked`] tell of signals from now on, instead of dying of them.
pub fn watch() {
    // Fails only where a handler is already set, which is this one.
    let _ = ctrlc::set_handler(|| {
        if ALONE.load(Ordering::Relaxed) {
            say("error: ended by a signal before all ranks had come together");
            std::process::exit(EXIT_CODE.into());
        }
        // One of several ranks has others to tell, and a launcher that ends it.
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

/// Lets a second signal end the process on the spot: for work whose files are whole at any moment.
pub fn end_at_second() {
    IMPATIENT.store(true, Ordering::Relaxed);
}

/// Whether this process still waits for the other ranks: then a signal ends it on the spot, and it says so.
#[cfg(feature = "mpi")]
pub fn end_at_first(alone: bool) {
    watch();
    ALONE.store(alone, Ordering::Relaxed);
}

/// Lets a signal end the process on the spot for as long as this lives: for work that does not ask whether to stop, when
/// nothing is on disk.
pub struct AtOnce;

/// See [`AtOnce`].
pub fn at_once() -> AtOnce {
    AT_ONCE.store(true, Ordering::Relaxed);
    AtOnce
}

impl Drop for AtOnce {
    fn drop(&mut self) {
        AT_ONCE.store(false, Ordering::Relaxed);
    }
}

/// Blocks for a moment after a signal has cancelled some work. Without other ranks the handler ends the process
/// meanwhile, if there is an [`AtOnce`]. With other ranks the signal may come from a launcher because one of them has
/// failed: this rank learns of that failure meanwhile, and reports it instead before the handler reports the signal.
pub fn wait_for_handler() {
    let has_peers = RANK.load(Ordering::Relaxed);
    std::thread::sleep(if has_peers { HESITATION / 2 } else { 4 * HESITATION });
}

/// Says from now on that it is an epoch that is interrupted.
pub fn training() {
    TRAINING.store(true, Ordering::Relaxed);
}

/// Says from now on that there was a signal only if nothing else is wrong.
pub fn hesitate() {
    RANK.store(true, Ordering::Relaxed);
}

/// Says nothing about signals from now on: for one of several processes that get the same.
pub fn be_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

fn tell(line: &str) {
    if !SILENT.load(Ordering::Relaxed) {
        say(line);
    }
}

/// Whether there was a signal.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
