//! Checks of a transport, run by all ranks of a communicator together.

use std::time::{Duration, Instant};

use halograph_comm::{Comm, Message, Priority, Purpose, Result, Tag};
use halograph_kernels::Real;
use halograph_kernels::buffer::Buffer;

pub mod groups;

const FEATURES: Tag = Tag::new(Purpose::Features);
const WEIGHTS: Tag = Tag::new(Purpose::Weights);
const CONTROL: Tag = Tag::new(Purpose::Control);
/// Artificial delay of messages.
const DELAY: Duration = Duration::from_millis(20);

/// Runs all checks, on any number of ranks.
pub fn all(comm: &Comm) -> Result<()> {
    exchange(comm, 11)?;
    exchange(comm, 1000)?;
    // Messages of another priority need a tag of their own.
    exchange_with(comm, FEATURES.layer(12), Priority::Background, 1000)?;
    tags_in_any_order(comm)?;
    equal_tags_in_order(comm)?;
    background_messages(comm)?;
    gathers_and_broadcasts(comm)?;
    for len in [0, 1, 2, 3, 7, 64, 1001, 100_003] {
        sum::<f32>(comm, len)?;
        sum::<f64>(comm, len)?;
    }
    several_sums(comm)?;
    flags(comm)
}

/// Returns a number; sums of these numbers depend on the order of additions, by rounding.
fn number<T: Real>(rank: usize, i: usize) -> T {
    T::of(((rank * 31 + i * 17) % 101) as f64 * 0.1 + 1.0 / (rank + i + 1) as f64)
}

/// Checks all-to-all with messages of different lengths, some of them empty.
pub fn exchange(comm: &Comm, max_len: usize) -> Result<()> {
    exchange_with(comm, FEATURES, Priority::Urgent, max_len)
}

/// Checks all-to-all as [`exchange`], with any tag and priority.
fn exchange_with(comm: &Comm, tag: Tag, priority: Priority, max_len: usize) -> Result<()> {
    let len = |from: usize, to: usize| (from * 7 + to * 3) % max_len;
    let numbers = |from: usize, to: usize| -> Vec<u32> {
        (0..len(from, to)).map(|i| (from * 1000 + to * 10 + i) as u32).collect()
    };
    let me = comm.rank();
    let messages = (0..comm.size()).map(|to| Message::of(&numbers(me, to))).collect();
    let before = comm.sent();
    let arrived = comm.all_to_all_with(tag, priority, messages)?;
    let sent = comm.sent().since(&before);
    assert_eq!(arrived.len(), comm.size());
    for (from, message) in arrived.iter().enumerate() {
        assert_eq!(message.as_slice::<u32>()?, numbers(from, me));
    }
    let others = (0..comm.size()).filter(|&to| to != me);
    let bytes: usize = others.map(|to| len(me, to) * 4).sum();
    assert_eq!(sent.bytes(Purpose::Features), bytes as u64);
    assert_eq!(sent.messages(Purpose::Features), comm.size() as u64 - 1);
    Ok(())
}

/// Checks that messages can be received in another order than that of the sends.
pub fn tags_in_any_order(comm: &Comm) -> Result<()> {
    let (next, previous) = neighbours(comm);
    for slot in 0..8 {
        comm.send(next, FEATURES.slot(slot), Message::of(&[slot]))?;
    }
    for slot in (0..8).rev() {
        let message = comm.receive(previous, FEATURES.slot(slot)).wait()?;
        assert_eq!(message.as_slice::<u8>()?, &[slot]);
    }
    Ok(())
}

/// Returns the next and the previous rank.
pub fn neighbours(comm: &Comm) -> (usize, usize) {
    let (me, size) = (comm.rank(), comm.size());
    ((me + 1) % size, (me + size - 1) % size)
}

/// Checks that long and short messages with equal tags are received in order, although short ones are sent faster.
pub fn equal_tags_in_order(comm: &Comm) -> Result<()> {
    let (next, previous) = neighbours(comm);
    let lengths = [200_000, 1, 50_000, 0, 3];
    for (i, &len) in lengths.iter().enumerate() {
        comm.send(next, FEATURES.layer(7), Message::of(&vec![i as f32; len]))?;
    }
    for (i, &len) in lengths.iter().enumerate() {
        let message = comm.receive(previous, FEATURES.layer(7)).wait()?;
        assert!(message.expect::<f32>(len)?.iter().all(|&x| x == i as f32));
    }
    Ok(())
}

