//! What the operator prints, when whoever reads it has seen enough.

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for subcommand in ["crds", "policy labels", "provisioner-api"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_kubebid-operator"))
            .args(subcommand.split(' '))
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("it runs");
        assert!(ended.status.success(), "{subcommand}: {}", ended.status);
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{subcommand}");
    }
}
