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
    /// The loss left the real numbers.
    #[error(
        "epoch {epoch}: the loss is {loss}; the run stops, everything up to its last checkpoint is kept\n  \
         help: lower train.lr, or limit gradients with train.clip; `halograph data check` finds features that are \
         not finite"
    )]
    Diverged {
        /// In this epoch.
        epoch: u64,
        /// What it was.
        loss: f64,
    },
    /// The machine has not enough threads to give.
    #[error("cannot start {threads} threads: {cause}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        cause: String,
    },
}
