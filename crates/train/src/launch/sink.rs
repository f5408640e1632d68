//! The run of several ranks: rank 0 writes; a checkpoint holds a file of each rank.

use std::path::Path;

use halograph_comm::{Comm, Message, Position, Tag};
use halograph_nn::state::State;

use crate::error::Result;
use crate::event::Epoch;
use crate::run::{self, Checkpoint, Run};
use crate::tags::Control;
use crate::trainer::RunSink;

/// Where the ranks of a run write.
pub(super) struct RankedRunSink<'a> {
    comm: &'a Comm,
    /// On rank 0 only.
    run: Option<&'a mut Run>,
    path: &'a Path,
    /// Whether `path` is the folder that rank 0 writes, and not one of the same name on another host.
    sees_run: bool,
}

impl<'a> RankedRunSink<'a> {
    /// Finds out whether this rank sees the folder that rank 0 writes. Collective; blocks.
    pub fn new(comm: &'a Comm, run: Option<&'a mut Run>, path: &'a Path) -> Result<Self> {
        let mark = run.as_ref().map(|run| run.mark()).transpose()?;
        let mark = mark.map(|mark| Message::of(mark.as_bytes()));
        let mark = comm.broadcast(Control::RunMark.tag(), 0, mark)?;
        let sees_run = run::sees(path, &String::from_utf8_lossy(mark.as_slice::<u8>()?));
        Ok(RankedRunSink { comm, run, path, sees_run })
    }

    /// Writes this rank's file of a checkpoint that was begun; returns what all ranks have written. Collective; blocks.
    fn write_ranks(&self, checkpoint: &Checkpoint, tag: Tag) -> Result<Vec<Message>> {
        let (rank, at) = (self.comm.rank(), checkpoint.point());
        let written = run::write_rank(self.path, at, rank, &checkpoint.state, self.sees_run)?;
        let text = serde_json::to_vec(&written).expect("numbers and names always serialise");
        Ok(self.comm.all_gather(tag, Message::of(&text))?)
    }
}

impl RunSink for RankedRunSink<'_> {
    fn record(&mut self, epoch: &Epoch) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.record(epoch)?))
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.save_weights(weights)?))
    }

    /// Every rank writes its file; then rank 0 completes the checkpoint; only then older ones are removed.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (comm, at) = (self.comm, checkpoint.point());
        let (epoch, step) = (at.epoch as u32, at.step as u32);
        comm.set_position(Position { epoch, step, layer: 0, chunk: 0, phase: "checkpoint" });
        let tag = |control: Control| control.tag().epoch(epoch).step(step);
        let begun = match &mut self.run {
            Some(run) => Some(Message::of(&[run.begin_checkpoint(at)? as u8])),
            None => None,
        };
        if comm.broadcast(tag(Control::CheckpointBegin), 0, begun)?.expect::<u8>(1)? == [0] {
            return Ok(());
        }
        let written = self.write_ranks(checkpoint, tag(Control::CheckpointFiles)).inspect_err(|_| {
            // A checkpoint that will not be complete only takes space.
            self.run.iter().for_each(|run| run.abandon_checkpoint(at));
        })?;
        if let Some(run) = &mut self.run {
            let read =
                |m: &Message| Ok(serde_json::from_slice(m.as_slice::<u8>()?).expect("as it was written"));
            let written = written.iter().map(read).collect::<Result<Vec<run::Written>>>()?;
            run.commit_checkpoint(checkpoint, written)?;
        }
        comm.barrier(tag(Control::CheckpointDone))?;
        if !self.sees_run {
            run::prune_annex(self.path, at, comm.rank())?;
        }
        Ok(())
    }
}
