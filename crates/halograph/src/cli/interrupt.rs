//! Ctrl-C and SIGTERM: the first signal requests to stop; a second one ends training at once.

use std::io::{ErrorKind, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{is_interactive, say};

/// Whether there was a signal.
static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether a second signal ends the process.
static SECOND_ENDS: AtomicBool = AtomicBool::new(false);
/// Whether this process waits for the other ranks to join.
static JOINING: AtomicBool = AtomicBool::new(false);
/// Whether this process is one of several ranks.
static IS_RANK: AtomicBool = AtomicBool::new(false);
/// Whether nothing is printed about signals.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// Whether the current work cannot be cancelled.
static UNINTERRUPTIBLE: AtomicBool = AtomicBool::new(false);
/// Whether the first epoch has started.
static TRAINING: AtomicBool = AtomicBool::new(false);
/// Time of the first signal.
static FIRST: Mutex<Option<Instant>> = Mutex::new(None);

/// Signals within this time count as one: a launcher and a terminal may both send one.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// How long one of several ranks waits before it reports a signal: a launcher also sends one when another rank has failed,
/// and then that failure is reported instead.
const REPORT_DELAY: Duration = Duration::from_millis(300);

/// The exit code of an interrupted command.
pub const EXIT_CODE: u8 = 130;

/// Installs the signal handler: signals no longer end the process, and [`requested`] reports them.
pub fn install() {
    // Fails only if this handler is installed already.
    let _ = ctrlc::set_handler(handle);
}

/// Also handles every byte on standard input, and its end, as a signal: so a process that starts this one requests it to
/// stop, and its death is noticed. Returns at once.
pub fn listen_to_parent() {
    install();
    std::thread::spawn(|| {
        let mut input = std::io::stdin().lock();
        let mut byte = [0];
        loop {
            match input.read(&mut byte) {
                Ok(1..) => handle(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return handle(),
            }
        }
    });
}

fn handle() {
    if JOINING.load(Ordering::Relaxed) {
        say("error: interrupted before all ranks had joined");
        std::process::exit(EXIT_CODE.into());
    }
    // One of several ranks must notify the others; its launcher ends it.
    if UNINTERRUPTIBLE.load(Ordering::Relaxed) && !IS_RANK.load(Ordering::Relaxed) {
        print_over_bar("interrupted; nothing was written");
        std::process::exit(EXIT_CODE.into());
    }
    let mut first = FIRST.lock().unwrap_or_else(|e| e.into_inner());
    let since = *first.get_or_insert_with(Instant::now);
    let again = REQUESTED.swap(true, Ordering::Relaxed) && since.elapsed() > DEBOUNCE;
    if !SECOND_ENDS.load(Ordering::Relaxed) {
        return;
    }
    if again {
        report("interrupted twice; epochs after the last checkpoint are lost");
        std::process::exit(EXIT_CODE.into());
    }
    if IS_RANK.load(Ordering::Relaxed) {
        std::thread::sleep(REPORT_DELAY);
    }
    report(if TRAINING.load(Ordering::Relaxed) {
        "interrupted: finishing this optimiser step, then saving; press Ctrl-C again to quit without saving"
    } else {
        "interrupted: stopping before the first epoch"
    });
}

/// Lets a second signal end the process at once: for work whose files are complete at any moment.
pub fn end_on_second_signal() {
    SECOND_ENDS.store(true, Ordering::Relaxed);
}

/// Sets whether this process waits for the other ranks to join: then a signal ends it at once. Installs the handler.
pub fn set_joining(joining: bool) {
    install();
    JOINING.store(joining, Ordering::Relaxed);
}

/// Sets whether a signal ends the process at once: during work that cannot be cancelled and has written nothing.
pub fn set_uninterruptible(active: bool) {
    UNINTERRUPTIBLE.store(active, Ordering::Relaxed);
}

/// Records that the first epoch has started, for the message about a signal.
pub fn set_training() {
    TRAINING.store(true, Ordering::Relaxed);
}

/// Records that this process is one of several ranks: messages about signals are delayed by [`REPORT_DELAY`].
pub fn set_rank() {
    IS_RANK.store(true, Ordering::Relaxed);
}

/// Suppresses messages about signals from now on: all ranks but one are quiet.
pub fn set_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

fn report(line: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        print_over_bar(line);
    }
}

/// Prints a line in place of a progress bar, which is then drawn again below it.
fn print_over_bar(line: &str) {
    let clear = if is_interactive() { "\r\x1b[2K" } else { "" };
    say(&format!("{clear}{line}"));
}

/// Returns whether there was a signal.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
