//! The command line as a terminal sees it: `tests/cmd/*.trycmd`. `TRYCMD=overwrite cargo test` writes them anew.

#[test]
fn the_terminal_shows_what_is_written() {
    let cases = trycmd::TestCases::new();
    // Nothing of the machine: no profile, no variables; and nobody listens on port 1.
    for variable in
        ["KUBEBID_TOKEN", "KUBEBID_TOKEN_FILE", "KUBEBID_PROFILE", "KUBEBID_CONTEXT", "KUBEBID_CA_FILE"]
    {
        cases.env(variable, "");
    }
    cases.env("KUBEBID_ENDPOINTS", "http://127.0.0.1:1");
    cases.env("XDG_CONFIG_HOME", "/nonexistent");
    cases.case("tests/cmd/*.trycmd");
}
