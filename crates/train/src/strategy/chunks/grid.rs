//! Where a rank is among groups of stages and ways.

use std::ops::Range;

use halograph_comm::Comm;

use crate::boundary::RankLink;
use crate::error::Result;

/// Ids of the sub-communicators.
const WAYS: u16 = 1;
const COLUMN: u16 = 2;

/// Ranks as stage groups × ways: rank `stage * ways + way` computes the stages of its group on the rows of its way.
pub struct Grid {
    /// Number of stage groups.
    pub stages: usize,
    /// Number of ways.
    pub ways: usize,
    /// The stage group of this rank.
    pub stage: usize,
    /// The way of this rank.
    pub way: usize,
    /// The ranks of the same stage group, by way.
    pub link: RankLink,
    /// The ranks of the same way, by stage group.
    pub column: Comm,
}

impl Grid {
    /// Divides all ranks into `stages` groups; their number must be a multiple of it. Does not communicate.
    pub fn new(world: &RankLink, stages: usize) -> Result<Self> {
        let (rank, ways) = (world.comm.rank(), world.comm.size() / stages);
        let (stage, way) = (rank / ways, rank % ways);
        let row: Vec<usize> = (stage * ways..(stage + 1) * ways).collect();
        let column: Vec<usize> = (0..stages).map(|stage| stage * ways + way).collect();
        let (link, column) = (world.subgroup(&row, WAYS)?, world.comm.subgroup(&column, COLUMN)?);
        Ok(Grid { stages, ways, stage, way, link, column })
    }

    /// Returns whether this rank computes the first stages.
    pub fn is_first(&self) -> bool {
        self.stage == 0
    }

    /// Returns whether this rank computes the last stages.
    pub fn is_last(&self) -> bool {
        self.stage + 1 == self.stages
    }
}

/// What a rank knows of all stages of a model, its own and those of other ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct StageLayout {
    /// The stages of each stage group.
    pub groups: Vec<Range<usize>>,
    /// Columns of the output of every stage.
    pub widths: Vec<usize>,
    /// For every stage, the largest distance from training rows of the rows that it computes; `None`: all rows.
    pub levels: Vec<Option<u8>>,
    /// The stage whose output later stages mix in, if there is one.
    pub initial: Option<usize>,
}
