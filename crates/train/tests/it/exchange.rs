//! Properties of `boundary::Exchange`, on random ownership of random rows.

use std::sync::Arc;

use half::f16;
use halograph_comm::{Comm, Options, Priority, Purpose, Tag, threads};
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::{Input, Matrix};
use halograph_train::boundary::{Exchange, FeatureTransfer, GradientTransfer, RemoteRows, Transfer};
use halograph_train::config::RowEncoding;
use halograph_train::{Error, Result};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties;

/// Vertices owned by ranks, and which of them each rank reads.
#[derive(Debug, Clone)]
struct Layout {
    /// Rank that owns each vertex.
    owner: Vec<usize>,
    /// Row of each vertex at its owner.
    row: Vec<u32>,
    /// `wanted[q][p]`: vertices of rank p that rank q reads, in the order of its halo rows.
    wanted: Vec<Vec<Vec<u32>>>,
}

impl Layout {
    /// `order`: all vertices, in the order in which their owners number them. `reads(q, v)`: whether rank q reads vertex
    /// v, which another rank owns.
    fn new(ranks: usize, owner: Vec<usize>, order: &[u32], reads: impl Fn(usize, u32) -> bool) -> Self {
        let (mut row, mut owned) = (vec![0; owner.len()], vec![0; ranks]);
        for &v in order {
            let owned = &mut owned[owner[v as usize]];
            (row[v as usize], *owned) = (*owned, *owned + 1);
        }
        let of = |q: usize, p: usize| {
            let read = |v: &u32| p != q && owner[*v as usize] == p && reads(q, *v);
            (0..owner.len() as u32).filter(read).collect()
        };
        let wanted = (0..ranks).map(|q| (0..ranks).map(|p| of(q, p)).collect()).collect();
        Layout { owner, row, wanted }
    }

    /// Each rank lists its halo rows in an order of its own.
    fn shuffled(mut self, key: Key) -> Self {
        for (q, of) in self.wanted.iter_mut().enumerate() {
            of.iter_mut().for_each(|wanted| wanted.sort_by_key(|&v| key.with(q as u64).at(v as u64)));
        }
        self
    }

    fn ranks(&self) -> usize {
        self.wanted.len()
    }

    fn owned(&self, rank: usize) -> usize {
        self.owner.iter().filter(|&&owner| owner == rank).count()
    }

    fn halo(&self, rank: usize) -> Vec<u32> {
        self.wanted[rank].concat()
    }

    /// The exchange of `rank`, from what both sides know.
    fn exchange(&self, rank: usize) -> Exchange {
        let rows = |reader: &Vec<Vec<u32>>| reader[rank].iter().map(|&v| self.row[v as usize]).collect();
        let send_rows = self.wanted.iter().map(rows).collect();
        Exchange::new(send_rows, self.wanted[rank].iter().map(Vec::len).collect())
    }

    /// The same, from what each rank knows alone.
    fn negotiate(&self, comm: &Comm) -> Result<Exchange> {
        let me = comm.rank();
        let row_of = |v: u32| (self.owner[v as usize] == me).then(|| self.row[v as usize]);
        Exchange::negotiate(comm, Tag::new(Purpose::Setup), &self.wanted[me], row_of)
    }

    /// Owned rows of `rank`: `number(vertex, column)`.
    fn rows<E: bytemuck::Pod>(
        &self,
        rank: usize,
        width: usize,
        number: impl Fn(u32, usize) -> E,
    ) -> Matrix<E> {
        let mut rows = Matrix::zeros(self.owned(rank), width);
        for (v, _) in (0..).zip(&self.owner).filter(|(_, owner)| **owner == rank) {
            let at = self.row[v as usize] as usize;
            for (c, x) in rows.run_mut(at..at + 1).iter_mut().enumerate() {
                *x = number(v, c);
            }
        }
        rows
    }
}

#[test]
fn runs_of_an_exchange_send_the_rows_of_the_run_and_receive_those_of_its_counterparts() {
    // Rank 1 of three owns rows 0 to 4; runs 0..2, 2..2 and 2..5.
    let whole = Exchange::new(vec![vec![0, 1, 3], vec![], vec![4]], vec![2, 0, 1]);
    let halo = [vec![5..6, 7..7, 7..7], vec![6..7, 7..7, 7..8], vec![7..7, 7..7, 8..8]];
    let runs = whole.by_run(&[0, 2, 2, 5], &halo);
    let expected = [
        Exchange::new(vec![vec![0, 1], vec![], vec![]], vec![1, 0, 0]),
        Exchange::new(vec![vec![], vec![], vec![]], vec![1, 0, 1]),
        Exchange::new(vec![vec![1], vec![], vec![2]], vec![0, 0, 0]),
    ];
    assert_eq!(runs, expected);
}

