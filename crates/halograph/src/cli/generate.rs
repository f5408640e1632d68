//! Shell completions and man pages, generated from the same declarations as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use halograph_graph::error::IoContext;

use super::{Args, print};

const NAME: &str = env!("CARGO_PKG_NAME");

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  halograph completions bash > ~/.local/share/bash-completion/completions/halograph"
)]
pub struct CompletionArgs {
    /// The shell
    shell: Shell,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  halograph man -o ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Folder for halograph.1, halograph-train.1, … It is created if it does not exist; existing pages are replaced
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Prints a completion script.
pub fn completions(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), NAME, &mut script);
    print(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one man page per command.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.out).at(&args.out, "create")?;
    clap_mangen::generate_to(Args::command(), &args.out).at(&args.out, "write into")?;
    print(&args.out.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
