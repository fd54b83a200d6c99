//! Runs the commands of an operator's README.

use crate::Plane;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// The beginning of the one block that is not run: the program is that of this build.
const NOT_RUN: &str = "cargo build";

/// Runs every `sh` block of a README, in order, in a shell against a plane, and returns what the shell printed.
/// The `program` is the operator, and `flags` are added to its command `run --alone`.
///
/// # Panics
///
/// If a command fails, or the commands take more than four minutes.
pub fn run_readme(plane: &Plane, readme: &str, program: &Path, flags: &str) -> String {
    let blocks =
        readme.split("\n```sh\n").skip(1).map(|text| text.split("\n```").next().expect("a first part"));
    let (not_run, blocks): (Vec<_>, Vec<_>) = blocks.partition(|block| block.starts_with(NOT_RUN));
    assert_eq!(not_run.len(), 1, "blocks that begin with {NOT_RUN}");
    let folder = tempfile::tempdir().expect("a folder");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    symlink(examples, folder.path().join("examples")).expect("a link");
    let mut script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nexport PATH={}:{}:$PATH HOME=$PWD KUBECONFIG={}\n",
        program.parent().expect("a folder").display(),
        plane.programs().display(),
        plane.kubeconfig().display(),
    );
    for block in blocks {
        script.push_str(&format!("\ncat <<'STEP'\n{block}\nSTEP\n{block}\n"));
    }
    // Others may run an operator on this machine.
    let script = script.replace("run --alone", &format!("run {flags} --listen 127.0.0.1:0 --alone"));
    std::fs::write(folder.path().join("readme.sh"), script).expect("a written script");
    let mut shell = Command::new("timeout");
    shell
        .args(["--kill-after=5", "600", "bash", "readme.sh"])
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let done = shell.output().expect("a shell");
    let [stdout, stderr] = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let log = std::fs::read_to_string(folder.path().join("operator.log")).unwrap_or_default();
    assert!(done.status.success(), "{stdout}\n{stderr}\n{log}");
    stdout
}