/// Rows of vertices: `number(vertex, column)`.
fn matrix<E: bytemuck::Pod>(of: &[u32], width: usize, number: impl Fn(u32, usize) -> E) -> Matrix<E> {
    let numbers = of.iter().flat_map(|&v| (0..width).map(move |c| (v, c))).map(|(v, c)| number(v, c));
    Matrix::new(of.len(), width, numbers.collect())
}

fn layouts() -> impl Strategy<Value = Layout> {
    let sizes = (1usize..=5, prop_oneof![Just(0usize), 1usize..50]);
    let parts = sizes.prop_flat_map(|(ranks, vertices)| {
        let share = prop_oneof![Just(0u8), Just(100), 0u8..100];
        (
            // Ranks that own anything, and ranks whose rows are read.
            (vec(any::<bool>(), ranks), vec(prop::bool::weighted(0.8), ranks)),
            vec(0usize..60, vertices),
            Just((0..vertices as u32).collect::<Vec<u32>>()).prop_shuffle(),
            vec(share, ranks),
            vec(0u8..100, ranks * vertices),
            any::<u64>(),
        )
    });
    parts.prop_map(|((owns, is_read), draws, order, shares, reads, seed)| {
        let ranks = owns.len();
        let mut owners: Vec<usize> = (0..ranks).filter(|&rank| owns[rank]).collect();
        if owners.is_empty() {
            owners = vec![ranks - 1];
        }
        let owner: Vec<usize> = draws.iter().map(|draw| owners[draw % owners.len()]).collect();
        let (of, vertices) = (owner.clone(), owner.len());
        let reads =
            move |q: usize, v: u32| is_read[of[v as usize]] && reads[q * vertices + v as usize] < shares[q];
        Layout::new(ranks, owner, &order, reads).shuffled(Key::new(seed, "halo"))
    })
}

/// One transfer in each direction.
#[derive(Debug, Clone, Copy)]
struct Round {
    features: Tag,
    gradients: Tag,
    priority: Priority,
    /// Names the numbers of this round.
    key: Key,
    /// Order in which rounds are finished.
    turn: u64,
}

/// Rounds under way at once: their tags differ in one number each.
fn rounds(seed: u64, count: usize) -> Vec<Round> {
    let key = Key::new(seed, "rounds");
    let round = |i: u64| {
        let tag = |purpose| match i % 4 {
            0 => Tag::new(purpose).epoch(i as u32 + 1),
            1 => Tag::new(purpose).step(i as u32),
            2 => Tag::new(purpose).layer(i as u16),
            _ => Tag::new(purpose).chunk(i as u16),
        };
        Round {
            features: tag(Purpose::Features),
            gradients: tag(Purpose::Gradients),
            priority: if key.at(2 * i).is_multiple_of(2) { Priority::Urgent } else { Priority::Background },
            key: key.with(i),
            turn: key.at(2 * i + 1),
        }
    };
    (0..count as u64).map(round).collect()
}

/// Numbers of a round: of rows, of gradients by each reader, and of gradients that owners have already.
#[derive(Clone, Copy)]
struct Numbers {
    key: Key,
    /// Small integers, whose sums are exact.
    whole: bool,
}

impl Numbers {
    fn at(self, stream: u64, v: u32, c: usize) -> f64 {
        let unit = self.key.with(stream).with(c as u64).unit(v as u64);
        if self.whole { (unit * 17.0).floor() - 8.0 } else { unit - 0.5 }
    }

    fn row<T: Real>(self, v: u32, c: usize) -> T {
        T::of(self.at(0, v, c))
    }

    fn half(self, v: u32, c: usize) -> f16 {
        f16::from_f64(self.at(0, v, c))
    }

    fn before<T: Real>(self, v: u32, c: usize) -> T {
        if self.whole { T::zero() } else { T::of(self.at(1, v, c)) }
    }

    fn gradient<T: Real>(self, reader: usize, v: u32, c: usize) -> T {
        T::of(self.at(2 + reader as u64, v, c))
    }
}

fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.wide() * b.wide()).sum()
}

/// What one rank does with a layout in one type of numbers.
struct Member<'a> {
    layout: &'a Layout,
    comm: &'a Comm,
    width: usize,
    whole: bool,
    is_half: bool,
}

