//! `kubebid login` and the contexts of a profile.

use crate::process::{Engine, binary, sqlite, token_of};
use kubebid_client::v1::token::Role;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the tool with a profile and a standard input. Returns its exit code and all it says.
fn tool(profile: &Path, arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    for variable in
        ["KUBEBID_ENDPOINTS", "KUBEBID_TOKEN", "KUBEBID_TOKEN_FILE", "KUBEBID_AS", "KUBEBID_CONTEXT"]
    {
        command.env_remove(variable);
    }
    command.env("KUBEBID_PROFILE", profile).args(arguments);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().expect("the tool starts");
    // One that needs no input may have ended.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let done = child.wait_with_output().expect("it ends");
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
    (done.status.code(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_keeps_a_token_that_works_and_contexts_are_chosen() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let engines = folders.each_ref().map(|folder| Engine::start(&sqlite(folder.path()), folder.path(), &[]));
    let profile = folders[0].path().join("new").join("profile.toml");
    let mut tokens = Vec::new();
    for engine in &engines {
        let admin = engine.admin().await;
        tokens.push((token_of(&admin, "acme", Role::Tenant).await, engine.admin_token().await));
    }
    let endpoints = engines.each_ref().map(Engine::endpoint);
    let ok = |arguments: &[&str], input: &str| {
        let (code, said) = tool(&profile, arguments, input);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        said
    };

    // A token that no account has is not kept.
    let (code, said) = tool(&profile, &["login", "--endpoint", &endpoints[0]], "kb_wrong");
    assert!(code == Some(5) && !profile.exists(), "{said}");

    let said =
        ok(&["login", "--endpoint", &endpoints[0], "--context", "first"], &format!("{}\n", tokens[0].0));
    assert!(said.starts_with("you are acme (tenant) at"), "{said}");
    assert!(!said.contains(&tokens[0].0), "the token is shown");
    ok(&["login", "--endpoint", &endpoints[1]], &tokens[1].0);
    ok(&["login", "--context", "first"], &tokens[0].1);

    // The last login is in use; its context has both tokens.
    assert!(ok(&["whoami"], "").contains("admin"));
    assert!(ok(&["--as", "acme", "whoami"], "").contains("acme"));
    let list = ok(&["context", "list"], "");
    assert!(list.contains("first") && list.contains(&endpoints[1]), "{list}");
    assert!(tokens.iter().all(|(tenant, admin)| !list.contains(tenant) && !list.contains(admin)), "{list}");

    // Another context, for one command and from now on.
    let second = endpoints[1].strip_prefix("http://").unwrap();
    assert!(ok(&["--context", second, "whoami"], "").contains("acme"));
    ok(&["context", "use", second], "");
    assert!(ok(&["whoami"], "").contains("acme"));
    let (code, said) = tool(&profile, &["context", "use", "third"], "");
    assert!(code == Some(2) && said.contains("it has:"), "{said}");
    ok(&["context", "rm", second], "");
    assert!(!ok(&["context", "ls"], "").contains(second));
}
