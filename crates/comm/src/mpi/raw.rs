//! The few calls of MPI that are made, each wrapped so that nothing outside can go wrong.
//!
//! Only the thread that called [`init`] may call the rest: MPI was asked for no more.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use ::mpi::ffi;
use halograph_kernels::buffer::Buffer;

use crate::tag::Part;
use crate::transport::{Outgoing, Priority};

type Result<T, E = String> = std::result::Result<T, E>;

/// Queues of a sender (messages, notices, what is behind all else): what is in one keeps its order.
pub const QUEUES: usize = 3;

/// What MPI's own tag says. Messages of one sender keep their order within their queue; notices overtake the rest, and the rest what is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A message, or its last piece.
    Message,
    /// A piece that others follow.
    Piece,
    /// A sign of life or of failure: never behind anything long.
    Notice,
    /// As the first two, of messages that all others overtake.
    Behind,
    BehindPiece,
}

impl Lane {
    /// That of a message, or of its last piece.
    pub fn of(outgoing: &Outgoing) -> Self {
        match (outgoing.key.part, outgoing.priority) {
            (Part::Beat | Part::Notice, _) => Lane::Notice,
            (_, Priority::Urgent) => Lane::Message,
            (_, Priority::Background) => Lane::Behind,
        }
    }

    /// That of a piece which others of its message follow.
    fn of_piece(self) -> Self {
        if self == Lane::Behind { Lane::BehindPiece } else { Lane::Piece }
    }

    pub fn is_piece(self) -> bool {
        matches!(self, Lane::Piece | Lane::BehindPiece)
    }

    fn from_tag(tag: c_int) -> Option<Self> {
        let all = [Lane::Message, Lane::Piece, Lane::Notice, Lane::Behind, Lane::BehindPiece];
        all.into_iter().find(|&lane| lane as c_int == tag)
    }

    /// Which of a sender's [`QUEUES`] it belongs to.
    pub fn queue(self) -> usize {
        match self {
            Lane::Message | Lane::Piece => 0,
            Lane::Notice => 1,
            Lane::Behind | Lane::BehindPiece => 2,
        }
    }
}

/// What MPI says about a call.
fn check(code: c_int) -> Result<()> {
    // MPI_SUCCESS is 0 in every MPI.
    if code == 0 {
        return Ok(());
    }
    // No MPI's longest text is longer.
    let (mut text, mut length) = ([0u8; 4096], 0);
    // SAFETY: the text has room for the longest there is, and MPI writes within it.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    Err(format!("MPI says: {} (code {code})", String::from_utf8_lossy(&text[..length])))
}

/// Starts MPI: this rank and how many there are.
pub fn init() -> Result<(usize, usize)> {
    let (mut granted, mut rank, mut size) = (0, 0, 0);
    // SAFETY: the caller joins once per process; all pointers are null where that is allowed, or to live numbers; the
    // constants are set before `main`.
    let wanted = unsafe {
        let wanted = ffi::RSMPI_THREAD_FUNNELED;
        check(ffi::MPI_Init_thread(null_mut(), null_mut(), wanted, &mut granted))?;
        check(ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN))?;
        check(ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank))?;
        check(ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size))?;
        wanted
    };
    if granted < wanted {
        return Err("this MPI library does not allow programs with threads".to_string());
    }
    Ok((rank as usize, size as usize))
}

/// Ends MPI, after which it cannot be started again. Waits for all ranks.
pub fn finalize() -> Result<()> {
    // SAFETY: MPI was started by `init` on this thread, and nothing is under way.
    check(unsafe { ffi::MPI_Finalize() })
}

