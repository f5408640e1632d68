//! Checks of sub-communicators, for any number of ranks.

use halograph_comm::{Comm, Message, Result, handshake};
use halograph_kernels::buffer::Buffer;

use super::{CONTROL, FEATURES, WEIGHTS, bits, expected_of, number};

// Ids of the groups below. Groups of neighbours use `RING` plus a rank.
const PARITY: u16 = 1;
const SINGLE: u16 = 2;
const REVERSED: u16 = 3;
const NESTED: u16 = u16::MAX;
const RING: u16 = 100;

/// Runs all checks of subgroups, on any number of ranks.
pub fn all(comm: &Comm) -> Result<()> {
    disjoint(comm)?;
    single(comm)?;
    reversed(comm)?;
    overlapping(comm)
}

/// Checks disjoint groups with equal ids (even and odd ranks), in use at the same time, and groups nested in them.
fn disjoint(comm: &Comm) -> Result<()> {
    let members: Vec<usize> = (comm.rank() % 2..comm.size()).step_by(2).collect();
    let group = comm.subgroup(&members, PARITY)?;
    assert_members(comm, &group, &members);
    super::all(&group)?;
    handshake(&group, &[("parity", (comm.rank() % 2).to_string())])?;
    let half = members.len() / 2;
    let (first, second): (Vec<usize>, Vec<usize>) = (0..members.len()).partition(|&rank| rank < half);
    let nested = if group.rank() < half { first } else { second };
    let members: Vec<usize> = nested.iter().map(|&rank| members[rank]).collect();
    let nested = group.subgroup(&nested, NESTED)?;
    assert_members(comm, &nested, &members);
    super::all(&nested)?;
    // Closing a subgroup only drops it.
    nested.close()?;
    group.barrier(CONTROL)
}

fn assert_members(world: &Comm, group: &Comm, members: &[usize]) {
    assert_eq!((group.members(), group.size()), (members, members.len()));
    assert_eq!(members[group.rank()], world.rank());
    let hosts: Vec<&String> = members.iter().map(|&rank| &world.hosts()[rank]).collect();
    assert!(group.hosts().iter().eq(hosts));
}

/// Checks that a group of one rank sends nothing.
fn single(comm: &Comm) -> Result<()> {
    let group = comm.subgroup(&[comm.rank()], SINGLE)?;
    assert_eq!((group.rank(), group.size()), (0, 1));
    let before = comm.sent();
    super::all(&group)?;
    assert_eq!(comm.sent().since(&before).payload_messages(), 0);
    Ok(())
}

/// Checks that the order of ranks, and so of additions, is that of the list of members.
fn reversed(comm: &Comm) -> Result<()> {
    let members: Vec<usize> = (0..comm.size()).rev().collect();
    let group = comm.subgroup(&members, REVERSED)?;
    assert_members(comm, &group, &members);
    super::all(&group)?;
    let mut numbers: Vec<f32> = (0..100).map(|i| number(comm.rank(), i)).collect();
    group.all_reduce(WEIGHTS, &mut numbers)?;
    assert_eq!(bits(&numbers), bits(&expected_of::<f32>(100, &members)));
    Ok(())
}

/// Checks overlapping groups: every rank is in a group with the next rank, in one with the previous rank and in the
/// world, and all three use the same tag at the same time. On two ranks both groups have the same members.
fn overlapping(comm: &Comm) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    if size == 1 {
        return Ok(());
    }
    let (next, previous) = super::neighbours(comm);
    let with_next = comm.subgroup(&[me, next], RING + me as u16)?;
    let with_previous = comm.subgroup(&[previous, me], RING + previous as u16)?;
    let before = comm.sent();
    let world: Vec<usize> = (0..size).collect();
    let begin = |comm: &Comm, len: usize| {
        let numbers: Vec<f64> = (0..len).map(|i| number(me, i)).collect();
        comm.start_all_reduce(WEIGHTS, Buffer::from(&numbers[..]))
    };
    let sums = [
        (begin(&with_previous, 33 + previous), 33 + previous, &[previous, me][..]),
        (begin(comm, 32), 32, &world[..]),
        (begin(&with_next, 33 + me), 33 + me, &[me, next][..]),
    ];
    with_next.send(1, FEATURES, Message::of(&[me as u32, 1]))?;
    with_previous.send(0, FEATURES, Message::of(&[me as u32, 2]))?;
    comm.send(next, FEATURES, Message::of(&[me as u32, 3]))?;
    let received = [
        with_next.receive(1, FEATURES).wait()?,
        comm.receive(previous, FEATURES).wait()?,
        with_previous.receive(0, FEATURES).wait()?,
    ];
    for (message, expected) in received.iter().zip([[next, 2], [previous, 3], [previous, 1]]) {
        assert_eq!(message.expect::<u32>(2)?, expected.map(|x| x as u32));
    }
    for (sum, len, members) in sums.into_iter().rev() {
        assert_eq!(bits(&sum.wait()?), bits(&expected_of::<f64>(len, members)));
    }
    comm.barrier(CONTROL)?;
    let sent = comm.sent().since(&before);
    assert_eq!(sent, with_next.sent().since(&before));
    assert_eq!(sent.bytes(FEATURES.purpose), 3 * 8);
    // In a pair, a rank sends one chunk as addend and the other as sum.
    let pairs = (33 + previous + 33 + me) * size_of::<f64>();
    let world = super::reduced_bytes::<f64>(32, me, size);
    assert_eq!(sent.bytes(WEIGHTS.purpose), (pairs + world) as u64);
    Ok(())
}
