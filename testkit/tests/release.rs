//! Makes the archives of a release from small programs, and installs from them; holds the workflows to scripts of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAMS: [&str; 3] = ["kubebid", "kubebid-operator", "market-sim"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Makes the archives of copies of `true`, a program that takes any arguments.
fn archives(folder: &Path) -> PathBuf {
    let (programs, archives) = (folder.join("programs"), folder.join("archives"));
    fs::create_dir_all(&programs).unwrap();
    for program in PROGRAMS {
        fs::copy("/usr/bin/true", programs.join(program)).unwrap();
    }
    let arguments = ["--programs", programs.to_str().unwrap(), "--into", archives.to_str().unwrap()];
    let made = run(&root().join("scripts/release"), &arguments);
    assert!(made.status.success(), "{}", said(&made));
    archives
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_installer_installs_what_the_release_has_made_and_refuses_what_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let archives = archives(folder.path());
    let made = names(&archives);
    assert!(made.contains(&"SHA256SUMS".to_owned()) && made.contains(&"install.sh".to_owned()), "{made:?}");
    let archive = made.iter().find(|name| name.ends_with("linux-gnu.tar.gz")).unwrap();
    assert!(made.iter().any(|name| name.ends_with("-debug.tar.gz")), "{made:?}");

    let list = Command::new("tar").arg("-tzf").arg(archives.join(archive)).output().unwrap();
    for wanted in [
        "bin/kubebid\n",
        "bin/market-sim\n",
        "sbom/kubebid-operator.cdx.json\n",
        "LICENSE\n",
        "kubebid.service\n",
    ] {
        assert!(said(&list).contains(wanted), "{wanted} is not in\n{}", said(&list));
    }

    let (from, installer) = (archives.to_str().unwrap(), archives.join("install.sh"));
    let install =
        |into: &Path, from: [&str; 2]| run(&installer, &["--into", into.to_str().unwrap(), from[0], from[1]]);
    let prefix = folder.path().join("prefix");
    for _ in 0..2 {
        let installed = install(&prefix, ["--from", from]);
        assert!(installed.status.success(), "{}", said(&installed));
        assert_eq!(names(&prefix.join("bin")), PROGRAMS);
        assert!(run(&prefix.join("bin/kubebid"), &["--version"]).status.success());
    }
    let fetched = install(&folder.path().join("fetched"), ["--url", &format!("file://{from}")]);
    assert!(fetched.status.success(), "{}", said(&fetched));

    let mut bytes = fs::read(archives.join(archive)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(archives.join(archive), bytes).unwrap();
    let damaged = folder.path().join("damaged");
    let refused = install(&damaged, ["--from", from]);
    assert!(!refused.status.success() && said(&refused).contains("another checksum"), "{}", said(&refused));
    assert!(!damaged.exists());
    let nothing = install(&damaged, ["--from", "/nowhere"]);
    assert!(!nothing.status.success() && said(&nothing).contains("SHA256SUMS"), "{}", said(&nothing));
}

#[test]
fn the_same_programs_give_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    let sums =
        |name: &str| fs::read_to_string(archives(&folder.path().join(name)).join("SHA256SUMS")).unwrap();
    assert_eq!(sums("first"), sums("second"));
}

#[test]
fn the_workflows_are_sound() {
    let checked = run(&root().join("scripts/actionlint"), &[]);
    assert!(checked.status.success(), "{}", said(&checked));
}

/// Each step can be run on any machine.
#[test]
fn each_step_of_a_workflow_is_one_script_of_the_repository() {
    let folder = root().join(".github/workflows");
    for name in names(&folder) {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let steps: Vec<&str> = text
            .lines()
            .filter_map(|line| Some(line.trim_start().trim_start_matches("- ").strip_prefix("run:")?.trim()))
            .collect();
        assert!(!steps.is_empty(), "{name} runs nothing");
        for step in steps {
            let script = step.split(' ').next().unwrap();
            assert!(script.contains('/') && root().join(script).is_file(), "{name}: `{step}` is no script");
            assert!(!step.contains(['|', ';', '&', '>']), "{name}: `{step}` is more than one command");
        }
    }
}
