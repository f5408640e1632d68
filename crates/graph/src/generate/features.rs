//! Features: the means of a node's classes plus noise, computed while they are written.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::Spec;
use super::labels::Classes;
use crate::dataset::write::FeatureSource;
use crate::error::Result;

/// Values computed at a time.
const CHUNK: usize = 1 << 22;

/// Feature rows of a generated graph.
pub(super) struct Features<'a> {
    classes: &'a Classes<'a>,
    nodes: usize,
    cols: usize,
    /// One row per class.
    means: Vec<f32>,
    noise: Key,
}

impl<'a> Features<'a> {
    pub(super) fn new(spec: &Spec, classes: &'a Classes<'a>) -> Self {
        let key = Key::new(spec.seed, "mean");
        let scale = scale(spec);
        let means = (0..spec.classes * spec.features).map(|i| scale * key.approx_normal(i as u64)).collect();
        let noise = Key::new(spec.seed, "feature");
        Features { classes, nodes: spec.nodes, cols: spec.features, means, noise }
    }

    /// Fills in the row of `node`; `truth` is scratch space.
    fn row(&self, node: usize, row: &mut [f32], truth: &mut Vec<u32>) {
        let first = (node * self.cols) as u64;
        row.iter_mut().zip(first..).for_each(|(x, i)| *x = self.noise.approx_normal(i));
        self.classes.truth(node, truth);
        for &class in &*truth {
            let mean = &self.means[class as usize * self.cols..][..self.cols];
            row.iter_mut().zip(mean).for_each(|(x, m)| *x += m);
        }
    }
}

/// Returns the standard deviation of class means for unit noise.
///
/// `C` random directions can be distinguished in noise once their squared length exceeds about `2 ln C`, for any number of
/// columns: then the nearest mean is the right one for about half of all nodes.
fn scale(spec: &Spec) -> f32 {
    let classes = spec.classes.max(2) as f64;
    (spec.signal * (2.0 * libm::log(classes) / spec.features as f64).sqrt()) as f32
}

impl FeatureSource for Features<'_> {
    fn cols(&self) -> usize {
        self.cols
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let rows = (CHUNK / self.cols).clamp(1, self.nodes);
        let mut buffer = vec![0.0; rows * self.cols];
        for first in (0..self.nodes).step_by(rows) {
            let chunk = &mut buffer[..rows.min(self.nodes - first) * self.cols];
            chunk
                .par_chunks_mut(self.cols)
                .enumerate()
                .for_each_init(Vec::new, |truth, (i, row)| self.row(first + i, row, truth));
            sink(chunk)?;
        }
        Ok(())
    }

    fn place(&self, row: usize, column: usize) -> String {
        format!("feature {column} of generated node {row}")
    }
}
