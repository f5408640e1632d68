//! Epochs after the first two allocate nothing large: their matrices take over the memory of those before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use halograph_graph::block::Block;
use halograph_graph::csr::CsrView;
use halograph_kernels::keyed::Key;
use halograph_nn::Matrix;
use halograph_nn::metrics::Targets;
use halograph_nn::model::{Kind, Model, Spec};
use halograph_train::data::{Rows, View};
use halograph_train::strategy::single::Plan;

/// Allocations from this many bytes on are counted: the smallest that are kept for later.
const LARGE: usize = 256 << 10;
static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add((layout.size() >= LARGE) as usize, Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 80_000;
const NEIGHBOURS: usize = 3;

#[test]
fn epochs_allocate_nothing_large() {
    let indptr: Vec<u64> = (0..=NODES as u64).map(|v| v * NEIGHBOURS as u64).collect();
    let neighbours = |v: usize| (1..=NEIGHBOURS).map(move |i| ((v + 7919 * i) % NODES) as u32);
    let indices: Vec<u32> = (0..NODES).flat_map(neighbours).collect();
    for kind in Kind::ALL {
        let block = Block::whole(CsrView { indptr: &indptr, indices: &indices });
        let view = View::new(block, Matrix::zeros(NODES, 8));
        // Some, but far from all: later layers compute fewer rows.
        let rows: Vec<u32> = (0..NODES as u32 / 3).collect();
        let rows = Rows::new(rows.clone(), Targets::Single(&vec![1; rows.len()]));
        let spec = Spec { hidden: 16, attention_dropout: 0.1, ..Spec::new(kind) };
        let mut model = Model::<f32>::new(&spec, 8, 4, 1);
        let plan = Plan::new(&model, &view, &rows).unwrap();
        let mut epoch = |e: u64| plan.step(&mut model, &rows, Key::new(1, "dropout").with(e)).unwrap();
        (0..2).for_each(|e| assert!(epoch(e).is_finite()));
        let before = COUNT.load(Relaxed);
        assert!(before > 0, "the counter counts");
        (2..5).for_each(|e| assert!(epoch(e).is_finite()));
        assert_eq!(COUNT.load(Relaxed) - before, 0, "large allocations of {}", kind.name());
    }
}
