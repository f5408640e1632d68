//! What a run on several ranks keeps: rank 0 writes, and a checkpoint holds a file of each rank.

use std::path::Path;

use halograph_comm::{Comm, Message, Position, Purpose, Tag};
use halograph_nn::state::State;

use crate::error::Result;
use crate::event::Epoch;
use crate::run::{self, Checkpoint, Run};
use crate::trainer::Keeper;

/// Where the ranks of a run keep what they learn.
pub(super) struct Shelf<'a> {
    comm: &'a Comm,
    /// Rank 0 alone.
    run: Option<&'a mut Run>,
    path: &'a Path,
    /// Whether `path` is the folder that rank 0 writes, and not one of the same name on another host.
    sees: bool,
}

impl<'a> Shelf<'a> {
    pub fn new(comm: &'a Comm, run: Option<&'a mut Run>, path: &'a Path) -> Result<Self> {
        let mark = run.as_ref().map(|run| run.mark()).transpose()?;
        let mark = mark.map(|mark| Message::of(mark.as_bytes()));
        let mark = comm.broadcast(Tag::new(Purpose::Control).slot(3), 0, mark)?;
        let sees = run::sees(path, &String::from_utf8_lossy(mark.as_slice::<u8>()?));
        Ok(Shelf { comm, run, path, sees })
    }
}

impl Keeper for Shelf<'_> {
    fn record(&mut self, epoch: &Epoch) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.record(epoch)?))
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.save_weights(weights)?))
    }

    /// Every rank writes its file; when all have, rank 0 makes the checkpoint whole, and only then older ones go.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (comm, epoch) = (self.comm, checkpoint.epoch);
        comm.at(Position::new("checkpoint").epoch(epoch as u32));
        let tag = Tag::new(Purpose::Control).epoch(epoch as u32);
        let begun = match &mut self.run {
            Some(run) => Some(Message::of(&[run.begin_checkpoint(epoch)? as u8])),
            None => None,
        };
        if comm.broadcast(tag, 0, begun)?.expect::<u8>(1)? == [0] {
            return Ok(());
        }
        let written = self.write_ranks(checkpoint, tag.slot(1)).inspect_err(|_| {
            // A checkpoint that will not be whole only takes space.
            self.run.iter().for_each(|run| run.abandon_checkpoint(epoch));
        })?;
        if let Some(run) = &mut self.run {
            let read =
                |m: &Message| Ok(serde_json::from_slice(m.as_slice::<u8>()?).expect("as it was written"));
            let written = written.iter().map(read).collect::<Result<Vec<run::Written>>>()?;
            run.commit_checkpoint(checkpoint, written)?;
        }
        comm.barrier(tag.slot(2))?;
        if !self.sees {
            run::prune_annex(self.path, epoch, comm.rank())?;
        }
        Ok(())
    }
}

impl Shelf<'_> {
    /// What all ranks have written for a checkpoint that was begun.
    fn write_ranks(&self, checkpoint: &Checkpoint, tag: Tag) -> Result<Vec<Message>> {
        let (comm, epoch) = (self.comm, checkpoint.epoch);
        let written = run::write_rank(self.path, epoch, comm.rank(), &checkpoint.state, self.sees)?;
        let text = serde_json::to_vec(&written).expect("numbers and names always serialise");
        Ok(comm.all_gather(tag, Message::of(&text))?)
    }
}
