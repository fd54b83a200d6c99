//! All that a program says to `--help`, command by command.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

pub(super) fn page(program: &str) -> String {
    let mut out = format!(
        "# {program}\n\nEvery command, as `{program} … --help` says it. Made by `just reference`; flags that all \
         commands have are shown once, at the top.\n"
    );
    describe(program, &mut Vec::new(), &mut out);
    out
}

fn describe(program: &str, words: &mut Vec<String>, out: &mut String) {
    let help = help(program, words);
    let shown = if words.is_empty() { help.clone() } else { own(&help) };
    let name = std::iter::once(program).chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let _ = write!(out, "\n## {name}\n\n```text\n{}\n```\n", shown.trim_end());
    for command in commands(&help) {
        words.push(command);
        describe(program, words, out);
        words.pop();
    }
}

fn help(program: &str, words: &[String]) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_kubebid")).parent().expect("a folder of programs");
    let said = Command::new(programs.join(program)).args(words).arg("--help").env_clear().output();
    let said = said.unwrap_or_else(|error| panic!("{program}, which a build of the workspace has: {error}"));
    assert!(said.status.success(), "{program} {words:?} --help");
    let text = String::from_utf8(said.stdout).expect("help is text");
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The names below "Commands:", but for `help`.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| line.starts_with("  "));
    let names =
        names.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Without the sections that all commands have.
fn own(help: &str) -> String {
    let sections = help.split("\n\n");
    let own = sections.filter(|part| !part.starts_with("Connection:\n") && !part.starts_with("Output:\n"));
    own.collect::<Vec<_>>().join("\n\n")
}
