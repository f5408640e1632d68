//! Why a run could not begin or go on.

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bad input, or the operating system refused.
    #[error(transparent)]
    Input(#[from] halograph_graph::Error),
    /// The loss, the weights or the outputs left the real numbers.
    #[error(
        "epoch {epoch}{}: weights or outputs are no longer finite numbers (loss {loss}); the run stops, its last \
         checkpoint and the best weights so far are kept\n  help: lower train.lr, or limit gradients with train.clip",
        step_text(.step)
    )]
    Diverged {
        /// In this epoch.
        epoch: u64,
        /// In this step of it, counted from 0, if it has several.
        step: Option<u64>,
        /// The loss before its step.
        loss: f64,
    },
    /// Weights that give no numbers.
    #[error("{place}: the outputs of these weights are not finite numbers")]
    NotFinite {
        /// Where the weights come from.
        place: String,
    },
    /// A rank was lost, failed, or does not fit the others.
    #[error(transparent)]
    Ranks(#[from] halograph_comm::Error),
    /// The machine has not enough threads to give.
    #[error("cannot start {threads} threads: {cause}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        cause: String,
    },
}

fn step_text(step: &Option<u64>) -> String {
    step.map_or(String::new(), |step| format!(", step {step}"))
}
