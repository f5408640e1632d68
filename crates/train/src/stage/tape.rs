//! What a backward keeps of its forward.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_nn::Matrix;
use halograph_nn::model::StageCache;

/// What a backward needs of the forward before it, stage by stage.
#[derive(Default)]
pub struct Tape<T: Real> {
    caches: Vec<StageCache<T>>,
    initial: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Tape<T> {
    pub(super) fn push(&mut self, cache: StageCache<T>, initial: Option<Arc<Matrix<T>>>) {
        self.caches.push(cache);
        self.initial = initial;
    }

    pub(super) fn pop(&mut self) -> (StageCache<T>, Option<Arc<Matrix<T>>>) {
        (self.caches.pop().expect("a forward of this stage"), self.initial.clone())
    }
}
