//! Ranks as threads: collectives, counters and failures.

mod checks;

use std::thread;
use std::time::{Duration, Instant};

use halograph_comm::{
    Comm, Error, Message, Options, Position, Priority, Purpose, Tag, Track, handshake, threads,
};
use proptest::prelude::*;

const TAG: Tag = Tag::new(Purpose::Features);

/// Returns options with a short deadline, but long enough for a busy machine.
fn short_deadline() -> Options {
    Options { deadline: Duration::from_secs(2), heartbeat: Duration::from_millis(100), ..Options::default() }
}

/// Runs `work` on `ranks` ranks with default options.
fn run<R: Send>(ranks: usize, work: impl Fn(&Comm) -> Result<R, Error> + Sync) -> Vec<Result<R, Error>> {
    threads::run(ranks, &Options::default(), work)
}

/// Runs `work` on `ranks` ranks, all of which must succeed.
fn succeed<R: Send>(ranks: usize, work: impl Fn(&Comm) -> Result<R, Error> + Sync) -> Vec<R> {
    run(ranks, work).into_iter().map(|result| result.unwrap_or_else(|e| panic!("{e}"))).collect()
}

#[test]
fn all_checks_pass_on_1_to_8_ranks() {
    (1..=8).for_each(|ranks| drop(succeed(ranks, checks::all)));
}

#[test]
fn subgroups_work_on_1_to_8_ranks() {
    (1..=8).for_each(|ranks| drop(succeed(ranks, checks::groups::all)));
}

#[test]
fn delayed_messages_arrive_later_with_the_same_results() {
    for ranks in [1, 2, 5] {
        succeed(ranks, checks::delayed);
        succeed(ranks, checks::delayed_at_close);
    }
}

#[test]
fn messages_are_delayed_from_the_start() {
    const DELAY: Duration = Duration::from_millis(20);
    let options = Options { delay: DELAY, ..Options::default() };
    let results = threads::run(2, &options, |comm| {
        let start = Instant::now();
        comm.barrier(Tag::new(Purpose::Control))?;
        comm.all_reduce(TAG, &mut [1.0f32])?;
        Ok::<_, Error>(start.elapsed())
    });
    for result in results {
        let elapsed = result.unwrap();
        // Addends, then sums.
        assert!(elapsed >= 2 * DELAY, "{elapsed:?}");
    }
}

#[test]
fn a_failure_does_not_wait_for_delayed_messages() {
    let options = Options { delay: Duration::from_secs(3600), ..Options::default() };
    let results = threads::run(2, &options, |comm| {
        comm.send(1 - comm.rank(), TAG, Message::empty())?;
        match comm.rank() {
            0 => Err(Error::Start { cause: "disk full".into() }),
            _ => comm.receive(0, TAG).wait().map(drop),
        }
    });
    let error = results.into_iter().next_back().expect("two ranks").unwrap_err();
    assert!(matches!(error, Error::Failed { rank: 0, .. }), "{error}");
}

#[test]
fn a_failure_outside_a_group_ends_waits_inside_it() {
    let results = run(4, |comm| {
        if comm.rank() == 1 {
            return Err(Error::Start { cause: "disk full".into() });
        }
        let group = comm.subgroup(&[3, 2, 0], 5)?;
        match comm.rank() {
            // No rank sends this message.
            0 => group.receive(1, TAG).wait().map(drop),
            2 => group.all_reduce(TAG, &mut [1.0f32]),
            _ => group.barrier(TAG),
        }
    });
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(rank == 1 || matches!(error, Error::Failed { rank: 1, .. }), "{error}");
    }
}

#[test]
fn errors_in_a_group_name_world_ranks() {
    let results = run(3, |comm| {
        if comm.rank() == 0 {
            return comm.receive(2, TAG).wait().map(drop);
        }
        let group = comm.subgroup(&[2, 1], 5)?;
        let fact = [("seed", comm.rank().to_string())];
        let mismatch = handshake(&group, &fact).unwrap_err();
        assert!(matches!(mismatch, Error::Mismatch { rank, .. } if rank == 3 - comm.rank()), "{mismatch}");
        if comm.rank() == 1 {
            group.send(0, TAG, Message::of(&[1u8]))?;
            return group.receive(0, TAG.layer(1)).wait().map(drop);
        }
        group.receive(1, TAG).wait()?.expect::<u32>(1).map(drop)
    });
    let texts: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts[2].contains("the message from rank 1 "), "{}", texts[2]);
    assert!(texts[..2].iter().all(|text| text.contains("rank 2 on ")), "{texts:?}");
}

