//! What a backward keeps of its forward.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_nn::Matrix;
use halograph_nn::model::StageCache;

use super::layer::RectifiedRows;

/// The cache of a stage, the rows exchanged for its aggregate, and the output that later stages mix in.
type StageRecord<T> = (StageCache<T>, Option<RectifiedRows<T>>, Option<Arc<Matrix<T>>>);

/// What a backward needs of the forward before it, stage by stage.
#[derive(Default)]
pub struct Tape<T: Real> {
    caches: Vec<(StageCache<T>, Option<RectifiedRows<T>>)>,
    initial: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Tape<T> {
    pub(super) fn push(
        &mut self,
        cache: StageCache<T>,
        exchanged: Option<RectifiedRows<T>>,
        initial: Option<Arc<Matrix<T>>>,
    ) {
        self.caches.push((cache, exchanged));
        self.initial = initial;
    }

    pub(super) fn pop(&mut self) -> StageRecord<T> {
        let (cache, exchanged) = self.caches.pop().expect("a forward of this stage");
        (cache, exchanged, self.initial.clone())
    }
}
