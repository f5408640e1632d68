//! One layer on one block, with the exchange of its halo rows.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_nn::erased::{AnyCache, AnyLayer};
use halograph_nn::{Input, Layer, Matrix, Pass};

use super::StageBlock;
use crate::boundary::{Exchange, HaloSource, Peers};
use crate::config::RowEncoding;
use crate::error::Result;

/// Rows that were sent and received in the forward, if only gradients of their nonzero entries are returned.
pub(super) struct RectifiedRows<T: Real> {
    sent: Arc<Matrix<T>>,
    halo: Arc<Matrix<T>>,
}

/// The aggregate of a layer, and the rows that were exchanged for it.
pub(super) type Aggregated<T> = (Arc<Matrix<T>>, Option<RectifiedRows<T>>);

/// What the steps of one layer have in common.
pub(super) struct LayerRun<'r, T: Real> {
    /// Index of the stage in the whole model.
    pub stage: usize,
    pub block: &'r StageBlock<'r>,
    pub pass: Pass<'r, T>,
    /// How rows are sent.
    pub encoding: RowEncoding,
    pub peers: Option<Peers<'r>>,
}

impl<T: Real> LayerRun<'_, T> {
    /// Runs `work`, as a span of the trace if there is one.
    pub fn timed<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        let _span = self.peers.map(|peers| peers.span(name));
        work()
    }

    /// Returns the exchange of the layer's halo rows and its ranks, if the layer reads edges.
    fn exchange(&self, layer: &AnyLayer<T>) -> Option<(&Exchange, Peers<'_>)> {
        self.block.exchange.as_deref().zip(self.peers).filter(|_| Layer::message_width(layer) > 0)
    }

    fn edges(&self) -> &Block<'_> {
        &self.block.block
    }

    /// Aggregates owned rows while halo rows are in flight, then adds halo rows. Also returns what
    /// [`LayerRun::aggregate_backward`] needs.
    pub fn aggregate(
        &self,
        layer: &AnyLayer<T>,
        messages: Input<T>,
        halo: &mut dyn HaloSource<T>,
        cache: &mut AnyCache,
    ) -> Result<Aggregated<T>> {
        let (block, pass) = (self.edges(), &self.pass);
        let Some((exchange, peers)) = self.exchange(layer) else {
            return Ok((Layer::aggregate(layer, block, messages, pass, cache), None));
        };
        let how = (halo.priority(), self.encoding);
        let started = peers.start_features(self.stage, exchange, how, &messages)?;
        let mut own = || {
            self.timed("aggregate own rows", || Layer::aggregate(layer, block, messages.clone(), pass, cache))
        };
        let (sums, (rows, hidden)) = if peers.overlap() {
            let sums = own();
            (sums, halo.features(self.stage, &messages, started)?)
        } else {
            let arrived = halo.features(self.stage, &messages, started)?;
            (own(), arrived)
        };
        peers.add_hidden(hidden);
        let kept = (self.encoding == RowEncoding::Nonzero)
            .then(|| RectifiedRows { sent: messages.full(), halo: rows.full() });
        drop(messages);
        let sums = self.timed("add halo rows", || Layer::add_halo(layer, block, rows, sums, pass, cache));
        Ok((sums, kept))
    }

    /// Computes and sends the gradients of halo rows; computes those of owned rows meanwhile; adds the received ones. `kept`:
    /// what [`LayerRun::aggregate`] returned.
    pub fn aggregate_backward(
        &self,
        layer: &mut AnyLayer<T>,
        sums: Arc<Matrix<T>>,
        (halo, kept): (&mut dyn HaloSource<T>, Option<RectifiedRows<T>>),
        cache: &mut AnyCache,
    ) -> Result<Matrix<T>> {
        let (block, pass) = (self.edges(), &self.pass);
        let Some((exchange, peers)) = self.exchange(layer) else {
            return Ok(Layer::aggregate_backward(layer, block, sums, pass, cache));
        };
        let halo_grad =
            self.timed("gradients of halo rows", || Layer::halo_backward(layer, block, &sums, pass, cache));
        let halo_grad = halo.returned(self.stage, halo_grad);
        let (sent, read) = kept.map(|RectifiedRows { sent, halo }| (sent, halo)).unzip();
        let started =
            peers.start_gradients(self.stage, exchange, halo.priority(), &halo_grad, read.as_deref())?;
        drop(halo_grad);
        let own = || {
            self.timed("gradients of own rows", || Layer::aggregate_backward(layer, block, sums, pass, cache))
        };
        let (mut grad, (returned, hidden)) = if peers.overlap() {
            let grad = own();
            (grad, halo.gradients(self.stage, started)?)
        } else {
            let returned = halo.gradients(self.stage, started)?;
            (own(), returned)
        };
        peers.add_hidden(hidden);
        halo.add_kept(self.stage, &mut grad);
        self.timed("add returned gradients", || {
            returned.map_or(Ok(()), |returned| exchange.add_gradients(&returned, &mut grad, sent.as_deref()))
        })?;
        Ok(grad)
    }
}
