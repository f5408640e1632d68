//! The thread that keeps a rank in touch with the others while it computes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::message::Message;
use crate::shared::{End, Orders, Shared};
use crate::tag::{Key, Part};
use crate::transport::{Transport, Trouble};

/// Time between two looks at the processes of others: a launcher that misses one soon ends all.
const WATCH: Duration = Duration::from_millis(50);

/// Moves messages, advances sums, gives signs of life and looks for those of others.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    /// When the next sign of life is due.
    beat: Instant,
    /// When this thread last looked around.
    looked: Instant,
    /// When the processes of others are looked at next.
    watch: Instant,
    /// Whether the others know that this rank leaves.
    left: bool,
}

impl Progress {
    pub fn new(shared: Arc<Shared>, transport: Box<dyn Transport>) -> Self {
        let now = Instant::now();
        Progress { shared, transport, beat: now, looked: now, watch: now, left: false }
    }

    /// Runs until it is told to end. Whatever happens, the rank's waits end.
    pub fn run(mut self) {
        // Makes this thread a pool of its own: making room for large messages must not wait for threads that compute.
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        let shared = self.shared.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.turns();
            self.finish();
        }));
        if ended.is_err() {
            shared.fail_because("its progress thread panicked");
        }
        drop(alone);
    }

    fn turns(&mut self) {
        loop {
            let orders = self.shared.orders();
            let happened = !orders.stall && self.turn(orders);
            if orders.end.is_some_and(|end| Instant::now() >= end.by || self.is_flushed(end)) {
                return;
            }
            if !happened {
                let now = Instant::now();
                let most = self.transport.nap().min(self.beat.saturating_duration_since(now));
                self.shared.inbox.bell.sleep(if orders.stall { Duration::from_secs(1) } else { most });
            }
        }
    }

    /// Does what can be done now. Whether that was anything.
    fn turn(&mut self, orders: Orders) -> bool {
        let mut happened = match self.transport.poll(&self.shared) {
            Ok(happened) => happened,
            Err(trouble) => self.give_up(trouble),
        };
        happened |= self.shared.reduce();
        // Nothing may come after word that nothing will: what is sent behind all else would.
        let is_done = !self.shared.is_reducing() && !self.transport.pending(false);
        if orders.leave && !self.left && is_done {
            self.tell_all(Part::Leave, &Message::empty());
            self.left = true;
        }
        self.look_around();
        happened
    }

    /// Now and then: gives a sign of life and looks for those of others.
    fn look_around(&mut self) {
        let now = Instant::now();
        let away = now - self.looked;
        self.looked = now;
        if away > self.shared.deadline() / 2 {
            // It was this process that slept: what others have sent meanwhile comes first.
            self.shared.inbox.forgive();
            self.watch = now + WATCH;
        }
        if now >= self.watch {
            self.watch = now + WATCH;
            if let Some((rank, last)) = self.shared.gone() {
                self.shared.fail(Error::Gone { rank, host: self.shared.host(rank), last });
            }
        }
        if now < self.beat {
            return;
        }
        self.beat = now + self.shared.options.beat(self.shared.deadline());
        // Who has left needs no signs of life; but word of that may be behind long messages.
        if !self.left || self.transport.pending(false) {
            self.tell_all(Part::Beat, &self.shared.position().to_message());
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

    fn tell_all(&self, part: Part, message: &Message) {
        self.shared.others().for_each(|to| self.shared.send(to, Key::control(part), message.clone()));
    }

    /// Stops the rank over a transport that does not carry. It is nothing to poll again for at once.
    fn give_up(&self, Trouble { rank, cause }: Trouble) -> bool {
        self.shared.fail(Error::Transport { rank, host: self.shared.host(rank), cause });
        false
    }

    /// Whether all has left that anybody will still read. After a failure that is its notice.
    fn is_flushed(&self, end: End) -> bool {
        (self.left || !end.agreed) && !self.transport.pending(!end.agreed)
    }

    fn finish(self) {
        if self.shared.orders().end.is_some_and(|end| end.agreed)
            && let Err(cause) = self.transport.finish()
        {
            self.shared.fail_because(&cause);
        }
    }
}
