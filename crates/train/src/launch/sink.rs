//! The run of several ranks: rank 0 writes; a checkpoint holds a file of each rank.

use std::path::Path;

use halograph_comm::{Comm, Message, Position, Tag};
use halograph_nn::state::State;

use crate::error::Result;
use crate::event::EpochRecord;
use crate::run::{self, Checkpoint, Run, RunSink, RunStore};
use crate::tags::Control;

/// Where the ranks of a run write.
pub(super) struct RankedRunSink<'a> {
    comm: &'a Comm,
    /// On rank 0 only.
    run: Option<&'a mut dyn RunStore>,
    /// Where checkpoints go; `None` if the run has no directory.
    directory: Option<Directory<'a>>,
    /// Layout of the parts.
    partition: &'a str,
}

/// The run directory as this rank sees it.
#[derive(Clone, Copy)]
struct Directory<'a> {
    path: &'a Path,
    /// Whether `path` is the directory that rank 0 writes, and not one of the same name on another host.
    is_shared: bool,
}

impl<'a> RankedRunSink<'a> {
    /// Creates the sink of a rank; finds out whether it shares the directory that rank 0 writes. Collective; blocks.
    pub fn new(
        comm: &'a Comm,
        mut run: Option<&'a mut dyn RunStore>,
        path: Option<&'a Path>,
        partition: &'a str,
    ) -> Result<Self> {
        let Some(path) = path else {
            return Ok(RankedRunSink { comm, run, directory: None, partition });
        };
        let token = run.as_mut().and_then(|run| run.directory()).map(|run| run.write_token()).transpose()?;
        let token = token.map(|token| Message::of(token.as_bytes()));
        let token = comm.broadcast(Control::RunMark.tag(), 0, token)?;
        let is_shared = run::is_same_directory(path, &String::from_utf8_lossy(token.as_slice::<u8>()?));
        Ok(RankedRunSink { comm, run, directory: Some(Directory { path, is_shared }), partition })
    }

    /// Returns the run directory on rank 0.
    fn written(&mut self) -> Option<&mut Run> {
        self.run.as_mut()?.directory()
    }

    /// Writes this rank's file of a checkpoint that was begun; returns what all ranks have written. Collective; blocks.
    fn write_ranks(&self, to: Directory, checkpoint: &Checkpoint, tag: Tag) -> Result<Vec<Message>> {
        let (rank, at) = (self.comm.rank(), checkpoint.point());
        let written = run::write_rank(to.path, at, rank, &checkpoint.state, to.is_shared)?;
        let text = serde_json::to_vec(&written).expect("numbers and names always serialise");
        Ok(self.comm.all_gather(tag, Message::of(&text))?)
    }
}

impl RunSink for RankedRunSink<'_> {
    fn record(&mut self, epoch: &EpochRecord) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| run.record(epoch))
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| run.save_weights(weights))
    }

    /// Every rank writes its file; then rank 0 completes the checkpoint; only then older ones are removed.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<bool> {
        let Some(directory) = self.directory else { return Ok(false) };
        let (comm, at) = (self.comm, checkpoint.point());
        let (epoch, step) = (at.epoch as u32, at.step as u32);
        comm.set_position(Position { epoch, step, layer: 0, chunk: 0, phase: "checkpoint" });
        let tag = |control: Control| control.tag().epoch(epoch).step(step);
        let begun = match self.written() {
            Some(run) => Some(Message::of(&[run.begin_checkpoint(at)? as u8])),
            None => None,
        };
        if comm.broadcast(tag(Control::CheckpointBegin), 0, begun)?.expect::<u8>(1)? == [0] {
            return Ok(true);
        }
        let files = self.write_ranks(directory, checkpoint, tag(Control::CheckpointFiles));
        let files = files.inspect_err(|_| {
            // A checkpoint that will not be complete only takes space.
            self.written().iter().for_each(|run| run.abandon_checkpoint(at));
        })?;
        let partition = self.partition;
        if let Some(run) = self.written() {
            let read =
                |m: &Message| Ok(serde_json::from_slice(m.as_slice::<u8>()?).expect("as it was written"));
            let files = files.iter().map(read).collect::<Result<Vec<run::RankFile>>>()?;
            run.commit_checkpoint(checkpoint, files, partition)?;
        }
        comm.barrier(tag(Control::CheckpointDone))?;
        if !directory.is_shared {
            run::prune_rank_directory(directory.path, at, comm.rank())?;
        }
        Ok(true)
    }
}
