//! Safe wrappers of the MPI calls in use.
//!
//! Only the thread that called [`init`] may call the other functions: MPI is initialised with thread level *funneled*.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use ::mpi::ffi;
use halograph_kernels::buffer::Buffer;

use crate::tag::Kind;
use crate::transport::{Outgoing, Priority};

type Result<T, E = String> = std::result::Result<T, E>;

/// Number of queues per pair of ranks: urgent messages, notices, background messages. Each is in order.
pub(super) const QUEUES: usize = 3;

/// The MPI tag of a message. Notices overtake urgent messages, and these overtake background messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// An urgent message, or its last piece.
    Urgent,
    /// A piece of an urgent message, except the last.
    UrgentPiece,
    /// A heartbeat or failure notice.
    Notice,
    /// A background message, or its last piece.
    Background,
    /// A piece of a background message, except the last.
    BackgroundPiece,
}

impl Lane {
    /// Returns the lane of a message, or of its last piece.
    pub(super) fn of(outgoing: &Outgoing) -> Self {
        match (outgoing.key.kind, outgoing.priority) {
            (Kind::Heartbeat | Kind::Notice, _) => Lane::Notice,
            (_, Priority::Urgent) => Lane::Urgent,
            (_, Priority::Background) => Lane::Background,
        }
    }

    /// Returns the lane of the other pieces of the message.
    fn of_piece(self) -> Self {
        if self == Lane::Background { Lane::BackgroundPiece } else { Lane::UrgentPiece }
    }

    /// Returns whether this is the lane of a piece that is not the last of its message.
    pub(super) fn is_piece(self) -> bool {
        matches!(self, Lane::UrgentPiece | Lane::BackgroundPiece)
    }

    /// Decodes an MPI tag; `None` if it is not that of a lane.
    fn from_tag(tag: c_int) -> Option<Self> {
        let all = [Lane::Urgent, Lane::UrgentPiece, Lane::Notice, Lane::Background, Lane::BackgroundPiece];
        all.into_iter().find(|&lane| lane as c_int == tag)
    }

    /// Returns the index of its queue, below [`QUEUES`].
    pub(super) fn queue(self) -> usize {
        match self {
            Lane::Urgent | Lane::UrgentPiece => 0,
            Lane::Notice => 1,
            Lane::Background | Lane::BackgroundPiece => 2,
        }
    }
}

/// Converts the return code of an MPI call to a result.
fn check(code: c_int) -> Result<()> {
    // MPI_SUCCESS is 0 in every MPI library.
    if code == 0 {
        return Ok(());
    }
    // Longer than MPI_MAX_ERROR_STRING of any MPI library.
    let (mut text, mut length) = ([0u8; 4096], 0);
    // SAFETY: the buffer is longer than the longest text, and MPI writes within it.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    Err(format!("MPI error: {} (code {code})", String::from_utf8_lossy(&text[..length])))
}

/// Initialises MPI. Returns the rank of this process and the number of ranks.
pub(super) fn init() -> Result<(usize, usize)> {
    let (mut granted, mut rank, mut size) = (0, 0, 0);
    // SAFETY: called once per process; pointers are null where allowed, or to live integers; the constants are set
    // before `main`.
    let wanted = unsafe {
        let wanted = ffi::RSMPI_THREAD_FUNNELED;
        check(ffi::MPI_Init_thread(null_mut(), null_mut(), wanted, &mut granted))?;
        check(ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN))?;
        check(ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank))?;
        check(ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size))?;
        wanted
    };
    if granted < wanted {
        return Err("the MPI library does not support thread level MPI_THREAD_FUNNELED".to_string());
    }
    Ok((rank as usize, size as usize))
}

/// Finalises MPI, which cannot be initialised again. Blocks until all ranks do.
pub(super) fn finalize() -> Result<()> {
    // SAFETY: MPI was initialised by `init` on this thread, and no request is pending.
    check(unsafe { ffi::MPI_Finalize() })
}

/// Returns whether `request` is complete. If so, MPI has freed it. Does not block.
fn test(request: &mut ffi::MPI_Request) -> Result<bool> {
    let mut done = 0;
    // SAFETY: the request was created by MPI and is pending, or is the null request that MPI replaces it by.
    check(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
    Ok(done != 0)
}

/// A message being sent, piece by piece. MPI reads its memory until all requests are complete.
pub(super) struct PendingSend {
    /// `None` only while dropped.
    outgoing: Option<Outgoing>,
    /// Words that were posted to MPI.
    posted: usize,
    /// Incomplete requests of posted pieces, and the words of each.
    requests: VecDeque<(ffi::MPI_Request, usize)>,
}

impl PendingSend {
    /// Returns a message to be posted.
    pub(super) fn new(mut outgoing: Outgoing) -> Self {
        outgoing.message.seal(outgoing.key);
        PendingSend { outgoing: Some(outgoing), posted: 0, requests: VecDeque::new() }
    }

    /// Returns the message, its key and its receiver.
    pub(super) fn outgoing(&self) -> &Outgoing {
        self.outgoing.as_ref().expect("taken only when dropped")
    }

    /// Returns whether all pieces were posted.
    pub(super) fn is_posted(&self) -> bool {
        self.posted >= self.outgoing().message.sealed().len()
    }

    /// Returns the number of words in posted pieces that are not complete.
    pub(super) fn in_flight(&self) -> usize {
        self.requests.iter().map(|(_, words)| words).sum()
    }

    /// Posts the next piece, of at most `piece` words, and returns its length. After an error nothing more is posted.
    pub(super) fn post(&mut self, piece: usize) -> Result<usize> {
        let lane = Lane::of(self.outgoing());
        let Outgoing { to, message, .. } = self.outgoing();
        let rest = &message.sealed()[self.posted..];
        let lane = if rest.len() > piece { lane.of_piece() } else { lane };
        let words = rest.len().min(piece);
        let sent = send(&rest[..words], *to, lane);
        self.posted = if sent.is_ok() { self.posted + words } else { usize::MAX };
        self.requests.push_back((sent?, words));
        Ok(words)
    }

    /// Tests the requests and returns whether the whole message was sent. Does not block.
    pub(super) fn is_done(&mut self) -> Result<bool> {
        while let Some((request, _)) = self.requests.front_mut() {
            if !test(request)? {
                return Ok(false);
            }
            self.requests.pop_front();
        }
        Ok(self.is_posted())
    }
}

impl Drop for PendingSend {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            // MPI may still read the memory: it must never be freed.
            std::mem::forget(self.outgoing.take());
        }
    }
}