impl Member<'_> {
    fn numbers(&self, round: &Round) -> Numbers {
        Numbers { key: round.key, whole: self.whole }
    }

    fn input<T: Real>(&self, round: &Round) -> Input<T> {
        let (me, numbers) = (self.comm.rank(), self.numbers(round));
        if self.is_half {
            return Input::Half(Arc::new(self.layout.rows(me, self.width, |v, c| numbers.half(v, c))));
        }
        self.layout.rows(me, self.width, |v, c| numbers.row::<T>(v, c)).into()
    }

    fn halo_gradient<T: Real>(&self, round: &Round) -> Matrix<T> {
        let (me, numbers) = (self.comm.rank(), self.numbers(round));
        matrix(&self.layout.halo(me), self.width, |v, c| numbers.gradient(me, v, c))
    }

    /// Starts all rounds, then finishes them in another order. Returns ⟨halo rows, gradients of halo rows⟩ and
    /// ⟨owned rows, returned gradients⟩, each summed over all rounds.
    fn exchange<T: Real>(&self, exchange: &Exchange, rounds: &[Round]) -> Result<[f64; 2]> {
        let before = self.comm.sent();
        let mut started: Vec<(&Round, FeatureTransfer<T>, GradientTransfer<T>)> = Vec::new();
        for round in rounds {
            let &Round { features, gradients, priority, .. } = round;
            let forward = exchange.start_features(
                self.comm,
                features,
                (priority, RowEncoding::Dense),
                &self.input::<T>(round),
            )?;
            let grad = self.halo_gradient::<T>(round);
            let backward = exchange.start_gradients(self.comm, gradients, priority, &grad, None)?;
            started.push((round, forward, backward));
        }
        let sent = self.comm.sent().since(&before);
        started.sort_by_key(|(round, ..)| round.turn);
        let mut products = [0.0; 2];
        for (round, forward, backward) in started {
            let halo = self.check_forward(round, forward)?;
            products[0] += dot(halo.data(), self.halo_gradient::<T>(round).data());
            let grad = self.check_backward(round, exchange, backward)?;
            products[1] += dot(self.input::<T>(round).full().data(), grad.data());
        }
        // Every row counts once per reader.
        let size = if self.is_half { size_of::<f16>() } else { size_of::<T>() };
        let bytes = |rows: usize, size: usize, all: usize| (all * rows * self.width * size) as u64;
        assert_eq!(sent.bytes(Purpose::Features), bytes(exchange.sent_rows(), size, rounds.len()));
        let returned = bytes(exchange.halo_rows(), size_of::<T>(), rounds.len());
        assert_eq!(sent.bytes(Purpose::Gradients), returned);
        let me = self.comm.rank();
        let readers = self.layout.wanted.iter().filter(|of| !of[me].is_empty()).count();
        let owners = self.layout.wanted[me].iter().filter(|of| !of.is_empty()).count();
        assert_eq!(sent.messages(Purpose::Features), (readers * rounds.len()) as u64);
        assert_eq!(sent.messages(Purpose::Gradients), (owners * rounds.len()) as u64);
        Ok(products)
    }

    /// Halo rows are the owners' rows, by owner, in the order in which they were asked for.
    fn check_forward<T: Real>(&self, round: &Round, transfer: FeatureTransfer<T>) -> Result<Arc<Matrix<T>>> {
        let (halo, numbers) = (self.layout.halo(self.comm.rank()), self.numbers(round));
        assert_eq!(transfer.shape(), (halo.len(), self.width));
        let (rows, _) = transfer.finish()?;
        match &rows {
            Input::Half(rows) => {
                assert!(self.is_half);
                assert_eq!(**rows, matrix(&halo, self.width, |v, c| numbers.half(v, c)));
            }
            Input::Full(rows) => {
                assert!(!self.is_half);
                assert_eq!(**rows, matrix(&halo, self.width, |v, c| numbers.row::<T>(v, c)));
            }
            Input::Sparse(_) => panic!("rows travel with their zeros"),
        }
        Ok(rows.full())
    }

    /// An owned row gets its own gradient and those of its readers, added in the order of ranks; to the bit.
    fn check_backward<T: Real>(
        &self,
        round: &Round,
        exchange: &Exchange,
        transfer: GradientTransfer<T>,
    ) -> Result<Matrix<T>> {
        let (me, numbers) = (self.comm.rank(), self.numbers(round));
        let reads = |q: usize, v: u32| self.layout.wanted[q][me].contains(&v);
        let expected = self.layout.rows(me, self.width, |v, c| {
            let readers = (0..self.layout.ranks()).filter(|&q| reads(q, v));
            readers.fold(numbers.before::<T>(v, c), |sum, q| sum + numbers.gradient(q, v, c))
        });
        let (returned, _) = transfer.finish()?;
        let mut grad = self.layout.rows(me, self.width, |v, c| numbers.before::<T>(v, c));
        exchange.add_gradients(&returned, &mut grad, None)?;
        assert_eq!(grad, expected);
        // The same after a checkpoint.
        let saved = returned.to_matrix();
        assert_eq!(saved.data().len(), exchange.sent_rows() * self.width);
        let mut grad = self.layout.rows(me, self.width, |v, c| numbers.before::<T>(v, c));
        exchange.add_gradients(&exchange.restore_gradients(&saved), &mut grad, None)?;
        assert_eq!(grad, expected);
        Ok(grad)
    }
}

