//! The connection to the other ranks, as the stage runner and the strategies see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use halograph_comm::{AllReduceRequest, Comm, Message, Position, Priority, Purpose, SpanGuard, Tag, Track};
use halograph_kernels::Real;
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::buffer::Buffer;
use halograph_nn::model::Stage;
use halograph_nn::norm::NormSums;
use halograph_nn::{Input, Matrix, Model};

use super::exchange::Exchange;
use super::transfer::{FeatureTransfer, GradientTransfer};
use crate::config::RowEncoding;
use crate::error::Result;
use crate::requests::Requests;
use crate::tags::Control;

/// Slot of statistics of the backward: those of the forward may still be in flight.
const BACKWARD: u8 = 1;

/// A rank's connection to the others for a whole run.
pub struct RankLink {
    /// The communicator.
    pub comm: Comm,
    /// Whether communication overlaps with computation: owned rows are aggregated while halo rows are in flight.
    pub overlap: bool,
    /// How rows that a ReLU has computed are sent in training.
    pub encoding: RowEncoding,
    /// Transfer time that overlapped with computation, in nanoseconds.
    hidden: Arc<AtomicU64>,
    /// Time waited for anything but messages, in nanoseconds.
    waited: AtomicU64,
}

impl RankLink {
    /// Creates a link over `comm` that sends dense rows.
    pub fn new(comm: &Comm, overlap: bool) -> Self {
        let (hidden, waited) = (Arc::default(), AtomicU64::new(0));
        RankLink { comm: comm.clone(), overlap, encoding: RowEncoding::Dense, hidden, waited }
    }

    /// Returns the link with another encoding.
    #[must_use]
    pub fn with_encoding(self, encoding: RowEncoding) -> Self {
        RankLink { encoding, ..self }
    }

    /// Returns a link to some of the ranks; see [`Comm::subgroup`]. Overlapped transfer time counts for both links. Does not
    /// communicate.
    pub fn subgroup(&self, members: &[usize], id: u16) -> Result<Self> {
        let link =
            RankLink::new(&self.comm.subgroup(members, id)?, self.overlap).with_encoding(self.encoding);
        Ok(RankLink { hidden: self.hidden.clone(), ..link })
    }

    /// Combines the requests of all ranks. Collective; blocks.
    pub fn agree(&self, own: Requests) -> Result<Requests> {
        let all = self.comm.all_gather(Control::Requests.tag(), Message::of(&[own.to_flags()]))?;
        let combine = |flags: u8, message: &Message| Ok(flags | message.expect::<u8>(1)?[0]);
        all.iter().try_fold(0, combine).map(Requests::from_flags)
    }

    /// Runs `work`, which only waits for something other than messages, as a wait of this rank.
    pub fn wait_for<R>(&self, name: &'static str, at: Position, work: impl FnOnce() -> R) -> R {
        let started = Instant::now();
        let _span = self.comm.span_on(Track::Wait, name, at);
        let result = work();
        self.waited.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Returns the time that this rank has only waited.
    pub fn waited(&self) -> Duration {
        self.comm.waited() + Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Returns the transfer time that overlapped with computation.
    pub fn hidden(&self) -> Duration {
        Duration::from_nanos(self.hidden.load(Ordering::Relaxed))
    }
}

/// The other ranks during one forward and backward pass: a link and the tags of the pass.
#[derive(Clone, Copy)]
pub struct Peers<'a> {
    link: &'a RankLink,
    features: Tag,
    gradients: Tag,
    statistics: Tag,
    weights: Tag,
}

impl<'a> Peers<'a> {
    /// Returns the ranks in one training step; epochs count from 1, steps from 0.
    pub fn training(link: &'a RankLink, epoch: u64, step: u64) -> Self {
        let tag = |purpose| Tag::new(purpose).epoch(epoch as u32).step(step as u32);
        Peers {
            link,
            features: tag(Purpose::Features),
            gradients: tag(Purpose::Gradients),
            statistics: tag(Purpose::Statistics),
            weights: tag(Purpose::Weights),
        }
    }

    /// Returns the ranks in a forward without norm statistics and without a backward, such as an evaluation; rows are sent
    /// with `tag`.
    pub fn forward_only(link: &'a RankLink, tag: Tag) -> Self {
        Peers { link, features: tag, gradients: tag, statistics: tag, weights: tag }
    }

    /// Returns the ranks while this one computes a chunk of the graph.
    #[must_use]
    pub fn of_chunk(self, chunk: usize) -> Self {
        let tag = |tag: Tag| tag.chunk(chunk as u16);
        let Peers { link, features, gradients, statistics, weights } = self;
        let [features, gradients, statistics] = [features, gradients, statistics].map(tag);
        Peers { link, features, gradients, statistics, weights }
    }

    /// Returns how rows that a ReLU has computed are sent.
    pub fn encoding(&self) -> RowEncoding {
        self.link.encoding
    }

    /// Returns whether communication overlaps with computation.
    pub fn overlap(&self) -> bool {
        self.link.overlap
    }

