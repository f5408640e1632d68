//! Attention over two parts of the columns, compared with that over all entries.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// A case split by columns.
struct Parts {
    near: Case,
    /// Contains only some of the rows.
    far: Case,
    /// Row of `near` for each row of `far`.
    rows: Vec<u32>,
}

impl Parts {
    /// Splits a case at column `split`. The second part contains the rows with entries in it, and some empty rows.
    fn of(case: &Case, split: usize) -> Self {
        let split = split as u32;
        let entries = |r: usize| case.columns[case.bounds[r] as usize..case.bounds[r + 1] as usize].iter();
        let near = (0..case.rows()).map(|r| entries(r).copied().filter(|&c| c < split).collect::<Vec<u32>>());
        let is_far = |r: usize| r.is_multiple_of(3) || entries(r).any(|&c| c >= split);
        let rows: Vec<usize> = (0..case.rows()).filter(|&r| is_far(r)).collect();
        let far = rows
            .iter()
            .map(|&r| entries(r).filter(|&&c| c >= split).map(|c| c - split).collect::<Vec<u32>>());
        let (near_ids, far_ids) = case.ids.split_at(split as usize);
        let far_row_ids = rows.iter().map(|&r| case.row_ids[r]).collect();
        Parts {
            near: part(case, near.collect(), case.first, case.row_ids.clone(), near_ids),
            far: part(case, far.collect(), None, far_row_ids, far_ids),
            rows: rows.into_iter().map(|r| r as u32).collect(),
        }
    }

    /// Returns the merged results of the forwards of both parts.
    fn forward<T: Real>(
        &self,
        [near, far]: [&Attention<T>; 2],
        form: Saved<T>,
        forward: impl Fn(&Attention<T>, &mut Saved<T>, &mut [T]),
    ) -> (Saved<T>, Vec<T>) {
        let [(mut saved, mut out), (far_saved, far_out)] = [near, far].map(|at| {
            let (mut saved, mut out) = (form.clone(), vec![T::nan(); at.rows() * at.heads * at.width]);
            forward(at, &mut saved, &mut out);
            (saved, out)
        });
        merge((&mut saved, &mut out), (&far_saved, &far_out), Some(&self.rows), near.heads, near.width);
        (saved, out)
    }

    /// Returns the output and the gradients of messages and scores. Checks that a forward without backward gives the
    /// same output.
    fn results<T: Real>(
        &self,
        [messages, destination, grad]: [&[T]; 3],
        forward: impl Fn(&Attention<T>, &mut Saved<T>, &mut [T]),
        backward: impl Fn(&Attention<T>, Pattern, (&RowStats<T>, Option<&[u32]>), &[T], &mut [T]),
    ) -> [Vec<T>; 3] {
        let (messages, far_messages) = messages.split_at(self.near.lengths()[0]);
        let heads = self.near.heads;
        let scores = |&r: &u32| destination[r as usize * heads..][..heads].to_vec();
        let far_destination: Vec<T> = self.rows.iter().flat_map(scores).collect();
        let near = self.near.attention(messages, destination);
        let far = self.far.attention(far_messages, &far_destination);

        let (saved, out) = self.forward([&near, &far], Saved::default(), &forward);
        let (_, evaluated) = self.forward([&near, &far], Saved::for_evaluation(), &forward);
        assert_close(&wide(&evaluated), &wide(&out), 2e-6);

        let [mut dm, mut far_dm] = [near.messages, far.messages].map(|m| vec![T::nan(); m.len()]);
        let mut dt = vec![T::nan(); destination.len()];
        let stats = near.destination_backward((&saved, &out), grad, &mut dt);
        let back = Transpose::of(far.pattern, self.far.count);
        backward(&far, back.pattern(), (&stats, Some(&self.rows)), grad, &mut far_dm);
        let back = Transpose::of(near.pattern, self.near.count);
        backward(&near, back.pattern(), (&stats, None), grad, &mut dm);
        dm.extend(far_dm);
        [out, dm, dt]
    }

    fn fast(&self, operands: [&[f32]; 3], config: Config) -> [Vec<f32>; 3] {
        self.results(
            operands,
            |at, saved, out| at.forward_fast(config, Some(saved), out),
            |at, back, stats, grad, to| at.messages_backward_fast(config, back, stats, grad, to),
        )
    }
}

fn part(case: &Case, entries: Vec<Vec<u32>>, first: Option<usize>, row_ids: Vec<u32>, ids: &[u32]) -> Case {
    let mut bounds = vec![0];
    entries.iter().for_each(|row| bounds.push(bounds[bounds.len() - 1] + row.len() as u64));
    let Case { heads, width, p, .. } = *case;
    Case {
        bounds,
        columns: entries.concat(),
        count: ids.len(),
        first,
        heads,
        width,
        p,
        row_ids,
        ids: ids.into(),
    }
}

