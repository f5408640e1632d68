//! A run that rank 0 has resolved. [`Plan::commit`] is the only place where a job changes files.

use std::path::Path;

use halograph_graph::partition::Assignment;
use halograph_train::Result;
use halograph_train::run::{Header, LockedRun};
use halograph_train::trainer::ResumePoint;

use super::demo::DemoGraph;
use super::directory::NewDirectory;
use super::prepare::{Admission, Partition};
use super::trained::demo_data;
use super::{JobData, JobOptions, Lead, Note, Store, resume, start};

/// A run whose data and settings are checked. Dropping it leaves no files.
pub(super) struct Plan {
    pub data: JobData,
    /// What the run will be: the built-in graph is named where it will be.
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

    /// Does the last checks of this rank, calls `ready`, and creates or resumes the run. `ready` fails if anything speaks
    /// against that on any rank: until then nothing is changed.
    pub fn commit(
        self,
        options: &JobOptions,
        admission: Admission,
        ready: impl FnOnce() -> Result<()>,
    ) -> Result<(JobData, Lead, Vec<Note>)> {
        let Plan { data, header, partition, mut notes, demo, target } = self;
        let (store, new, from) = match target {
            Target::New(directory) => {
                ready()?;
                let (store, new) = start::create(options, &data.manifest().name, header, directory)?;
                (store, new, None)
            }
            Target::Existing(run) => {
                let found = resume::checkpoint(&run, &header.config, admission.layout.as_deref())?;
                ready()?;
                let (run, from, found) = resume::resume(*run, found, header)?;
                notes.extend(found);
                (Store::Directory(Box::new(run)), None, from)
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
    Ok(JobData::open(&home, 0)?)
}
