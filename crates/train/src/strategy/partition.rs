//! Every rank computes the rows that it owns, and reads those of others fresh: exact, as `single`.
//!
//! ```text
//! forward    for each stage: prepare; send boundary rows; aggregate own rows meanwhile; add halo rows; finish, norm, …
//! loss       over the training rows of all ranks
//! backward   for each stage, last first: gradients of halo rows first; send them back; those of own rows and of weights
//!            meanwhile; add what came back; then the stage's parameters are summed over ranks behind the stages below
//! ```
//!
//! With `overlap` off, a rank waits for what it needs before it computes anything: the baseline that overlap is
//! measured against. Both give the same bits. Ranks end an epoch with the same gradients to the bit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halograph_comm::{Comm, Message, Position, Priority, Purpose, Reducing, Tag};
use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::buffer::Buffer;
use halograph_kernels::dropout::{Mask, dropout_in_place};
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Stage, StageCache};
use halograph_nn::norm::NormSums;
use halograph_nn::{Input, Layer, Matrix, Model, Pass};

use super::pipelined::Boundary;
use super::single::{Output, sums_are_fixed};
use crate::boundary::{Arriving, Exchange, Journey, Returned, Returning};
use crate::data::{Rows, View};
use crate::error::Result;
use crate::loss::loss;

/// A rank among others, and how it waits for them.
#[derive(Clone)]
pub struct Rank {
    /// The way to the others.
    pub comm: Comm,
    /// Whether something is computed while messages travel.
    pub overlap: bool,
    /// Nanoseconds that messages travelled while something was computed.
    pub hidden: Arc<AtomicU64>,
}

impl Rank {
    /// A rank that nothing is known of yet.
    pub fn new(comm: &Comm, overlap: bool) -> Self {
        Rank { comm: comm.clone(), overlap, hidden: Arc::default() }
    }

    fn hide(&self, time: Duration) {
        self.hidden.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Does some work that is worth a name in a trace.
    fn doing<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        let _span = self.comm.span(name);
        work()
    }
}

/// A block and what is read of other ranks in it.
#[derive(Clone)]
pub struct Shared<'b> {
    /// The edges into some owned rows.
    pub block: Arc<Block<'b>>,
    /// Absent where the stage reads no edges.
    pub exchange: Option<Arc<Exchange>>,
}

/// What each stage of a model computes of a rank's rows.
pub struct Plan<'v, T: Real> {
    /// Features of the owned rows, and the graph they are in.
    pub view: &'v View<'v, T>,
    /// The block of each stage.
    pub stages: Vec<Shared<'v>>,
}

impl<T: Real> Plan<'_, T> {
    fn pass<'p>(&'p self, key: Key, stage: usize, initial: Option<&'p Matrix<T>>) -> Pass<'p, T> {
        let key = Some(key.with(stage as u64));
        Pass { key, ids: self.view.block.ids(), initial, input_gradient: stage > 0 }
    }

    fn mask(&self, stages: &[Stage<T>], key: Key, stage: usize) -> Option<Mask<'_>> {
        self.pass(key, stage, None).mask(stages.get(stage)?.dropout)
    }
}

/// What an epoch of one rank is given.
pub struct Epoch<'a> {
    /// The rank.
    pub rank: &'a Rank,
    /// Its training rows.
    pub rows: &'a Rows,
    /// Training rows of all ranks.
    pub count: u64,
    /// Names the epoch's masks.
    pub key: Key,
    /// Its number, for tags.
    pub number: u32,
}

impl Epoch<'_> {
    fn tag(&self, purpose: Purpose, stage: usize) -> Tag {
        Tag::new(purpose).epoch(self.number).layer(stage as u16)
    }
}

/// Forward, loss and backward: the gradients of all ranks are added to those of the parameters; gives the loss of all.
///
/// `boundary` decides which version of the rows of others is read.
pub fn epoch<T: Real>(
    model: &mut Model<T>,
    plan: &Plan<T>,
    boundary: &mut Boundary<T>,
    epoch: &Epoch,
) -> Result<f64> {
    boundary.begin(epoch.number.into());
    let (forward, logits) = Forward::run(model, plan, boundary, epoch)?;
    let (own_loss, grad) = epoch.rank.doing("loss", || loss(&logits, epoch.rows, epoch.count));
    drop(logits);
    let tag = epoch.tag(Purpose::Statistics, model.stages.len());
    let total = epoch.rank.comm.start_all_reduce(tag, Buffer::from(&[own_loss][..]));
    forward.backward(model, plan, boundary, epoch, grad)?;
    Ok(total.wait()?[0])
}

