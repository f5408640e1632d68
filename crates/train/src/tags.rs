//! Tags of messages that are not part of a step: one registry, so that no two purposes share a tag by accident.
//!
//! Messages of a step are tagged by [`Peers`](crate::boundary::Peers).

use halograph_comm::{Purpose, Tag};

/// Messages that keep ranks together.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub enum Control {
    /// Problems with settings, before a job starts.
    Settings,
    /// The job, from rank 0.
    Job,
    /// Whether ranks could open their data.
    DataOpened,
    /// Whether ranks have enough memory.
    Admission,
    /// Whether the memory for batches suffices.
    BatchMemory,
    /// The checkpoint that a run continues from, before the run is changed.
    ResumeFiles,
    /// All ranks have checked their data and their memory.
    JobReady,
    /// The run exists; from rank 0.
    JobCreated,
    /// Where a resumed run continues.
    ResumePoint,
    /// The manifest of the checkpoint that a run continues from.
    ResumeManifest,
    /// All ranks have read their checkpoint.
    ResumeReady,
    /// A mark in the run directory that ranks look for.
    RunMark,
    /// Requests before the first step.
    Requests,
    /// Rank 0 has begun a checkpoint.
    CheckpointBegin,
    /// Digests of the files that ranks have written for a checkpoint.
    CheckpointFiles,
    /// A checkpoint is complete.
    CheckpointDone,
    /// Errors of stale rows.
    Staleness,
    /// Bytes, messages and times.
    Traffic,
    /// Compute seconds by rank.
    ComputeSeconds,
    /// Sizes of the parts of the graph.
    PartSizes,
    /// Counts of sampled batches.
    BatchCounts,
    /// Times of sampled batches.
    BatchSeconds,
    /// Waits for sampled batches.
    LongestWait,
    /// Spans of a trace.
    Trace,
    /// Sums over ranks that own different stages.
    StageSums,
    /// Weights of the stages of a rank.
    StageWeights,
    /// Compute and wait seconds of a rank.
    RankSeconds,
}

impl Control {
    /// Returns the tag of these messages.
    pub const fn tag(self) -> Tag {
        Tag::new(Purpose::Control).slot(self as u8)
    }
}

/// Messages that are exchanged once, when data is loaded. Some exist once per graph of an inductive run.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Setup {
    /// Numbers of labelled rows.
    RowCounts,
    /// Moments of feature columns.
    ColumnMoments,
    /// The part of each vertex.
    Assignment,
    /// Halo rows of a whole graph, one slot per graph.
    GraphHalo,
    /// Halo rows of a stage, one slot per graph.
    StageHalo = Setup::GraphHalo as u8 + GRAPHS,
    /// Features for a static aggregate, one slot per graph.
    StaticAggregate = Setup::StageHalo as u8 + GRAPHS,
    /// Numbers of owned vertices.
    OwnedCounts = Setup::StaticAggregate as u8 + GRAPHS,
    /// Dataset ids of training vertices.
    TrainingIds,
    /// Bytes of a batch.
    BatchBytes,
    /// Chunks of owned rows, from the rank that has computed them.
    Chunks,
    /// Numbers of training rows in chunks.
    ChunkCounts,
    /// Rows whose chunks are asked for.
    ChunkRows,
    /// Chunks of these rows.
    ChunkNumbers,
    /// Halo rows of the forward that initialises history.
    HistoryHalo,
    /// Rows between stages of different ranks in that forward.
    HistoryInput,
    /// Rows of the initial stage between these.
    HistoryInitial,
    /// Training rows of each class.
    ClassCounts,
    /// What losses are divided by.
    Divisors,
    /// Weights of training vertices.
    TrainingWeights,
}

/// Graphs of an inductive run.
const GRAPHS: u8 = 3;

impl Setup {
    /// Returns the tag of these messages.
    pub const fn tag(self) -> Tag {
        Tag::new(Purpose::Setup).slot(self as u8)
    }

    /// Returns the tag of these messages for the graph with this number.
    pub const fn of_graph(self, graph: u8) -> Tag {
        Tag::new(Purpose::Setup).slot(self as u8 + graph)
    }
}

/// Messages of an evaluation. Some exist once per graph or part of the split.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Evaluation {
    /// Boundary rows, one slot per graph.
    Rows,
    /// Scores, one slot per part of the split.
    Score = GRAPHS,
    /// Validation loss and whether outputs are finite.
    Summary = 2 * GRAPHS,
    /// Features for a static aggregate, one slot per graph.
    StaticAggregate,
    /// Rows between stages of different ranks, one slot per graph.
    StageRows = Evaluation::StaticAggregate as u8 + GRAPHS,
    /// Rows of the initial stage between these, one slot per graph.
    InitialRows = Evaluation::StageRows as u8 + GRAPHS,
    /// Scores, from the ranks of the last stage.
    Scores = Evaluation::InitialRows as u8 + GRAPHS,
    /// Counts of predictions by class, from the ranks of the last stage.
    ClassCounts,
}

impl Evaluation {
    /// Returns the tag of these messages after `epoch`; `which`: the number of the graph or part.
    pub const fn tag(self, epoch: u64, which: u8) -> Tag {
        Tag::new(Purpose::Evaluation).epoch(epoch as u32).slot(self as u8 + which)
    }
}
