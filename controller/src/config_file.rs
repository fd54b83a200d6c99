//! Configuration by flags, environment and file, in this order: what a flag says counts before a variable, a variable
//! before the file, and the file before the default.
//!
//! Every flag has a variable. The file is YAML, with the names of the flags as keys.

use crate::output;
use clap::builder::OsStr;
use clap::error::{ErrorKind, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser, value_parser};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The flag that names the file.
const CONFIG: &str = "config";
/// The flag that prints the settings.
const DUMP_CONFIG: &str = "dump-config";

/// Parses the command line, the environment, and the file that `--config` names, for the subcommand that runs the
/// program. Its flags have variables: `prefix` and their names, as in `KUBEBID_OPERATOR_LISTEN`, unless they have one
/// already. With `--dump-config` the settings are printed instead, as a file for `--config`. Ends the process if the
/// settings are not valid.
pub fn parse<P: Parser>(subcommand: &'static str, prefix: &str) -> P {
    let command = with_configuration(P::command(), subcommand, prefix);
    let parsed =
        settings(command.clone(), subcommand, std::env::args_os().collect()).and_then(|mut matches| {
            Ok((dump(&command, subcommand, &matches), P::from_arg_matches_mut(&mut matches)?))
        });
    match parsed {
        Ok((None, program)) => program,
        Ok((Some(text), _)) => {
            if let Err(fault) = output::print(text) {
                output::note(format_args!("error: {fault}"));
                std::process::exit(1)
            }
            std::process::exit(0)
        }
        Err(said) => output::exit(&said),
    }
}

/// Adds the variables and the two flags to a subcommand.
fn with_configuration(command: Command, subcommand: &'static str, prefix: &str) -> Command {
    command.mut_subcommand(subcommand, |command| {
        let command = command
            .arg(
                Arg::new(CONFIG)
                    .long(CONFIG)
                    .value_name("FILE")
                    .value_parser(value_parser!(PathBuf))
                    .help_heading("Configuration")
                    .help("A YAML file with settings, by the names of the flags; flags and variables count before it"),
            )
            .arg(
                Arg::new(DUMP_CONFIG)
                    .long(DUMP_CONFIG)
                    .action(ArgAction::SetTrue)
                    .help_heading("Configuration")
                    .help("Print all settings as such a file, and end"),
            );
        command.mut_args(|arg| match arg.get_long() {
            Some(name) if arg.get_env().is_none() && !arg.is_hide_set() && name != DUMP_CONFIG => {
                let variable = format!("{prefix}{}", name.to_uppercase().replace('-', "_"));
                // clap keeps the names of variables for as long as the process lives.
                arg.env(OsStr::from(&*variable.leak()))
            }
            _ => arg,
        })
    })
}

/// Parses the arguments, and again with those of the file that they name.
fn settings(mut command: Command, subcommand: &str, mut arguments: Vec<OsString>) -> Result<ArgMatches> {
    // What is required may be in the file.
    let given = command.clone().ignore_errors(true).try_get_matches_from(arguments.clone());
    if let Ok(given) = &given
        && let Some(given) = given.subcommand_matches(subcommand)
        && let Some(file) = given.get_one::<PathBuf>(CONFIG)
    {
        command.build();
        let run = command.find_subcommand(subcommand).cloned().unwrap_or_default();
        for (name, value) in read(file).map_err(|why| command.error(ErrorKind::Io, why))? {
            let refuse = |why: &str| {
                run.clone().error(ErrorKind::InvalidValue, format!("{}: {name}: {why}", file.display()))
            };
            let arg = run.get_arguments().find(|arg| arg.get_long() == Some(&name) && name != CONFIG);
            let arg = arg.ok_or_else(|| refuse("there is no such setting"))?;
            let flags = flags(arg, &name, &value).map_err(refuse)?;
            let source = given.value_source(arg.get_id().as_str());
            if !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
                arguments.extend(flags);
            }
        }
    }
    command.try_get_matches_from(arguments)
}

fn read(file: &Path) -> std::result::Result<Map<String, Value>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Returns a setting of the file as flags.
fn flags(arg: &Arg, name: &str, value: &Value) -> std::result::Result<Vec<OsString>, &'static str> {
    if !arg.get_action().takes_values() {
        return match value.as_bool() {
            Some(true) => Ok(vec![format!("--{name}").into()]),
            Some(false) => Ok(Vec::new()),
            None => Err("it is true or false"),
        };
    }
    let list = value.as_array().filter(|_| arg.get_value_delimiter().is_some());
    let values = list.map_or(std::slice::from_ref(value), Vec::as_slice);
    let values = values.iter().map(|value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(is) => Ok(is.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err("it is a text, a number, or a list of them"),
    });
    let values: Vec<String> = values.collect::<std::result::Result<_, _>>()?;
    Ok(vec![format!("--{name}={}", values.join(",")).into()])
}

