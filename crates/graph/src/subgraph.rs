//! Connected components and induced subgraphs.

use crate::csr::{Csr, CsrView, Ids};

/// Returns the vertices of the largest (weakly) connected component, ascending; of equally large ones the first.
pub fn largest_component(csr: CsrView) -> Vec<u32> {
    let mut parent: Vec<u32> = (0..csr.nodes() as u32).collect();
    fn root(parent: &mut [u32], mut v: u32) -> u32 {
        while parent[v as usize] != v {
            parent[v as usize] = parent[parent[v as usize] as usize];
            v = parent[v as usize];
        }
        v
    }
    for v in 0..csr.nodes() {
        for &u in csr.row(v) {
            let (a, b) = (root(&mut parent, u), root(&mut parent, v as u32));
            // The smaller id becomes the root, so the result does not depend on edge order.
            parent[a.max(b) as usize] = a.min(b);
        }
    }
    let roots: Vec<u32> = (0..csr.nodes() as u32).map(|v| root(&mut parent, v)).collect();
    let mut sizes = vec![0u32; csr.nodes()];
    roots.iter().for_each(|&r| sizes[r as usize] += 1);
    let best = (0..sizes.len()).max_by_key(|&r| (sizes[r], std::cmp::Reverse(r)));
    (0..csr.nodes() as u32).filter(|&v| Some(roots[v as usize] as usize) == best).collect()
}

/// Returns the subgraph induced by the vertices `keep` (ascending ids), renumbered in that order.
pub fn induced(graph: &Csr, keep: &[u32]) -> Csr {
    let csr = graph.view();
    let mut new_id = vec![u32::MAX; csr.nodes()];
    keep.iter().enumerate().for_each(|(new, &old)| new_id[old as usize] = new as u32);
    let mut indptr = Vec::with_capacity(keep.len() + 1);
    let mut indices = Vec::new();
    let mut weights = graph.weights.as_ref().map(|_| Vec::new());
    indptr.push(0);
    for &old in keep {
        let row = csr.row(old as usize).iter().map(|&u| new_id[u as usize]);
        indices.extend(row.clone().filter(|&u| u != u32::MAX));
        if let (Some(kept), Some(all)) = (&mut weights, &graph.weights) {
            let of_row = &all[csr.indptr[old as usize] as usize..csr.indptr[old as usize + 1] as usize];
            kept.extend(row.zip(of_row).filter(|(u, _)| *u != u32::MAX).map(|(_, &weight)| weight));
        }
        indptr.push(indices.len() as u64);
    }
    Csr { indptr, indices: Ids::Owned(indices), weights }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_component_is_kept_and_renumbered() {
        // 0 - 1, 2 - 4 - 6, and 3 and 5 alone.
        let csr = Csr {
            indptr: vec![0, 1, 2, 3, 3, 5, 5, 6],
            indices: Ids::Owned(vec![1, 0, 4, 2, 6, 4]),
            weights: Some(vec![1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
        };
        let keep = largest_component(csr.view());
        assert_eq!(keep, [2, 4, 6]);
        let induced = induced(&csr, &keep);
        assert_eq!(induced.weights, Some(vec![2.0, 2.0, 3.0, 3.0]));
        assert_eq!((&induced.indptr[..], induced.indices.as_slice()), (&[0, 1, 3, 4][..], &[1, 0, 2, 1][..]));
    }

    #[test]
    fn without_edges_the_first_vertex_is_the_largest_component() {
        assert_eq!(largest_component(CsrView { indptr: &[0, 0, 0, 0], indices: &[] }), [0]);
        assert!(largest_component(CsrView { indptr: &[0], indices: &[] }).is_empty());
    }
}
