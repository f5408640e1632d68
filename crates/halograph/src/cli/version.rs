//! The text of `--version`.

use halograph_kernels::simd::Level;

/// Returns the version, the transports and the instruction set in use: `0.1.0 (MPI, AVX2)`.
pub fn text() -> String {
    let mpi = if cfg!(feature = "mpi") { "MPI" } else { "no MPI" };
    format!("{} ({mpi}, {})", env!("CARGO_PKG_VERSION"), Level::best().name())
}
