//! Classes of nodes: those of the block, with noise.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::Spec;
use super::blocks::Blocks;
use crate::dataset::write::Labels;

/// Multi-label: mean number of classes of a block besides its first …
const MORE_CLASSES: f64 = 2.0;
/// … and the fraction of the classes of its block that a node has.
const KEPT: f64 = 0.8;

/// Classes of blocks and nodes.
pub(super) struct Classes<'a> {
    spec: &'a Spec,
    /// Block of each node.
    block: Vec<u32>,
    /// Classes of each block, its first one first.
    sets: Vec<Vec<u32>>,
    /// One node of each block without noise, so that every class has a node.
    model: Vec<u32>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(spec: &'a Spec, blocks: &Blocks) -> Self {
        let mut block = vec![0; spec.nodes];
        for b in 0..blocks.count() {
            blocks.members(b).iter().for_each(|&v| block[v as usize] = b as u32);
        }
        let sets = (0..blocks.count()).map(|b| classes_of_block(spec, b, blocks.count())).collect();
        let model = (0..blocks.count()).map(|b| blocks.members(b)[0]).collect();
        Classes { spec, block, sets, model }
    }

    fn is_model(&self, node: usize) -> bool {
        self.model[self.block[node] as usize] as usize == node
    }

    /// Writes the classes of `node` without label noise into `out`.
    pub(super) fn truth(&self, node: usize, out: &mut Vec<u32>) {
        let set = &self.sets[self.block[node] as usize];
        out.clear();
        if set.len() == 1 || self.is_model(node) {
            return out.extend_from_slice(set);
        }
        let key = Key::new(self.spec.seed, "class").with(node as u64);
        out.extend(set.iter().filter(|&&class| key.unit(class as u64) < KEPT));
    }

    /// Returns the labels of all nodes.
    pub(super) fn labels(&self) -> Labels {
        if self.spec.multi_label { self.several() } else { Labels::Single(self.single()) }
    }

    fn single(&self) -> Vec<i64> {
        let key = Key::new(self.spec.seed, "label");
        let label = |node: usize| {
            let wrong = key.unit(2 * node as u64) < self.spec.label_noise && !self.is_model(node);
            let other = key.below(2 * node as u64 + 1, self.spec.classes as u64);
            if wrong { other as i64 } else { self.sets[self.block[node] as usize][0] as i64 }
        };
        (0..self.spec.nodes).into_par_iter().map(label).collect()
    }

    /// Replaces each class of a node by a random one with probability `label_noise`.
    fn several(&self) -> Labels {
        let classes = self.spec.classes;
        let mut flags = vec![0u8; self.spec.nodes * classes];
        flags.par_chunks_mut(classes).enumerate().for_each_init(Vec::new, |truth, (node, row)| {
            self.truth(node, truth);
            let key = Key::new(self.spec.seed, "label").with(node as u64);
            for (i, &class) in truth.iter().enumerate() {
                let wrong = key.unit(2 * i as u64) < self.spec.label_noise && !self.is_model(node);
                let other = key.below(2 * i as u64 + 1, classes as u64);
                row[if wrong { other as usize } else { class as usize }] = 1;
            }
        });
        Labels::Multi { classes, flags }
    }
}

/// Returns the classes of a block. Neighbouring blocks share their first class; multi-label blocks add others.
fn classes_of_block(spec: &Spec, block: usize, blocks: usize) -> Vec<u32> {
    let first = (block as u64 * spec.classes as u64 / blocks as u64) as u32;
    let mut set = vec![first];
    if spec.multi_label {
        let key = Key::new(spec.seed, "classes").with(block as u64);
        let share = MORE_CLASSES / spec.classes as f64;
        set.extend((0..spec.classes as u32).filter(|&c| c != first && key.unit(c as u64) < share));
    }
    set
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    fn labels(spec: &Spec) -> Labels {
        Classes::new(spec, &Blocks::new(spec)).labels()
    }

    fn spec(nodes: usize, classes: usize) -> Spec {
        Spec { nodes, classes, edges: 0, ..presets::find("small").unwrap().spec.clone() }
    }

    #[test]
    fn every_class_is_there_even_with_a_node_each_or_all_noise() {
        for spec in [spec(50, 50), spec(50, 33), Spec { label_noise: 1.0, ..spec(300, 40) }] {
            let Labels::Single(labels) = labels(&spec) else { panic!("one class a node") };
            let mut seen = vec![0; spec.classes];
            labels.iter().for_each(|&l| seen[l as usize] += 1);
            assert!(seen.iter().all(|&n| n > 0), "{seen:?}");
        }
    }

    #[test]
    fn noise_replaces_about_its_share_of_labels() {
        let clean = Spec { label_noise: 0.0, ..spec(20_000, 10) };
        let noisy = Spec { label_noise: 0.1, ..clean.clone() };
        let (Labels::Single(a), Labels::Single(b)) = (labels(&clean), labels(&noisy)) else { panic!() };
        let changed = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        // One replacement in ten hits the class that was there.
        assert!((1600..2000).contains(&changed), "{changed}");
    }

    #[test]
    fn multi_label_nodes_have_several_classes_and_every_class_has_nodes() {
        let spec = Spec { multi_label: true, ..spec(2000, 12) };
        let Labels::Multi { classes: 12, flags } = labels(&spec) else { panic!("flags") };
        assert!((0..12).all(|c| flags.iter().skip(c).step_by(12).any(|&f| f == 1)));
        let mean = flags.iter().map(|&f| f as usize).sum::<usize>() as f64 / 2000.0;
        assert!((1.5..3.5).contains(&mean), "{mean} classes a node");
        assert!(flags.iter().all(|&f| f <= 1));
    }
}