    /// Adds to the transfer time that overlapped with computation.
    pub fn add_hidden(&self, time: Duration) {
        self.link.hidden.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Reports where this rank is, for heartbeats and traces.
    pub fn enter(&self, stage: usize, phase: &'static str) {
        let Tag { epoch, step, chunk, .. } = self.features;
        self.link.comm.set_position(Position { epoch, step, layer: stage as u16, chunk, phase });
    }

    /// Records a span of computation until the guard is dropped, if the run is traced.
    pub fn span(&self, name: &'static str) -> SpanGuard<'a> {
        self.link.comm.span(name)
    }

    /// Runs `work` as a span of the trace.
    pub fn timed<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        let _span = self.span(name);
        work()
    }

    /// Starts the exchange of boundary rows of `stage`. Does not block.
    pub fn start_features<T: Real>(
        &self,
        stage: usize,
        exchange: &Exchange,
        how: (Priority, RowEncoding),
        messages: &Input<T>,
    ) -> Result<FeatureTransfer<T>> {
        exchange.start_features(&self.link.comm, self.features.layer(stage as u16), how, messages)
    }

    /// Starts the return of gradients of halo rows of `stage`; `halo`: see [`Exchange::start_gradients`]. Does not block.
    pub fn start_gradients<T: Real>(
        &self,
        stage: usize,
        exchange: &Exchange,
        priority: Priority,
        grad: &Matrix<T>,
        halo: Option<&Matrix<T>>,
    ) -> Result<GradientTransfer<T>> {
        exchange.start_gradients(&self.link.comm, self.gradients.layer(stage as u16), priority, grad, halo)
    }

    /// Merges the moments of all ranks, in the order of ranks. Collective; blocks.
    pub fn merge_moments<T: Real>(&self, stage: usize, moments: &mut Moments<T>) -> Result<()> {
        let width = moments.mean.len();
        let wide = moments.mean.iter().chain(&moments.squares).map(|x| x.wide());
        let numbers: Vec<f64> = std::iter::once(moments.count as f64).chain(wide).collect();
        let tag = self.statistics.layer(stage as u16);
        let mut all: Option<Moments<T>> = None;
        for message in self.link.comm.all_gather(tag, Message::of(&numbers))? {
            let numbers = message.expect::<f64>(1 + 2 * width)?;
            let narrow = |numbers: &[f64]| numbers.iter().map(|&x| T::of(x)).collect();
            let (mean, squares) = numbers[1..].split_at(width);
            let part = Moments { count: numbers[0] as u64, mean: narrow(mean), squares: narrow(squares) };
            match &mut all {
                None => all = Some(part),
                Some(all) => all.merge(&part),
            }
        }
        *moments = all.expect("there is at least one rank");
        Ok(())
    }

    /// All-reduces the gradient sums of a batch norm. Collective; blocks.
    pub fn total_norm_sums<T: Real>(&self, stage: usize, sums: &mut NormSums<T>) -> Result<()> {
        let wide = sums.weight_grad.iter().chain(&sums.bias_grad).map(|x| x.wide());
        let mut numbers: Vec<f64> = std::iter::once(sums.count as f64).chain(wide).collect();
        let tag = self.statistics.layer(stage as u16).slot(BACKWARD);
        self.link.comm.all_reduce(tag, &mut numbers)?;
        let (weight_grad, bias_grad) = numbers[1..].split_at(sums.weight_grad.len());
        sums.count = numbers[0] as u64;
        sums.weight_grad.iter_mut().zip(weight_grad).for_each(|(sum, &x)| *sum = T::of(x));
        sums.bias_grad.iter_mut().zip(bias_grad).for_each(|(sum, &x)| *sum = T::of(x));
        Ok(())
    }

    /// Starts the all-reduce of the loss of a model with `stages` stages, with `requests` as its flags. Does not block.
    pub fn start_loss_sum(&self, stages: usize, loss: f64, requests: Requests) -> LossSum {
        let tag = self.statistics.layer(stages as u16);
        let numbers = Buffer::from(&[loss][..]);
        LossSum(self.link.comm.start_all_reduce_with_flags(tag, numbers, requests.to_flags()))
    }

    /// Returns an empty collection of all-reduces of parameter gradients.
    pub fn gradient_sums<T: Real>(&self) -> GradientSums<'a, T> {
        GradientSums { peers: *self, started: Vec::new() }
    }
}

/// A started all-reduce of the loss.
#[must_use = "the sum is what `wait` returns"]
pub struct LossSum(AllReduceRequest<f64>);

impl LossSum {
    /// Blocks until the sum over all ranks is available; returns it and the combined requests of all ranks.
    pub fn wait(self) -> Result<(f64, Requests)> {
        let (loss, flags) = self.0.wait_with_flags()?;
        Ok((loss[0], Requests::from_flags(flags)))
    }
}

/// Started all-reduces of parameter gradients, one per stage.
pub struct GradientSums<'a, T> {
    peers: Peers<'a>,
    started: Vec<(usize, AllReduceRequest<T>)>,
}

impl<T: Real> GradientSums<'_, T> {
    /// Starts the all-reduce of the gradients of a stage. Does not block.
    pub fn start(&mut self, index: usize, stage: &Stage<T>) {
        let params = stage.params();
        let mut grads = Buffer::unspecified(params.iter().map(|param| param.grad.len()).sum());
        let mut rest = &mut grads[..];
        for param in params {
            let (own, more) = rest.split_at_mut(param.grad.len());
            own.copy_from_slice(&param.grad);
            rest = more;
        }
        let tag = self.peers.weights.layer(index as u16);
        self.started.push((index, self.peers.link.comm.start_all_reduce(tag, grads)));
    }

    /// Blocks until all sums are available and copies them to the gradients of `model`.
    pub fn finish(self, model: &mut Model<T>) -> Result<()> {
        self.peers.enter(0, "sum of gradients");
        for (index, total) in self.started {
            let total = total.wait()?;
            let mut rest = &total[..];
            for param in model.stage_mut(index).params_mut() {
                let (own, more) = rest.split_at(param.grad.len());
                param.grad.copy_from_slice(own);
                rest = more;
            }
        }
        Ok(())
    }
}
