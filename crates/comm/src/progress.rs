//! The progress thread of a rank.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::message::Message;
use crate::shared::{Commands, End, Shared};
use crate::tag::{Key, Kind};
use crate::transport::{Transport, TransportError};

/// Time between two checks of other processes. Short, because a launcher that misses a process soon ends all.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Sleep of a thread that was told to stall.
const STALL_SLEEP: Duration = Duration::from_secs(1);

/// Moves messages, advances reductions, sends heartbeats and detects lost ranks.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    /// When the next heartbeat is due.
    next_heartbeat: Instant,
    /// When the processes of other ranks are checked next.
    next_process_check: Instant,
    /// When other ranks were last checked.
    last_check: Instant,
    /// Whether this rank has announced that it leaves.
    has_left: bool,
}

impl Progress {
    pub(crate) fn new(shared: Arc<Shared>, transport: Box<dyn Transport>) -> Self {
        let now = Instant::now();
        Progress {
            shared,
            transport,
            next_heartbeat: now,
            next_process_check: now,
            last_check: now,
            has_left: false,
        }
    }

    /// Runs until it is told to end. A panic here fails the rank, so that its waits end.
    pub(crate) fn run(mut self) {
        // A pool of this thread only: allocating large messages must not wait for threads that compute.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        let shared = self.shared.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.run_loop();
            self.finish();
        }));
        if ended.is_err() {
            shared.fail_because("its progress thread panicked");
        }
        drop(pool);
    }

    fn run_loop(&mut self) {
        loop {
            let commands = self.shared.commands();
            let progressed = !commands.stall && self.poll(commands);
            if commands.end.is_some_and(|end| Instant::now() >= end.by || self.is_flushed(end)) {
                return;
            }
            if !progressed {
                let until_heartbeat = self.next_heartbeat.saturating_duration_since(Instant::now());
                let timeout = self.transport.max_sleep().min(until_heartbeat);
                self.shared.inbox.wakeup.sleep(if commands.stall { STALL_SLEEP } else { timeout });
            }
        }
    }

    /// Does what is possible without blocking. Returns whether there was anything to do.
    fn poll(&mut self, commands: Commands) -> bool {
        let mut progressed = match self.transport.poll(&self.shared) {
            Ok(progressed) => progressed,
            Err(error) => self.fail_transport(error),
        };
        progressed |= self.shared.advance_reductions();
        // The announcement must be the last message, and background messages would be sent after it.
        let is_done = !self.shared.is_reducing() && !self.transport.pending(false);
        if commands.leave && !self.has_left && is_done {
            self.send_to_all(Kind::Leave, &Message::empty());
            self.has_left = true;
        }
        self.check_ranks();
        progressed
    }

    /// Sends a heartbeat and checks the other ranks, where due.
    fn check_ranks(&mut self) {
        let now = Instant::now();
        let since_last = now - self.last_check;
        self.last_check = now;
        if since_last > self.shared.deadline() / 2 {
            // This process itself was suspended: first receive what others have sent meanwhile.
            self.shared.inbox.reset_silence();
            self.next_process_check = now + PROCESS_CHECK_INTERVAL;
        }
        if now >= self.next_process_check {
            self.next_process_check = now + PROCESS_CHECK_INTERVAL;
            if let Some((rank, last)) = self.shared.ended_process() {
                self.shared.fail(Error::Gone { rank, host: self.shared.host(rank), last });
            }
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.shared.options.heartbeat_interval(self.shared.deadline());
            self.heartbeat();
        }
    }

    /// Sends a heartbeat and checks those of the others.
    fn heartbeat(&self) {
        // A rank that has left need not send any; but its announcement may be queued behind long messages.
        if !self.has_left || self.transport.pending(false) {
            let position = self.shared.position().encode();
            self.send_to_all(Kind::Heartbeat, &Message::of(position.as_bytes()));
        }
        if let Some(silent) = self.shared.inbox.silent(self.shared.rank, self.shared.deadline()) {
            self.shared.fail(Error::Lost {
                rank: silent.rank,
                host: self.shared.host(silent.rank),
                silent_seconds: silent.seconds,
                last: silent.last,
                waiting_for: None,
            });
        }
    }

    fn send_to_all(&self, kind: Kind, message: &Message) {
        self.shared.others().for_each(|to| self.shared.send(to, Key::control(kind), message.clone()));
    }

    /// Fails the rank. Returns false: an error is no reason to poll again at once.
    fn fail_transport(&self, TransportError { rank, cause }: TransportError) -> bool {
        self.shared.fail(Error::Transport { rank, host: self.shared.host(rank), cause });
        false
    }

    /// Returns whether all messages that another rank may still read were sent; after a failure, only notices.
    fn is_flushed(&self, end: End) -> bool {
        (self.has_left || !end.agreed) && !self.transport.pending(!end.agreed)
    }

    fn finish(self) {
        if self.shared.commands().end.is_some_and(|end| end.agreed)
            && let Err(cause) = self.transport.finish()
        {
            self.shared.fail_because(&cause);
        }
    }
}
