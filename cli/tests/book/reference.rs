//! docs/reference/ is made from this build: the programs' own help, the messages and calls of the API, the table of
//! refusals. `just reference` writes it anew.

mod api;
mod messages;
mod programs;

use crate::pages::root;
use expect_test::expect_file;

/// Compares a page of docs/reference/ with what it is to be.
fn same(page: &str, text: &str) {
    expect_file![root().join("docs/reference").join(page)].assert_eq(text);
}

#[test]
fn the_commands_are_those_of_the_programs() {
    for (page, program) in
        [("cli.md", "kubebid"), ("market-sim.md", "market-sim"), ("operator.md", "kubebid-operator")]
    {
        same(page, &programs::page(program));
    }
}

#[test]
fn the_calls_and_messages_are_those_of_the_api() {
    for (page, text) in api::pages() {
        same(&page, &text);
    }
}