/// Posts a send. The words must be neither moved nor changed until the request is complete.
///
/// Background pieces use the synchronous mode (`MPI_Issend`), which completes when the receiver has matched the
/// message. Otherwise MPI would buffer many pieces, which urgent messages cannot overtake.
fn send(words: &[u64], to: usize, lane: Lane) -> Result<ffi::MPI_Request> {
    let count = c_int::try_from(words.len()).map_err(|_| "a piece is too long".to_string())?;
    // SAFETY: a copy of a constant.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    let is_background = lane.queue() == Lane::Background.queue();
    let post = if is_background { ffi::MPI_Issend } else { ffi::MPI_Isend };
    // SAFETY: the pointer is to `count` words, and `PendingSend` keeps them.
    check(unsafe {
        post(
            words.as_ptr().cast(),
            count,
            ffi::RSMPI_UINT64_T,
            to as c_int,
            lane as c_int,
            ffi::RSMPI_COMM_WORLD,
            &mut request,
        )
    })?;
    Ok(request)
}

/// A message that was matched by a probe.
pub(super) struct Probed {
    message: ffi::MPI_Message,
    words: usize,
    pub from: usize,
    pub lane: Lane,
}

/// Returns the next message from any sender, if one has arrived. Does not block.
pub(super) fn probe() -> Result<Option<Probed>> {
    let (mut flag, mut count) = (0, 0);
    // SAFETY: a copy of a constant, and a plain struct of numbers.
    let (mut message, mut status) =
        unsafe { (ffi::RSMPI_MESSAGE_NULL, std::mem::zeroed::<ffi::MPI_Status>()) };
    // SAFETY: all pointers are to live values.
    check(unsafe {
        let (any, tag, world) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_COMM_WORLD);
        ffi::MPI_Improbe(any, tag, world, &mut flag, &mut message, &mut status)
    })?;
    if flag == 0 {
        return Ok(None);
    }
    // SAFETY: the status was set by the successful probe.
    check(unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT64_T, &mut count) })?;
    let words = usize::try_from(count).map_err(|_| "a received message has incomplete words".to_string())?;
    let lane = Lane::from_tag(status.MPI_TAG).ok_or("a received message has an unknown MPI tag")?;
    Ok(Some(Probed { message, words, from: status.MPI_SOURCE as usize, lane }))
}

impl Probed {
    /// Allocates a buffer and posts the receive.
    pub(super) fn receive(mut self) -> Result<PendingReceive> {
        let mut words = Buffer::<u64>::unspecified(self.words);
        // SAFETY: a copy of a constant.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the buffer has as many words as the message, and `PendingReceive` keeps it.
        check(unsafe {
            let buffer = words.as_mut_ptr().cast();
            let count = self.words as c_int;
            ffi::MPI_Imrecv(buffer, count, ffi::RSMPI_UINT64_T, &mut self.message, &mut request)
        })?;
        Ok(PendingReceive { words, request: Some(request), lane: self.lane })
    }
}

/// A message or piece being received. MPI writes to its memory until the request is complete.
pub(super) struct PendingReceive {
    words: Buffer<u64>,
    /// `None` when complete.
    request: Option<ffi::MPI_Request>,
    pub lane: Lane,
}

impl PendingReceive {
    /// Tests the request and returns whether it is complete. Does not block.
    pub(super) fn is_done(&mut self) -> Result<bool> {
        if let Some(request) = &mut self.request {
            if !test(request)? {
                return Ok(false);
            }
            self.request = None;
        }
        Ok(true)
    }

    /// Returns the received words.
    ///
    /// # Panics
    /// If the request is not complete.
    pub(super) fn into_words(mut self) -> Buffer<u64> {
        assert!(self.request.is_none(), "the request is complete");
        std::mem::take(&mut self.words)
    }
}

impl Drop for PendingReceive {
    fn drop(&mut self) {
        if self.request.is_some() {
            // MPI may still write to the memory: it must never be freed.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}