/// Checks that long background messages arrive complete and in order, among urgent messages of the same lengths.
pub fn background_messages(comm: &Comm) -> Result<()> {
    let (next, previous) = neighbours(comm);
    let (background, urgent) = (FEATURES.layer(8), FEATURES.layer(9));
    let lengths = [300_000, 2, 70_000, 0, 100_000];
    for (i, &len) in lengths.iter().enumerate() {
        comm.send_with(next, background, Priority::Background, Message::of(&vec![i as f32; len]))?;
        comm.send(next, urgent, Message::of(&vec![-(i as f32); len]))?;
    }
    for (tag, sign) in [(urgent, -1.0), (background, 1.0)] {
        for (i, &len) in lengths.iter().enumerate() {
            let message = comm.receive(previous, tag).wait()?;
            assert!(message.expect::<f32>(len)?.iter().all(|&x| x == sign * i as f32));
        }
    }
    Ok(())
}

/// Checks all-gather, broadcasts from every root, and barrier.
pub fn gathers_and_broadcasts(comm: &Comm) -> Result<()> {
    let me = comm.rank();
    let names = comm.all_gather(CONTROL, Message::of(&vec![me as u64; me]))?;
    for (rank, message) in names.iter().enumerate() {
        assert_eq!(message.as_slice::<u64>()?, vec![rank as u64; rank]);
    }
    for root in 0..comm.size() {
        let given = (root == me).then(|| Message::of(&[root as u16, 7, 9]));
        let message = comm.broadcast(CONTROL.slot(1), root, given)?;
        assert_eq!(message.as_slice::<u16>()?, &[root as u16, 7, 9]);
    }
    comm.barrier(CONTROL.slot(2))
}

/// Checks that all-reduce adds in the order of ranks, gives the same bits on every rank and sends the minimum of bytes.
pub fn sum<T: Real>(comm: &Comm, len: usize) -> Result<()> {
    let (me, size) = (comm.rank(), comm.size());
    let mut numbers: Vec<T> = (0..len).map(|i| number(me, i)).collect();
    let before = comm.sent();
    comm.all_reduce(WEIGHTS, &mut numbers)?;
    assert_eq!(bits(&numbers), bits(&expected::<T>(len, size)));
    // Until all ranks are done, this rank may still send sums to others.
    comm.barrier(CONTROL.slot(3))?;
    let sent = comm.sent().since(&before).bytes(Purpose::Weights);
    let all = comm.all_gather(CONTROL.slot(4), Message::of(&[sent]))?;
    let total = all.iter().map(|m| Ok(m.expect::<u64>(1)?[0])).sum::<Result<u64>>()?;
    assert_eq!(total as usize, 2 * (size - 1) * len * size_of::<T>());
    Ok(())
}

/// Returns the sums over ranks `0..size`.
fn expected<T: Real>(len: usize, size: usize) -> Vec<T> {
    expected_of(len, &(0..size).collect::<Vec<_>>())
}

/// Returns the sums of the numbers of these ranks, added in this order.
fn expected_of<T: Real>(len: usize, ranks: &[usize]) -> Vec<T> {
    let add = |i: usize| ranks[1..].iter().fold(number::<T>(ranks[0], i), |sum, &r| sum + number(r, i));
    (0..len).map(add).collect()
}

/// Returns the bytes that a rank sends in an all-reduce: addends for the others, and its sum to each of them.
fn reduced_bytes<T>(len: usize, rank: usize, size: usize) -> usize {
    let own = len * (rank + 1) / size - len * rank / size;
    (len - own + (size - 1) * own) * size_of::<T>()
}