#[test]
fn closing_the_world_closes_its_groups() {
    let groups = succeed(2, |comm| comm.subgroup(&[1, 0], 1));
    for group in groups {
        assert_eq!(group.send(0, TAG, Message::empty()), Err(Error::Closed));
        assert!(matches!(group.barrier(TAG), Err(Error::Closed)));
    }
    // A group keeps no rank alive that was dropped before it was closed.
    let mut comms = threads::world(2, &Options::default()).unwrap();
    let groups = [0, 1].map(|rank: usize| comms[rank].subgroup(&[0, 1], 1).unwrap());
    drop(comms.pop());
    for group in groups {
        let error = group.receive(1, TAG).wait().unwrap_err();
        assert!(matches!(error, Error::Failed { rank: 1, .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_and_vectors_may_have_any_length(ranks in 1usize..=8, len in 0usize..70, max_len in 1usize..70) {
        succeed(ranks, |comm| {
            checks::exchange(comm, max_len)?;
            checks::sum::<f32>(comm, len)?;
            checks::sum::<f64>(comm, len)
        });
    }
}

#[test]
fn messages_are_not_copied() {
    let addresses = succeed(2, |comm| {
        if comm.rank() == 0 {
            let message = Message::of(&[1.0f32; 1000]);
            let address = message.as_slice::<f32>()?.as_ptr() as usize;
            comm.send(1, TAG, message)?;
            return Ok(address);
        }
        let receiving = comm.receive(0, TAG);
        let message = receiving.wait()?;
        Ok(message.as_slice::<f32>()?.as_ptr() as usize)
    });
    assert_eq!(addresses[0], addresses[1]);
}

#[test]
fn messages_of_a_rank_to_itself_are_not_counted() {
    succeed(2, |comm| {
        comm.send(comm.rank(), TAG, Message::of(&[5u8]))?;
        assert_eq!(comm.receive(comm.rank(), TAG).wait()?.as_slice::<u8>()?, &[5]);
        assert_eq!(comm.sent().payload_messages(), 0);
        Ok(())
    });
}

#[test]
fn an_error_of_one_rank_is_reported_to_all() {
    let results = threads::run(4, &Options::default(), |comm| {
        if comm.rank() == 2 {
            return Err("disk full".to_string().into());
        }
        comm.receive(2, TAG).wait().map(drop).map_err(UserError::from)
    });
    for (rank, result) in results.into_iter().enumerate() {
        let text = result.unwrap_err().0;
        assert!(text.contains("disk full"), "{text}");
        assert_eq!(text.contains("rank 2 on "), rank != 2, "{text}");
    }
}

/// An error type of a user of this crate.
#[derive(Debug)]
struct UserError(String);

impl From<String> for UserError {
    fn from(text: String) -> Self {
        UserError(text)
    }
}

impl From<Error> for UserError {
    fn from(error: Error) -> Self {
        UserError(error.to_string())
    }
}

impl std::fmt::Display for UserError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[test]
fn a_panic_of_one_rank_ends_all_waits() {
    let results = run(3, |comm| {
        assert!(comm.rank() != 1, "index out of bounds");
        comm.all_reduce(TAG, &mut [1.0f32])?;
        comm.barrier(TAG)
    });
    for result in results {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, Error::Failed { rank: 1, cause, .. } if cause.contains("index out of bounds")),
            "{error}"
        );
    }
}

#[test]
fn a_stalled_rank_is_lost_on_all_others_by_name() {
    let results = threads::run(3, &short_deadline(), |comm| {
        comm.set_position(Position::new("forward").epoch(3).layer(1));
        // Wait for heartbeats with the new position.
        thread::sleep(Duration::from_millis(300));
        match comm.rank() {
            1 => Err(comm.stall().expect("the others notice")),
            // Waits for the lost rank.
            0 => comm.receive(1, TAG.epoch(3)).wait().map(drop),
            // Waits for a rank that is alive.
            _ => comm.receive(0, TAG.epoch(3)).wait().map(drop),
        }
    });
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Lost { rank: 1, silent_seconds: 2.., .. }), "{text}");
        assert!(text.contains("epoch 3, layer 1, forward"), "{text}");
        assert_eq!(text.contains("waiting for features (epoch 3"), rank != 1, "{text}");
    }
}

#[test]
fn the_position_of_a_lost_rank_is_that_of_its_last_message() {
    const EPOCHS: u32 = 1000;
    let options = Options { heartbeat: Duration::from_secs(3600), ..short_deadline() };
    let results = threads::run(2, &options, |comm| {
        // All epochs together take less time than there is between two heartbeats.
        for epoch in 0..EPOCHS {
            comm.set_position(Position::new("forward").epoch(epoch));
            comm.all_to_all(TAG.epoch(epoch), vec![Message::empty(); 2])?;
        }
        match comm.rank() {
            1 => Err(comm.stall().expect("the other rank notices")),
            _ => comm.receive(1, TAG).wait().map(drop),
        }
    });
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(&format!("epoch {}, layer 0, ", EPOCHS - 1)), "{text}");
    }
}