/// Returns the settings as a file for `--config`, if they are to be printed.
fn dump(command: &Command, subcommand: &str, matches: &ArgMatches) -> Option<String> {
    let given = matches.subcommand_matches(subcommand).filter(|given| given.get_flag(DUMP_CONFIG))?;
    let mut settings = Map::new();
    let args = command.find_subcommand(subcommand)?.get_arguments();
    for arg in args.filter(|arg| !arg.is_hide_set()) {
        let Some(name) = arg.get_long().filter(|name| ![CONFIG, DUMP_CONFIG].contains(name)) else {
            continue;
        };
        let Ok(Some(values)) = given.try_get_raw(arg.get_id().as_str()) else { continue };
        let mut values: Vec<Value> =
            values.map(|value| scalar(arg, value.to_string_lossy().into_owned())).collect();
        let value = if arg.get_value_delimiter().is_some() { json!(values) } else { values.pop()? };
        settings.insert(name.to_owned(), value);
    }
    serde_saphyr::to_string(&settings).ok()
}

fn scalar(arg: &Arg, text: String) -> Value {
    if !arg.get_action().takes_values() {
        return json!(text == "true");
    }
    text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser, Debug, PartialEq)]
    struct Program {
        #[command(subcommand)]
        command: Sub,
    }

    #[derive(clap::Subcommand, Debug, PartialEq)]
    enum Sub {
        Run {
            #[arg(long)]
            token: String,
            #[arg(long, default_value_t = 3)]
            workers: u16,
            #[arg(long, value_delimiter = ',', default_value = "a,b")]
            keys: Vec<String>,
            #[arg(long)]
            alone: bool,
            #[arg(long, hide = true)]
            secret: Option<String>,
        },
        Other,
    }

    fn parsed(arguments: &[&str]) -> Result<(ArgMatches, Command)> {
        let command =
            with_configuration(<Program as clap::CommandFactory>::command(), "run", "CONFIG_FILE_TEST_");
        let arguments = ["program"].iter().chain(arguments).map(OsString::from).collect();
        Ok((settings(command.clone(), "run", arguments)?, command))
    }

    fn run(arguments: &[&str]) -> Result<Sub> {
        let (mut matches, _) = parsed(arguments)?;
        Ok(<Program as clap::FromArgMatches>::from_arg_matches_mut(&mut matches)?.command)
    }

    fn file(text: &str) -> (PathBuf, impl Drop) {
        struct Remove(PathBuf);
        impl Drop for Remove {
            fn drop(&mut self) {
                let _ = std::fs::remove_file(&self.0);
            }
        }
        let name = format!("kubebid-config-{}-{}.yaml", std::process::id(), fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        (path.clone(), Remove(path))
    }

    #[test]
    fn a_flag_counts_before_the_file_and_the_file_before_the_default() {
        let (path, _file) = file("token: t\nworkers: 7\nkeys: [c]\nalone: true\n");
        let path = path.to_str().unwrap();
        let all = |workers, keys: &[&str]| Sub::Run {
            token: "t".to_owned(),
            workers,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            alone: true,
            secret: None,
        };
        assert_eq!(run(&["run", "--config", path]).unwrap(), all(7, &["c"]));
        assert_eq!(
            run(&["run", "--config", path, "--workers=2", "--keys=d,e"]).unwrap(),
            all(2, &["d", "e"])
        );
        assert_eq!(run(&["run", "--token=t", "--alone"]).unwrap(), all(3, &["a", "b"]));
        assert_eq!(run(&["other"]).unwrap(), Sub::Other);
    }

    #[test]
    fn what_is_not_valid_in_the_file_is_refused_by_its_name() {
        let refused = |text: &str| {
            let (path, _file) = file(text);
            run(&["run", "--token=t", "--config", path.to_str().unwrap()]).unwrap_err().to_string()
        };
        assert!(refused("nonsense: 1").contains("nonsense: there is no such setting"));
        assert!(refused("workers: many").contains("--workers"));
        assert!(refused("alone: 3").contains("alone: it is true or false"));
        assert!(refused("token: {a: 1}").contains("token: it is a text"));
        assert!(run(&["run"]).unwrap_err().to_string().contains("--token"), "what is required is");
        assert!(run(&["run", "--config", "/nowhere"]).unwrap_err().to_string().contains("/nowhere"));
    }

    #[test]
    fn the_printed_settings_are_a_file_with_the_same_settings() {
        let (matches, command) = parsed(&["run", "--token=1h", "--alone", "--dump-config"]).unwrap();
        let text = dump(&command, "run", &matches).unwrap();
        assert_eq!(text, "alone: true\nkeys:\n- a\n- b\ntoken: 1h\nworkers: 3\n");
        let (path, _file) = file(&text);
        let again = run(&["run", "--config", path.to_str().unwrap()]).unwrap();
        assert_eq!(again, run(&["run", "--token=1h", "--alone"]).unwrap());
    }
}
