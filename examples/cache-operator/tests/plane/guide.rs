//! `README.md`: every command in it is run, in order, against a plane whose pods are processes.

use crate::story::real;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const README: &str = include_str!("../../README.md");

/// A block that is not run: the program is that of this build.
const NOT_RUN: &str = "cargo build";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_works() {
    let blocks: Vec<_> =
        README.split("\n```sh\n").skip(1).map(|text| text.split("\n```").next().unwrap()).collect();
    assert_eq!(blocks.iter().filter(|block| block.starts_with(NOT_RUN)).count(), 1);
    let (plane, _) = real();
    let operator = Path::new(env!("CARGO_BIN_EXE_cache-operator")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    symlink(examples, folder.path().join("examples")).unwrap();
    let mut script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nexport PATH={}:{}:$PATH HOME=$PWD KUBECONFIG={}\n",
        operator.display(),
        plane.programs().display(),
        plane.kubeconfig().display(),
    );
    for block in blocks.iter().filter(|block| !block.starts_with(NOT_RUN)) {
        script.push_str(&format!("\ncat <<'STEP'\n{block}\nSTEP\n{block}\n"));
    }
    // Other stories have operators of their own on this plane.
    let script = script.replace("run --alone", "run --namespace default --listen 127.0.0.1:0 --alone");
    std::fs::write(folder.path().join("guide.sh"), script).unwrap();
    let done = Command::new("timeout")
        .args(["--kill-after=5", "240", "bash", "guide.sh"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = std::fs::read_to_string(folder.path().join("operator.log")).unwrap_or_default();
    assert!(done.status.success(), "{}\n{}\n{log}", text(&done.stdout), text(&done.stderr));
    assert!(text(&done.stdout).contains("statefulset.apps/shop-cache"), "{}", text(&done.stdout));
}