/// Exchanges rounds of a layout in all types of numbers, on ranks that are threads.
fn check(layout: &Layout, width: usize, whole: bool, rounds: &[Round]) {
    let results = threads::run(layout.ranks(), &Options::default(), |comm| {
        let exchange = layout.exchange(comm.rank());
        assert_eq!(layout.negotiate(comm)?, exchange);
        assert_eq!(exchange.halo_rows(), layout.halo(comm.rank()).len());
        let member = |is_half| Member { layout, comm, width, whole, is_half };
        let products = [
            member(false).exchange::<f32>(&exchange, rounds)?,
            member(true).exchange::<f32>(&exchange, rounds)?,
            member(false).exchange::<f64>(&exchange, rounds)?,
            member(true).exchange::<f64>(&exchange, rounds)?,
        ];
        Ok::<_, Error>((products, exchange.sent_rows(), exchange.halo_rows()))
    });
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
    let (sent, read): (Vec<usize>, Vec<usize>) = results.iter().map(|r| (r.1, r.2)).unzip();
    let [sent, read] = [sent, read].map(|rows| rows.iter().sum::<usize>());
    assert_eq!(sent, read, "every row that is sent is read");
    if whole {
        for numbers in 0..4 {
            let sum = |side: usize| results.iter().map(|r| r.0[numbers][side]).sum::<f64>();
            assert_eq!(sum(0), sum(1), "the return is the adjoint of the sending");
        }
    }
}

proptest! {
    #![proptest_config(properties(48))]

    #[test]
    fn rows_arrive_in_halo_order_and_gradients_are_added_in_rank_order(
        layout in layouts(),
        width in 0usize..7,
        count in 1usize..5,
        seed in any::<u64>(),
    ) {
        check(&layout, width, false, &rounds(seed, count));
    }

    #[test]
    fn the_return_of_gradients_is_the_adjoint_of_sending_rows(
        layout in layouts(),
        width in 1usize..7,
        count in 1usize..3,
        seed in any::<u64>(),
    ) {
        check(&layout, width, true, &rounds(seed, count));
    }
}

/// As many rows as several tasks copy and add.
#[test]
fn many_rows_are_exchanged_like_few() {
    let (ranks, vertices, width) = (3, 7200, 40);
    let owner: Vec<usize> = (0..vertices).map(|v| v % ranks).collect();
    let ascending: Vec<u32> = (0..vertices as u32).collect();
    let in_order = Layout::new(ranks, owner, &ascending, |q, v| !(v as usize / 3 + q).is_multiple_of(8));
    let shuffled = in_order.clone().shuffled(Key::new(3, "halo"));
    for (layout, whole) in [(&in_order, false), (&shuffled, true)] {
        let rounds = rounds(5, 2);
        let results = threads::run(ranks, &Options::default(), |comm| {
            let exchange = layout.negotiate(comm)?;
            let member = Member { layout, comm, width, whole, is_half: false };
            member.exchange::<f32>(&exchange, &rounds)
        });
        let products: Vec<[f64; 2]> = results.into_iter().map(|result| result.unwrap()).collect();
        assert!(!whole || products.iter().map(|p| p[0] - p[1]).sum::<f64>() == 0.0);
    }
}

/// Empty parts, ranks that read nothing, ranks that nobody reads of, several readers, rows with several readers.
#[test]
fn layouts_are_of_all_kinds() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::new(properties(48));
    let layouts: Vec<Layout> = (0..48).map(|_| layouts().new_tree(&mut runner).unwrap().current()).collect();
    let ranks = |layout: &Layout| 0..layout.ranks();
    let empty = |layout: &Layout| ranks(layout).any(|rank| layout.owned(rank) == 0);
    let idle = |layout: &Layout| ranks(layout).any(|rank| layout.halo(rank).is_empty());
    let unread = |layout: &Layout| {
        ranks(layout).any(|p| layout.owned(p) > 0 && ranks(layout).all(|q| layout.wanted[q][p].is_empty()))
    };
    let several = |layout: &Layout| ranks(layout).filter(|&rank| layout.halo(rank).len() > 3).count() > 2;
    let shared = |layout: &Layout| {
        let readers = |v: u32| ranks(layout).filter(|&q| layout.halo(q).contains(&v)).count();
        (0..layout.owner.len() as u32).any(|v| readers(v) > 2)
    };
    let mut counts = [0; 5];
    for layout in &layouts {
        let kinds = [empty(layout), idle(layout), unread(layout), several(layout), shared(layout)];
        counts.iter_mut().zip(kinds).for_each(|(count, is)| *count += is as usize);
    }
    assert!(counts.iter().all(|&count| count >= 5), "{counts:?} layouts of 48");
}
