//! Compares the ranks at start and synchronises their clocks.

use std::time::Instant;

use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::notice::text;
use crate::tag::{Key, Kind};

/// Clock requests of each rank; the one with the shortest round trip is used.
const PINGS: usize = 5;
/// Separator of names and values, which must not contain it.
const SEPARATOR: char = '\0';

/// Compares named facts (versions, digests, counts) across ranks. Every rank returns [`Error::Mismatch`] if any fact
/// differs. Blocks; collective.
///
/// On the world communicator it also measures the offset to the clock of rank 0, which times of trace spans refer to.
pub fn handshake(comm: &Comm, facts: &[(&str, String)]) -> Result<()> {
    let list: String =
        facts.iter().map(|(name, value)| format!("{name}{SEPARATOR}{value}{SEPARATOR}")).collect();
    let lists = comm.gather(comm.group().control(Kind::Facts), Message::of(list.as_bytes()))?;
    let lists: Vec<String> = lists.iter().map(text).collect();
    let mut others = lists.iter().enumerate();
    let difference =
        others.find_map(|(rank, list)| difference(&lists[comm.rank()], list, comm.members()[rank]));
    // No rank may fail before all ranks have all lists, so that every rank can name the difference.
    let agreed = comm.gather(comm.group().control(Kind::Agreed), Message::empty());
    difference.map_or(agreed, Err)?;
    if comm.shared().one_clock || !comm.group().is_world() { Ok(()) } else { set_clock(comm) }
}

/// Returns names and values of the facts in `list`.
fn fields(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = list.split_terminator(SEPARATOR);
    std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
}

/// Returns an error for the first fact that differs between the list of this rank and that of `rank`.
fn difference(here: &str, there: &str, rank: usize) -> Option<Error> {
    let find = |list: &str, name: &str| {
        let found = fields(list).find(|(n, _)| *n == name);
        found.map_or("(none)".to_string(), |(_, value)| value.to_string())
    };
    fields(here).chain(fields(there)).map(|(name, _)| name).find_map(|name| {
        let (here, there) = (find(here, name), find(there, name));
        (here != there).then(|| Error::Mismatch { what: name.to_string(), here, there, rank })
    })
}

/// Estimates the offset of rank 0's clock, which is assumed to be read in the middle of the shortest round trip.
fn set_clock(comm: &Comm) -> Result<()> {
    let (ping, pong) = (Key::control(Kind::Ping), Key::control(Kind::Pong));
    let recorder = &comm.shared().recorder;
    if comm.rank() == 0 {
        for from in (1..comm.size()).flat_map(|rank| [rank; PINGS]) {
            comm.receive_as(from, ping).wait()?;
            comm.send_as(from, pong, Message::of(&[recorder.clock(Instant::now())]))?;
        }
        return Ok(());
    }
    let mut shortest = i64::MAX;
    for _ in 0..PINGS {
        let sent = recorder.clock(Instant::now());
        comm.send_as(0, ping, Message::empty())?;
        let root_clock = comm.receive_as(0, pong).wait()?.expect::<i64>(1)?[0];
        let received = recorder.clock(Instant::now());
        if received - sent < shortest {
            shortest = received - sent;
            recorder.set_clock_offset(root_clock - (sent + received) / 2);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let (a, b) = ("version\x001.0\0seed\x007\0", "version\x001.0\0seed\x008\0");
        assert_eq!(difference(a, a, 1), None);
        let (what, here, there) = ("seed".to_string(), "7".to_string(), "8".to_string());
        assert_eq!(difference(a, b, 3), Some(Error::Mismatch { what, here, there, rank: 3 }));
        let more = difference("", b, 1).unwrap().to_string();
        assert!(more.contains("version") && more.contains("(none)") && more.contains("1.0"), "{more}");
    }
}