/// Whether `request` is done; if so it is gone.
fn test(request: &mut ffi::MPI_Request) -> Result<bool> {
    let mut done = 0;
    // SAFETY: the request was made by MPI and is not done yet, or is the one MPI leaves in place of such.
    check(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
    Ok(done != 0)
}

/// A message that MPI reads until it has left, piece by piece.
pub struct Departing {
    /// Always there, until dropped.
    outgoing: Option<Outgoing>,
    /// Words that MPI was given.
    posted: usize,
    /// Pieces that are with MPI, and their words.
    requests: VecDeque<(ffi::MPI_Request, usize)>,
}

impl Departing {
    /// A message that MPI knows nothing of yet.
    pub fn new(mut outgoing: Outgoing) -> Self {
        outgoing.message.seal(outgoing.key);
        Departing { outgoing: Some(outgoing), posted: 0, requests: VecDeque::new() }
    }

    pub fn outgoing(&self) -> &Outgoing {
        self.outgoing.as_ref().expect("it is taken only when dropped")
    }

    pub fn is_posted(&self) -> bool {
        self.posted >= self.outgoing().message.sealed().len()
    }

    /// Words that are with MPI.
    pub fn travelling(&self) -> usize {
        self.requests.iter().map(|(_, words)| words).sum()
    }

    /// Gives MPI the next piece, of at most `piece` words: how many these are. After an error nothing more is posted.
    pub fn post(&mut self, piece: usize) -> Result<usize> {
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

    /// Whether all of it has left.
    pub fn is_done(&mut self) -> Result<bool> {
        while let Some((request, _)) = self.requests.front_mut() {
            if !test(request)? {
                return Ok(false);
            }
            self.requests.pop_front();
        }
        Ok(self.is_posted())
    }
}

impl Drop for Departing {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            // MPI may still read it: it must stay where it is for ever.
            std::mem::forget(self.outgoing.take());
        }
    }
}

/// Posts a send. The words must stay where they are, unchanged, until the request is done. What is behind all else is done
/// only when its receiver has seen it: what MPI merely passed on may still stand in long queues, where nothing overtakes it.
fn send(words: &[u64], to: usize, lane: Lane) -> Result<ffi::MPI_Request> {
    let count = c_int::try_from(words.len()).map_err(|_| "a piece is too long".to_string())?;
    // SAFETY: a copy of a constant.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    let is_behind = lane.queue() == Lane::Behind.queue();
    let post = if is_behind { ffi::MPI_Issend } else { ffi::MPI_Isend };
    // SAFETY: the pointer is to as many words as are said, and `Departing` keeps them.
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

/// A message that MPI has announced to nobody but us.
pub struct Probed {
    message: ffi::MPI_Message,
    words: usize,
    pub from: usize,
    pub lane: Lane,
}

/// The next message that is announced, of whomever.
pub fn probe() -> Result<Option<Probed>> {
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
    // SAFETY: the status was filled in for the message that was found.
    check(unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT64_T, &mut count) })?;
    let words = usize::try_from(count).map_err(|_| "a message is not of whole words".to_string())?;
    let lane = Lane::from_tag(status.MPI_TAG).ok_or("a message has a tag that is not ours")?;
    Ok(Some(Probed { message, words, from: status.MPI_SOURCE as usize, lane }))
}

impl Probed {
    /// Posts its receive.
    pub fn receive(mut self) -> Result<Arriving> {
        let mut words = Buffer::<u64>::unspecified(self.words);
        // SAFETY: a copy of a constant.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: there is room for as many words as were announced, and `Arriving` keeps it.
        check(unsafe {
            let room = words.as_mut_ptr().cast();
            let count = self.words as c_int;
            ffi::MPI_Imrecv(room, count, ffi::RSMPI_UINT64_T, &mut self.message, &mut request)
        })?;
        Ok(Arriving { words, request: Some(request), lane: self.lane })
    }
}

/// Words that MPI writes until all are there.
pub struct Arriving {
    words: Buffer<u64>,
    /// None when it is done.
    request: Option<ffi::MPI_Request>,
    pub lane: Lane,
}

impl Arriving {
    pub fn is_done(&mut self) -> Result<bool> {
        if let Some(request) = &mut self.request {
            if !test(request)? {
                return Ok(false);
            }
            self.request = None;
        }
        Ok(true)
    }

    /// What was received.
    pub fn into_words(mut self) -> Buffer<u64> {
        assert!(self.request.is_none(), "whoever asks has seen that it is done");
        std::mem::take(&mut self.words)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if self.request.is_some() {
            // MPI may still write there: it must stay for ever.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}
