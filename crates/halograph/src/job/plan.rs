//! A run that rank 0 has resolved. Only [`Plan::commit`] creates or changes a run.

use std::path::Path;

use halograph_graph::partition::Assignment;
use halograph_train::Result;
use halograph_train::event::Point;
use halograph_train::run::{Header, LockedRun};
use halograph_train::trainer::ResumePoint;

use super::demo::DemoGraph;
use super::directory::NewDirectory;
use super::prepare::{Admission, Partition};
use super::trained::demo_data;
use super::{JobData, JobOptions, Lead, Note, Store, resume, start};

/// A run whose data and settings are checked. Dropping it leaves no files, except caches in the dataset directory.
pub(super) struct Plan {
    pub data: JobData,
    /// Header of the run. Names the final path of the built-in graph.
    pub header: Header,
    pub partition: Option<Partition>,
    pub notes: Vec<Note>,
    /// The built-in graph, if it must still be moved into the run directory.
    pub demo: Option<DemoGraph>,
    pub target: Target,
}

/// Where the run goes.
pub(super) enum Target {
    /// A new run, in this directory or else where the options say.
    New(Option<NewDirectory>),
    /// An existing run.
    Existing(Box<LockedRun>),
}

impl Plan {
    /// Returns the part of each node, if a dataset is trained on several ranks.
    pub fn assignment(&self) -> Option<&Assignment> {
        self.partition.as_ref().map(|partition| &partition.assignment)
    }

    /// Does the last checks of this rank, calls `ready`, and creates or resumes the run. `ready` gets the run directory and
    /// the position of the checkpoint that a run continues from, and fails if any rank is not ready; no run is changed
    /// before it returns.
    pub fn commit(
        self,
        options: &JobOptions,
        admission: Admission,
        ready: impl FnOnce(Option<(&Path, Point)>) -> Result<()>,
    ) -> Result<(JobData, Lead, Vec<Note>)> {
        let Plan { data, header, partition, mut notes, demo, target } = self;
        // The order in which these are dropped after an error: the graph, the run, then folders that are empty.
        let (new, store, from, demo) = match target {
            Target::New(mut directory) => {
                let demo = demo;
                ready(None)?;
                if directory.is_none() {
                    directory = start::new_directory(options, &data.manifest().name, &header.config)?;
                }
                let store = start::create(options, header, directory.as_ref())?;
                (directory, store, None, demo)
            }
            Target::Existing(run) => {
                let found = resume::checkpoint(&run, &header.config, admission.layout.as_deref())?;
                ready(found.checkpoint().map(|checkpoint| (run.path(), checkpoint.point())))?;
                let (run, from, resume_notes) = resume::resume(*run, found, header)?;
                notes.extend(resume_notes);
                (None, Store::Directory(Box::new(run)), from, demo)
            }
        };
        let data = match (demo, &store) {
            (Some(demo), Store::Directory(run)) => settle(demo, run.path())?,
            // Of a run in memory, the files of the graph are removed, but stay mapped.
            _ => data,
        };
        if let Some(partition) = &partition {
            partition.store(&data);
        }
        let lead = Lead {
            store,
            epochs_before: from.as_ref().map_or(0, ResumePoint::epochs),
            from,
            assignment: partition.map(|partition| partition.assignment),
            predicted: admission.predicted,
            removed: false,
            _new: new,
        };
        Ok((data, lead, notes))
    }
}

/// Moves the built-in graph into the run directory and opens it there.
fn settle(demo: DemoGraph, run: &Path) -> Result<JobData> {
    let home = demo_data(run);
    demo.move_to(&home)?;
    // It has one split, which is the chosen one.
    Ok(JobData::open(&home, 0)?)
}
