//! The progress thread of a rank.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::message::Message;
use crate::shared::{Commands, End, Shared};
use crate::tag::{Key, Kind};
use crate::transport::{Transport, TransportError};

/// Interval between two checks of other processes. Short, because a launcher that notices the end of a process soon
/// ends the job.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Sleep of a stalled thread.
const STALL_SLEEP: Duration = Duration::from_secs(1);

/// Moves messages, advances reductions, sends heartbeats and detects lost ranks.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    /// Time of the next heartbeat.
    next_heartbeat: Instant,
    /// Time of the next check of the processes of other ranks.
    next_process_check: Instant,
    /// Time of the last check of other ranks.
    last_check: Instant,
    /// Whether this rank has announced that it leaves.
    has_left: bool,
}

impl Progress {
    /// Returns the state of a progress thread that has not started.
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

    /// Runs until [`Commands::end`] is set. A panic of this thread fails the rank, so that its waits end.
    pub(crate) fn run(mut self) {
        // A pool of this thread only: allocating large messages must not wait for compute threads.
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
                let timeout =
                    self.transport.max_sleep().min(until_heartbeat).min(self.shared.inbox.until_due());
                self.shared.inbox.wakeup.sleep(if commands.stall { STALL_SLEEP } else { timeout });
            }
        }
    }

    /// Moves messages, advances reductions and checks ranks. Does not block. Returns whether anything progressed.
    fn poll(&mut self, commands: Commands) -> bool {
        let mut progressed = match self.transport.poll(&self.shared) {
            Ok(progressed) => progressed,
            Err(error) => self.fail_transport(error),
        };
        progressed |= self.shared.inbox.deliver_due();
        progressed |= self.shared.advance_reductions();
        // The announcement must be the last message: wait until background messages were sent.
        let is_done = !self.shared.is_reducing() && !self.transport.pending(false);
        if commands.leave && !self.has_left && is_done {
            self.send_to_all(Kind::Leave, &Message::empty());
            self.has_left = true;
        }
        self.check_ranks();
        progressed
    }

    /// Checks the processes of other ranks and sends a heartbeat, if it is time to.
    fn check_ranks(&mut self) {
        let now = Instant::now();
        let since_last = now - self.last_check;
        self.last_check = now;
        if since_last > self.shared.deadline() / 2 {
            // This process itself was suspended: messages of the others must be received first.
            self.shared.inbox.reset_silence();
            self.next_process_check = now + PROCESS_CHECK_INTERVAL;
        }
        if now >= self.next_process_check {
            self.next_process_check = now + PROCESS_CHECK_INTERVAL;
            if let Some((rank, last)) = self.shared.ended_process() {
                self.shared.fail(Error::Exited { rank, host: self.shared.host(rank), last });
            }
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + self.shared.options.heartbeat_interval(self.shared.deadline());
            self.heartbeat();
        }
    }

    /// Sends a heartbeat and checks for silent ranks.
    fn heartbeat(&self) {
        // A rank that has left sends no heartbeats, unless its announcement is still queued behind long messages.
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

    /// Sends an internal message to all other ranks.
    fn send_to_all(&self, kind: Kind, message: &Message) {
        self.shared.others().for_each(|to| self.shared.send(to, Key::control(kind), message.clone()));
    }

    /// Fails the rank. Returns false, i.e. that nothing progressed.
    fn fail_transport(&self, TransportError { rank, cause }: TransportError) -> bool {
        self.shared.fail(Error::Transport { rank, host: self.shared.host(rank), cause });
        false
    }

    /// Returns whether all messages were sent that must be sent before the end; after a failure, only notices.
    fn is_flushed(&self, end: End) -> bool {
        (self.has_left || !end.agreed) && !self.transport.pending(!end.agreed)
    }

    /// Shuts the transport down if all ranks have agreed to leave.
    fn finish(self) {
        if self.shared.commands().end.is_some_and(|end| end.agreed)
            && let Err(cause) = self.transport.finish()
        {
            self.shared.fail_because(&cause);
        }
    }
}
