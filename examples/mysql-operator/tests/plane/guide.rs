//! `README.md`: every command in it is run, in order, against a plane whose pods are processes.

use crate::story::real;
use kubebid_testkit::run_readme;
use std::path::Path;

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_works() {
    let (plane, _) = real();
    let program = Path::new(env!("CARGO_BIN_EXE_mysql-operator"));
    let printed = run_readme(plane, include_str!("../../README.md"), program, "");
    assert!(printed.contains("statefulset.apps/shop"), "{printed}");
}