fn bits<T: Real>(numbers: &[T]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

/// Checks several all-reduces in progress, two with equal tags, waited for in another order than started.
pub fn several_sums(comm: &Comm) -> Result<()> {
    let begin = |(layer, len): (u16, usize)| {
        let numbers: Vec<f32> = (0..len).map(|i| number(comm.rank(), i)).collect();
        (len, comm.start_all_reduce(WEIGHTS.layer(layer), Buffer::from(&numbers[..])))
    };
    let begun: Vec<_> = [(1, 1000), (2, 5), (3, 0), (1, 31)].into_iter().map(begin).collect();
    for (len, reducing) in begun.into_iter().rev() {
        assert_eq!(bits(&reducing.wait()?), bits(&expected::<f32>(len, comm.size())));
    }
    Ok(())
}

/// Checks that all-reduces with flags return the flags of all ranks and send no further messages or bytes. Several
/// are in progress. Some vectors are empty or shorter than the number of ranks; two have equal tags.
pub fn flags(comm: &Comm) -> Result<()> {
    const LENGTHS: [usize; 6] = [0, 1, 2, 3, 1000, 5];
    let (me, size) = (comm.rank(), comm.size());
    let before = comm.sent();
    // In each reduction another rank has no flags and calls the plain function.
    let flags_of = |i: usize, rank: usize| if i % size == rank { 0 } else { 1u8 << ((rank + i) % 8) };
    let begin = |(i, &len): (usize, &usize)| {
        let numbers: Vec<f32> = (0..len).map(|i| number(me, i)).collect();
        let (tag, numbers) = (WEIGHTS.layer(i.min(4) as u16), Buffer::from(&numbers[..]));
        match flags_of(i, me) {
            0 => comm.start_all_reduce(tag, numbers),
            flags => comm.start_all_reduce_with_flags(tag, numbers, flags),
        }
    };
    let begun: Vec<_> = LENGTHS.iter().enumerate().map(begin).collect();
    for (i, reducing) in begun.into_iter().enumerate().rev() {
        let (numbers, flags) = reducing.wait_with_flags()?;
        assert_eq!(bits(&numbers), bits(&expected::<f32>(LENGTHS[i], size)));
        assert_eq!(flags, (0..size).fold(0, |all, rank| all | flags_of(i, rank)));
    }
    let sent = comm.sent().since(&before);
    let bytes: usize = LENGTHS.iter().map(|&len| reduced_bytes::<f32>(len, me, size)).sum();
    assert_eq!(sent.bytes(WEIGHTS.purpose), bytes as u64);
    assert_eq!(sent.messages(WEIGHTS.purpose), (2 * (size - 1) * LENGTHS.len()) as u64);
    // A single rank gets its own flags; flags of earlier reductions are not returned again.
    let mine = comm.subgroup(&[me], u16::MAX - 1)?.start_all_reduce_with_flags(
        WEIGHTS,
        Buffer::from(&[1f64][..]),
        9,
    );
    assert_eq!(mine.wait_with_flags()?.1, 9);
    let none = comm.start_all_reduce(WEIGHTS, Buffer::from(&[1f64][..]));
    assert_eq!(none.wait_with_flags()?.1, 0);
    Ok(())
}

/// Sets the artificial delay on all ranks. A barrier on either side keeps messages out that other ranks would treat
/// differently.
fn set_delay(comm: &Comm, delay: Duration) -> Result<()> {
    comm.barrier(CONTROL.slot(5))?;
    comm.set_delay(delay);
    comm.barrier(CONTROL.slot(6))
}

/// Checks that an artificial delay postpones messages between ranks, and changes neither results nor order.
pub fn delayed(comm: &Comm) -> Result<()> {
    let (next, previous) = neighbours(comm);
    set_delay(comm, DELAY)?;
    for layer in 20..23 {
        let (tag, start) = (FEATURES.layer(layer), Instant::now());
        let token =
            if comm.rank() == 0 { Message::of(&[7u8]) } else { comm.receive(previous, tag).wait()? };
        comm.send(next, tag, token)?;
        if comm.rank() == 0 {
            assert_eq!(comm.receive(previous, tag).wait()?.as_slice::<u8>()?, &[7]);
            // A message of a rank to itself is not delayed.
            let hops = if comm.size() == 1 { 0 } else { comm.size() as u32 };
            assert!(start.elapsed() >= DELAY * hops, "{:?} for {hops} messages", start.elapsed());
        }
    }
    exchange(comm, 1000)?;
    tags_in_any_order(comm)?;
    equal_tags_in_order(comm)?;
    background_messages(comm)?;
    sum::<f32>(comm, 1001)?;
    sum::<f64>(comm, 7)?;
    several_sums(comm)?;
    flags(comm)?;
    set_delay(comm, Duration::ZERO)
}

/// Checks that messages are received although their sender closes its communicator while they are delayed. The caller
/// must close the communicator; one delayed message of every rank is not received.
pub fn delayed_at_close(comm: &Comm) -> Result<()> {
    let (next, previous) = neighbours(comm);
    set_delay(comm, DELAY)?;
    let tag = FEATURES.layer(30);
    if comm.rank() > 0 {
        assert_eq!(comm.receive(previous, tag).wait()?.as_slice::<u64>()?, &[previous as u64]);
    }
    comm.send(next, tag, Message::of(&[comm.rank() as u64]))?;
    comm.send(next, tag.slot(1), Message::empty())
}