/// What the backward needs of the forward.
struct Forward<T: Real> {
    caches: Vec<StageCache<T>>,
    initial: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Forward<T> {
    fn run(
        model: &mut Model<T>,
        plan: &Plan<T>,
        boundary: &mut Boundary<T>,
        epoch: &Epoch,
    ) -> Result<(Self, Arc<Matrix<T>>)> {
        let (rank, key) = (epoch.rank, epoch.key);
        let mut forward = Forward { caches: Vec::new(), initial: None };
        let mut x = match plan.mask(&model.stages, key, 0) {
            Some(mask) => plan.view.features.dropped(mask),
            None => plan.view.features.clone(),
        };
        let mut out = Arc::default();
        for l in 0..model.stages.len() {
            rank.comm.at(Position::new("forward").epoch(epoch.number).layer(l as u16));
            let mask = plan.mask(&model.stages, key, l + 1);
            let (stage, shared) = (&mut model.stages[l], &plan.stages[l]);
            let pass = plan.pass(key, l, forward.initial.as_deref());
            let mut cache = StageCache::default();
            let messages = rank.doing("prepare", || Layer::prepare(&stage.layer, x, &pass, &mut cache.layer));
            let sums = if l == 0 && sums_are_fixed(stage) {
                plan.view.fixed_sums()
            } else {
                let line = (epoch.tag(Purpose::Features, l), boundary.priority());
                let read = |arriving| boundary.features(l, arriving);
                aggregate(rank, stage, shared, messages, &pass, &mut cache, line, read)?
            };
            let span = rank.comm.span("finish");
            let finished = Layer::finish(&stage.layer, &shared.block, sums, &pass, &mut cache.layer);
            let mut merged = Ok(());
            let tag = epoch.tag(Purpose::Statistics, l);
            let merge = |moments: &mut Moments<T>| merged = merge_moments(&rank.comm, tag, moments);
            if stage.is_initial {
                // Later stages read it as it is, the next one dropped out.
                out = stage.activate(finished, None, &mut cache, merge);
                forward.initial = Some(out.clone());
                x = out.clone().into();
                x = mask.map_or(x.clone(), |mask| x.dropped(mask));
            } else {
                out = stage.activate(finished, mask, &mut cache, merge);
                x = out.clone().into();
            }
            merged?;
            drop(span);
            forward.caches.push(cache);
        }
        Ok((forward, out))
    }

    fn backward(
        mut self,
        model: &mut Model<T>,
        plan: &Plan<T>,
        boundary: &mut Boundary<T>,
        epoch: &Epoch,
        mut grad: Matrix<T>,
    ) -> Result<()> {
        let (rank, key) = (epoch.rank, epoch.key);
        let mut initial_grad: Option<Matrix<T>> = None;
        let mut reducing = Vec::new();
        for l in (0..model.stages.len()).rev() {
            rank.comm.at(Position::new("backward").epoch(epoch.number).layer(l as u16));
            let mut mask = plan.mask(&model.stages, key, l + 1);
            let (stage, shared) = (&mut model.stages[l], &plan.stages[l]);
            let pass = plan.pass(key, l, self.initial.as_deref());
            let mut cache = self.caches.pop().expect("a cache for every stage");
            if stage.is_initial {
                let width = grad.cols();
                mask.take().iter().for_each(|&mask| dropout_in_place(grad.data_mut(), width, mask));
                initial_grad.take().iter().for_each(|more| grad.add_at(0, T::one(), more));
            }
            let span = rank.comm.span("backward of finish");
            let mut summed = Ok(());
            // Not the tag of the forward: both may be under way.
            let tag = epoch.tag(Purpose::Statistics, l).slot(1);
            let total = |sums: &mut NormSums<T>| summed = total_sums(&rank.comm, tag, sums);
            let out = stage.activate_backward(grad, mask, &mut cache, total);
            summed?;
            let finished =
                Layer::finish_backward(&mut stage.layer, &shared.block, out, &pass, &mut cache.layer);
            drop(span);
            let below = match finished.aggregated {
                None => None,
                Some(sums) => {
                    if let Some(share) = finished.initial {
                        let like = self.initial.as_deref().expect("a stage that reads it came after it");
                        let zeros = || Matrix::zeros(like.rows(), like.cols());
                        initial_grad.get_or_insert_with(zeros).add_at(0, share, &sums);
                    }
                    let line = (epoch.tag(Purpose::Gradients, l), boundary.priority());
                    let read = |returning| boundary.gradients(l, returning);
                    let messages =
                        aggregate_backward(rank, stage, shared, sums, &pass, &mut cache, line, read)?;
                    rank.doing("backward of prepare", || {
                        Layer::prepare_backward(&mut stage.layer, messages, &pass, &mut cache.layer)
                    })
                }
            };
            reducing.push((l, start_sum(&rank.comm, epoch.tag(Purpose::Weights, l), stage)));
            match below {
                Some(below) => grad = below,
                None => break,
            }
        }
        rank.comm.at(Position::new("sum of gradients").epoch(epoch.number));
        for (l, total) in reducing {
            finish_sum(&mut model.stages[l], total)?;
        }
        Ok(())
    }
}

/// Own rows while boundary rows travel, then those that `read` takes for them.
#[expect(clippy::too_many_arguments, reason = "all that a layer needs, in one place")]
fn aggregate<T: Real>(
    rank: &Rank,
    stage: &Stage<T>,
    shared: &Shared,
    messages: Input<T>,
    pass: &Pass<T>,
    cache: &mut StageCache<T>,
    (tag, priority): (Tag, Priority),
    read: impl FnOnce(Arriving<T>) -> Result<(Input<T>, Duration)>,
) -> Result<Arc<Matrix<T>>> {
    let (layer, block, cache) = (&stage.layer, &*shared.block, &mut cache.layer);
    let Some(exchange) = &shared.exchange else {
        return Ok(Layer::aggregate(layer, block, messages, pass, cache));
    };
    let arriving = exchange.start(&rank.comm, tag, priority, &messages)?;
    let mut own =
        || rank.doing("aggregate own rows", || Layer::aggregate(layer, block, messages.clone(), pass, cache));
    let (sums, (halo, hidden)) = if rank.overlap {
        let sums = own();
        (sums, read(arriving)?)
    } else {
        let arrived = read(arriving)?;
        (own(), arrived)
    };
    rank.hide(hidden);
    drop(messages);
    Ok(rank.doing("add halo rows", || Layer::add_halo(layer, block, halo, sums, pass, cache)))
}

/// Gradients of halo rows first; those of own rows while they travel back; then what `read` takes for what came back.
#[expect(clippy::too_many_arguments, reason = "all that a layer needs, in one place")]
fn aggregate_backward<T: Real>(
    rank: &Rank,
    stage: &mut Stage<T>,
    shared: &Shared,
    sums: Arc<Matrix<T>>,
    pass: &Pass<T>,
    cache: &mut StageCache<T>,
    (tag, priority): (Tag, Priority),
    read: impl FnOnce(Returning<T>) -> Result<(Option<Returned<T>>, Duration)>,
) -> Result<Matrix<T>> {
    let (layer, block, cache) = (&mut stage.layer, &*shared.block, &mut cache.layer);
    let Some(exchange) = &shared.exchange else {
        return Ok(Layer::aggregate_backward(layer, block, sums, pass, cache));
    };
    let halo =
        rank.doing("gradients of halo rows", || Layer::halo_backward(layer, block, &sums, pass, cache));
    let returning = exchange.start_back(&rank.comm, tag, priority, &halo)?;
    drop(halo);
    let own =
        || rank.doing("gradients of own rows", || Layer::aggregate_backward(layer, block, sums, pass, cache));
    let (mut grad, (returned, hidden)) = if rank.overlap {
        let grad = own();
        (grad, read(returning)?)
    } else {
        let returned = read(returning)?;
        (own(), returned)
    };
    rank.hide(hidden);
    rank.doing("add gradients of others", || {
        returned.map_or(Ok(()), |returned| exchange.add(&returned, &mut grad))
    })?;
    Ok(grad)
}

/// Begins to sum the gradients of a stage over ranks.
fn start_sum<T: Real>(comm: &Comm, tag: Tag, stage: &Stage<T>) -> Reducing<T> {
    let grads: Vec<T> = stage.params().iter().flat_map(|p| &p.grad).copied().collect();
    comm.start_all_reduce(tag, Buffer::from(&grads[..]))
}

fn finish_sum<T: Real>(stage: &mut Stage<T>, total: Reducing<T>) -> Result<()> {
    let total = total.wait()?;
    let mut rest = &total[..];
    for param in stage.params_mut() {
        let (own, more) = rest.split_at(param.grad.len());
        param.grad.copy_from_slice(own);
        rest = more;
    }
    Ok(())
}

/// Moments of the rows of all ranks, merged in their order.
fn merge_moments<T: Real>(comm: &Comm, tag: Tag, moments: &mut Moments<T>) -> Result<()> {
    let width = moments.mean.len();
    let wide = moments.mean.iter().chain(&moments.squares).map(|x| x.wide());
    let numbers: Vec<f64> = std::iter::once(moments.count as f64).chain(wide).collect();
    let mut all: Option<Moments<T>> = None;
    for message in comm.all_gather(tag, Message::of(&numbers))? {
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

/// Sums over the rows of all ranks.
fn total_sums<T: Real>(comm: &Comm, tag: Tag, sums: &mut NormSums<T>) -> Result<()> {
    let wide = sums.along.iter().chain(&sums.plain).map(|x| x.wide());
    let mut numbers: Vec<f64> = std::iter::once(sums.count as f64).chain(wide).collect();
    comm.all_reduce(tag, &mut numbers)?;
    let (along, plain) = numbers[1..].split_at(sums.along.len());
    sums.count = numbers[0] as u64;
    sums.along.iter_mut().zip(along).for_each(|(sum, &x)| *sum = T::of(x));
    sums.plain.iter_mut().zip(plain).for_each(|(sum, &x)| *sum = T::of(x));
    Ok(())
}

/// Sums of features that never change, after one exchange.
pub fn make_fixed_sums<T: Real>(
    rank: &Rank,
    stage: &Stage<T>,
    shared: &Shared,
    features: Input<T>,
    tag: Tag,
) -> Result<Arc<Matrix<T>>> {
    let mut cache = StageCache::default();
    let line = (tag, Priority::Urgent);
    aggregate(rank, stage, shared, features, &Pass::evaluation(), &mut cache, line, Arriving::end)
}

/// The forward of evaluation, for every owned row of a view: nothing is dropped, and rows of others are fresh.
pub fn evaluate<T: Real>(
    model: &Model<T>,
    view: &View<T>,
    shared: &Shared,
    rank: &Rank,
    tag: Tag,
) -> Result<Output<T>> {
    let block = &*shared.block;
    let mut initial: Option<Arc<Matrix<T>>> = None;
    let mut x = view.features.clone();
    let last = model.stages.len() - 1;
    for (l, stage) in model.stages.iter().enumerate() {
        rank.comm.at(Position::new("evaluation").epoch(tag.epoch).layer(l as u16));
        let embeddings = (l == last).then(|| x.clone());
        let pass = Pass { ids: block.ids(), initial: initial.as_deref(), ..Pass::evaluation() };
        let mut cache = StageCache::default();
        let messages = Layer::prepare(&stage.layer, x, &pass, &mut cache.layer);
        let sums = if l == 0 && sums_are_fixed(stage) {
            view.fixed_sums()
        } else if Layer::message_width(&stage.layer) == 0 {
            Layer::aggregate(&stage.layer, block, messages, &pass, &mut cache.layer)
        } else {
            let line = (tag.layer(l as u16), Priority::Urgent);
            aggregate(rank, stage, shared, messages, &pass, &mut cache, line, Arriving::end)?
        };
        let out = stage.evaluate(Layer::finish(&stage.layer, block, sums, &pass, &mut cache.layer));
        if let Some(embeddings) = embeddings {
            return Ok(Output { logits: out, embeddings });
        }
        let out = Arc::new(out);
        if stage.is_initial {
            initial = Some(out.clone());
        }
        x = out.into();
    }
    unreachable!("the last stage returns")
}
