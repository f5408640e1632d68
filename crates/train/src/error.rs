//! Errors of training.

use crate::event::Point;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run could not start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bad input, or the operating system refused.
    #[error(transparent)]
    Input(#[from] halograph_graph::Error),
    /// The loss, the weights or the outputs are not finite.
    #[error(
        "epoch {epoch}{}: weights or outputs are no longer finite numbers (loss {loss}); {}\n  help: lower train.lr, or \
         limit gradients with train.clip",
        step_text(.step),
        kept_text(.checkpoint, .best)
    )]
    Diverged {
        /// Epoch, counted from 1.
        epoch: u64,
        /// Step of the epoch, counted from 0, if it has several.
        step: Option<u64>,
        /// Loss before the update of that step.
        loss: f64,
        /// The last checkpoint, if there is one.
        checkpoint: Option<Point>,
        /// The epoch of the best weights, if they were saved.
        best: Option<u64>,
    },
    /// Outputs that are not finite.
    #[error(
        "{place}: the outputs for {data} are not finite numbers\n  help: features that differ from those of the training data by \
         orders of magnitude may be the cause"
    )]
    NotFinite {
        /// Where the weights come from.
        place: String,
        /// The data that the model was applied to.
        data: String,
    },
    /// A rank was lost, failed, or was started with other settings or data.
    #[error(transparent)]
    Ranks(#[from] halograph_comm::Error),
    /// The system refused to start that many threads.
    #[error("cannot start {threads} threads: {cause}")]
    Threads {
        /// Threads requested.
        threads: usize,
        /// The system's message.
        cause: String,
    },
}

fn step_text(step: &Option<u64>) -> String {
    step.map_or(String::new(), |step| format!(", step {step}"))
}

fn kept_text(checkpoint: &Option<Point>, best: &Option<u64>) -> String {
    match (checkpoint, best) {
        (None, None) => "nothing was saved".into(),
        (None, Some(best)) => format!("the best weights so far are kept (epoch {best})"),
        (Some(at), None) => format!("the checkpoint of epoch {at} is kept"),
        (Some(at), Some(best)) => {
            format!("the checkpoint of epoch {at} and the best weights so far (epoch {best}) are kept")
        }
    }
}