#[test]
fn a_lost_rank_is_detected_without_waiting() {
    let results = threads::run(2, &short_deadline(), |comm| {
        if comm.rank() == 1 {
            return comm.stall().map_or(Ok(()), Err);
        }
        loop {
            comm.send(0, TAG, Message::empty())?;
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(matches!(results[0], Err(Error::Lost { rank: 1, .. })));
}

#[test]
fn a_rank_that_computes_for_long_is_not_lost() {
    let options = Options {
        deadline: Duration::from_millis(1500),
        heartbeat: Duration::from_millis(100),
        ..Options::default()
    };
    let results = threads::run(2, &options, |comm| {
        if comm.rank() == 1 {
            thread::sleep(options.deadline * 2);
        }
        comm.barrier(TAG)
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_rank_that_closes_without_sending_is_named() {
    for reduce in [false, true] {
        let results = run(2, |comm| match (comm.rank(), reduce) {
            (0, false) => comm.receive(1, TAG.layer(4)).wait().map(drop),
            (0, true) => comm.all_reduce(TAG.layer(4), &mut [1.0f32]),
            _ => Ok(()),
        });
        for result in results {
            let text = result.unwrap_err().to_string();
            assert!(text.contains("layer 4"), "{text}");
        }
    }
}

#[test]
fn every_rank_names_a_mismatch() {
    let results = run(4, |comm| {
        let seed = if comm.rank() == 2 { "8" } else { "7" };
        handshake(comm, &[("version", "1".to_string()), ("seed", seed.to_string())])
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (here, there, other) = if rank == 2 { ("8", "7", 0) } else { ("7", "8", 2) };
        let (what, here, there) = ("seed".to_string(), here.to_string(), there.to_string());
        assert_eq!(result, Err(Error::Mismatch { what, here, there, rank: other }));
    }
    succeed(4, |comm| handshake(comm, &[("version", "1".to_string())]));
}

#[test]
fn vectors_of_different_lengths_are_not_added() {
    let results = run(3, |comm| comm.all_reduce(TAG, &mut vec![1.0f32; 10 + 3 * (comm.rank() / 2)]));
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("bytes, expected"), "{text}");
    }
}

#[test]
fn spans_are_recorded_only_while_tracing() {
    let spans = succeed(2, |comm| {
        let exchange = || comm.all_to_all(TAG.layer(1), vec![Message::of(&[1u8]); 2]);
        exchange()?;
        assert!(comm.take_spans().is_empty());
        comm.trace();
        drop(comm.span("forward"));
        drop(comm.span_on(Track::Sample(3), "batch", Position::new("sampling").epoch(4).step(2)));
        exchange()?;
        Ok(comm.take_spans())
    });
    for spans in spans {
        let named =
            |track, name: &str| spans.iter().filter(|s| s.track == track && s.name.starts_with(name)).count();
        assert_eq!(named(Track::Compute, "forward"), 1);
        assert_eq!(named(Track::Sample(3), "batch"), 1);
        let sampled = spans.iter().find(|span| span.name == "batch").expect("counted above");
        assert_eq!((sampled.position.epoch, sampled.position.step), (4, 2));
        assert_eq!(named(Track::Send, "features (epoch 0, layer 1) to"), 1);
        assert_eq!(named(Track::Receive, "features (epoch 0, layer 1) from"), 1);
        assert!(spans.iter().all(|s| s.start <= s.end));
    }
}

#[test]
fn wait_time_is_counted() {
    let waited = succeed(2, |comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(100));
        }
        comm.barrier(TAG)?;
        Ok(comm.waited())
    });
    assert!(waited[0] > Duration::from_millis(10), "{waited:?}");
}

#[test]
fn background_waits_are_neither_counted_nor_traced() {
    let measured = succeed(2, |comm| {
        comm.trace();
        let before = comm.waited();
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(50));
        }
        comm.all_to_all_with(TAG, Priority::Background, vec![Message::of(&[1u8]); 2])?;
        Ok((comm.waited() - before, comm.take_spans()))
    });
    for (waited, spans) in measured {
        let on = |track| spans.iter().filter(|span| span.track == track).count();
        assert_eq!(waited, Duration::ZERO);
        assert_eq!([Track::Wait, Track::Send, Track::Receive].map(on), [0, 1, 1]);
    }
}

#[test]
fn a_rank_that_is_dropped_has_failed() {
    let mut comms = threads::world(2, &Options::default()).unwrap();
    drop(comms.pop());
    let error = comms[0].receive(1, TAG).wait().unwrap_err();
    assert!(matches!(error, Error::Failed { rank: 1, .. }), "{error}");
    assert!(comms[0].send(1, TAG, Message::empty()).is_err());
}
