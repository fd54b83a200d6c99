//! `kubebid completions`

use crate::failure::Failure;
use crate::output::write_bytes;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(kubebid completions bash)
  kubebid completions zsh > ~/.zfunc/_kubebid
  kubebid completions fish > ~/.config/fish/completions/kubebid.fish")]
pub(crate) struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "kubebid", &mut script);
        write_bytes(&script)
    }
}