/// Compares two parts with all entries, in double precision and by the fast implementation with short segments.
fn check(case: &Case, split: usize) {
    let parts = Parts::of(case, split);
    let operands = case.lengths().map(|n| noise::<f32>(n as u64, n));
    let [messages, destination, grad] = operands.each_ref().map(|x| wide(x));
    let want = case.reference(&messages, &destination, &grad);
    let got = parts.results(
        [&messages, &destination, &grad],
        |at, saved, out| at.forward(Some(saved), out),
        |at, back, stats, grad, to| at.messages_backward(back, stats, grad, to),
    );
    want.iter().zip(&got).for_each(|(want, got)| assert_close(got, want, 1e-12));
    for config in configs(50) {
        let got = parts.fast(operands.each_ref().map(|x| &x[..]), config);
        want.iter().zip(&got).for_each(|(want, got)| assert_close(&wide(got), want, 2e-5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merged_parts_match_all_entries(
        lengths in vec(0usize..12, 0..20),
        (first, halo) in (0usize..4, 0usize..20),
        heads in 1usize..=4,
        width in select(&[1, 7, 41, 100, 257][..]),
        p in select(&[0.0, 0.5, 1.0][..]),
        split in proptest::option::of(0usize..40),
    ) {
        let local = first + lengths.len() + 2;
        let case = Case::new(&lengths, local + halo, first, [heads, width]).masked(p);
        match split {
            None => check(&case, local),
            // Without self-loops, a row may have no entries in either part.
            Some(split) => check(&case.bipartite(), split.min(local + halo)),
        }
    }
}

#[test]
fn merged_parts_match_for_hubs_and_single_nodes() {
    check(&Case::new(&[0], 1, 0, [2, 3]), 1);
    check(&Case::new(&[1], 2, 0, [1, 41]), 1);
    check(&Case::new(&[3; 1000], 1500, 0, [2, 3]), 1000);
    check(&Case::new(&[3; 1000], 12, 0, [2, 3]).bipartite().masked(0.3), 6);
    check(&Case::star(700, [2, 9]).bipartite(), 300);
    check(&Case::new(&[500, 20, 0], 900, 0, [3, 7]).masked(0.5), 100);
}

#[test]
fn a_part_with_much_larger_scores_determines_the_output() {
    // Row 0 is column 0. The scores of columns 1 and 2 differ from that of column 0 by more than exp can represent.
    let case = Case { columns: vec![1, 2], ..Case::new(&[2], 3, 0, [1, 1]) };
    let parts = Parts::of(&case, 1);
    for [own, other] in [[1e4, 0.0], [0.0, 1e4]] {
        let messages = [1.0f32, own, 2.0, other, 2.0, other];
        for config in configs(50) {
            let [out, _, dt] = parts.fast([&messages, &[1.0], &[1.0]], config);
            assert_eq!((&out[..], &dt[..]), (&[if own > other { 1.0 } else { 2.0 }][..], &[0.0][..]));
        }
    }
}

#[test]
fn a_part_without_entries_does_not_change_the_result() {
    let case = Case::new(&[5, 0, 3, 60, 1, 0, 0], 20, 0, [2, 7]).bipartite().masked(0.2);
    let operands = case.lengths().map(|n| noise::<f32>(n as u64, n));
    let whole = results(&case, 1);
    for split in [0, 20] {
        let config = Config::best();
        assert_eq!(Parts::of(&case, split).fast(operands.each_ref().map(|x| &x[..]), config), whole);
    }
}

#[test]
#[should_panic(expected = "not strictly ascending")]
fn rows_out_of_order_panic() {
    let case = Case::new(&[1, 1], 3, 0, [1, 1]);
    let [messages, destination, _] = case.lengths().map(|n| noise::<f64>(n as u64, n));
    let (mut saved, mut out) = (Saved::default(), [0.0; 2]);
    case.attention(&messages, &destination).forward(Some(&mut saved), &mut out);
    let (from, from_out) = (saved.clone(), out);
    merge((&mut saved, &mut out), (&from, &from_out), Some(&[1, 0]), 1, 1);
}

#[test]
fn the_steps_of_a_backward_have_the_cost_of_the_whole() {
    let case = Case::new(&[5, 0, 3], 9, 2, [2, 7]);
    let [messages, destination, grad] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    let at = case.attention(&messages, &destination);
    let back = Transpose::of(at.pattern, case.count);
    let (mut saved, [mut dm, mut dt, mut out]) = (Saved::default(), case.lengths().map(|n| vec![0.0; n]));
    at.forward(Some(&mut saved), &mut out);
    let bytes = |work: &mut dyn FnMut()| -> u64 {
        let ((), done) = work::record(work);
        done.iter().map(|work| work.cost.bytes).sum()
    };
    let whole = bytes(&mut || at.backward(back.pattern(), (&saved, &out), &grad, &mut dm, &mut dt));
    let steps = bytes(&mut || {
        let stats = at.destination_backward((&saved, &out), &grad, &mut dt);
        at.messages_backward(back.pattern(), (&stats, None), &grad, &mut dm);
    });
    assert_eq!(steps, whole);

    // Output and derivative, and three numbers of each head; two rows are read and one is written.
    let (from, from_out) = (saved.clone(), out.clone());
    let merged = bytes(&mut || merge((&mut saved, &mut out), (&from, &from_out), None, 2, 7));
    assert_eq!(merged, 3 * 3 * (2 * 14 + 3 * 2) * 4);
}
