//! Holds the layers of the packages: root modules of a package form no cycle, and a layer of the engine imports only
//! lower ones. Holds what the packages say to cargo.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which root modules each root module of a package names.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The layers of the engine, from the lowest to the highest.
const ENGINE: [&str; 11] =
    ["store", "events", "runtime", "readmodel", "lifecycle", "wire", "auth", "api", "grpc", "rest", "server"];

const PACKAGES: [&str; 17] = [
    "benches",
    "cli",
    "controller",
    "engine",
    "engine/core",
    "engine/model",
    "examples/cache-operator",
    "examples/mysql-operator",
    "examples/rust",
    "loadgen",
    "market-sim",
    "operator",
    "operator-client",
    "report",
    "strategy",
    "testkit",
    "webhook",
];

fn sources(package: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the modules that follow `crate::` in a text, each as often as it is named. Comments do not count.
fn named(text: &str) -> Vec<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let ends = |letter: char| !(letter.is_alphanumeric() || letter == '_');
    let mut modules = Vec::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            None => modules.push(path.split(ends).next().unwrap_or_default().to_owned()),
            // `use crate::{a::b, c::{d, e}}`: the names at the depth of the first brace.
            Some(list) => {
                let (mut depth, mut begins) = (1, true);
                for (at, letter) in list.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 1 => begins = true,
                        _ if begins && !letter.is_whitespace() => {
                            modules.push(list[at..].split(ends).next().unwrap_or_default().to_owned());
                            begins = false;
                        }
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
        }
    }
    modules
}

/// Returns the imports between the root modules of a package. Its binaries and its crate root are no modules.
fn imports(package: &str) -> Imports {
    let sources = sources(package);
    let mut files = Vec::new();
    rust_files(&sources, &mut files);
    let module = |path: &Path| {
        let first = path.strip_prefix(&sources).unwrap().iter().next().unwrap().to_str().unwrap().to_owned();
        first.strip_suffix(".rs").map_or(first.clone(), str::to_owned)
    };
    let modules: BTreeSet<_> = files.iter().map(|file| module(file)).collect();
    let mut imports = Imports::new();
    for file in files.iter().filter(|file| !["bin", "lib", "main"].contains(&&module(file)[..])) {
        let own = module(file);
        let named = named(&fs::read_to_string(file).unwrap());
        let others = named.into_iter().filter(|name| *name != own && modules.contains(name));
        imports.entry(own.clone()).or_default().extend(others);
    }
    imports
}

/// Returns the modules that remain when those that import no others are taken away, again and again.
fn in_cycles(mut imports: Imports) -> Vec<String> {
    loop {
        let before = imports.len();
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        imports.retain(|_, others| others.iter().any(|other| left.contains(other)));
        if imports.len() == before {
            return imports.into_keys().collect();
        }
    }
}

#[test]
fn the_root_modules_of_a_package_form_no_cycle() {
    for package in PACKAGES {
        assert_eq!(in_cycles(imports(package)), Vec::<String>::new(), "{package}: a cycle is among these");
    }
}

#[test]
fn a_layer_of_the_engine_imports_only_lower_ones() {
    let height = |module: &str| ENGINE.iter().position(|layer| *layer == module);
    for (module, others) in imports("engine") {
        let own = height(&module).unwrap_or_else(|| panic!("{module} is no layer: add it to the list"));
        for other in others {
            assert!(height(&other) < Some(own), "{module} imports {other}, which is not below it");
        }
    }
}

#[test]
fn the_edge_of_the_engine_asks_the_exchange_by_queries_alone() {
    let exchange = |line: &&str| line.split(|it: char| !it.is_alphanumeric()).any(|word| word == "Exchange");
    for layer in ["wire", "auth", "api", "grpc", "rest", "server"] {
        let mut files = vec![sources("engine").join(layer).with_extension("rs")];
        rust_files(&sources("engine").join(layer), &mut files);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let line = text.lines().find(exchange);
            assert_eq!(line, None, "{}: a handler has no code of its own there", file.display());
        }
    }
}

/// Returns the packages of the workspace, as `cargo metadata` describes them.
fn metadata() -> Vec<Value> {
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .unwrap();
    let mut metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

/// Returns each package with the packages of the workspace that it needs to build, one line each.
fn packages() -> String {
    let packages = metadata();
    let lines = packages.iter().map(|package| {
        let needed = package["dependencies"].as_array().unwrap().iter();
        let needed = needed.filter(|it| !it["path"].is_null() && it["kind"].is_null());
        let needed: BTreeSet<_> = needed.map(|it| it["name"].as_str().unwrap()).collect();
        let needed: Vec<_> = needed.into_iter().collect();
        let needed = if needed.is_empty() { "none".to_owned() } else { needed.join(", ") };
        format!("{:<18} {needed}\n", package["name"].as_str().unwrap())
    });
    lines.collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn the_list_of_packages_in_architecture_md_is_that_of_cargo() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- packages -->").unwrap();
    let (_, after) = rest.split_once("<!-- /packages -->").unwrap();
    let list = packages();
    let wanted = format!("{before}<!-- packages -->\n```text\n{list}```\n<!-- /packages -->{after}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&page, wanted).unwrap();
    } else {
        assert!(text == wanted, "run again with UPDATE_EXPECT=1; the list is\n{list}");
    }
}

/// Returns the texts of the files of a library or program. A program beside a library is one file, or a folder of its own.
fn texts(target: &Value, package: &Value) -> Vec<String> {
    let main = Path::new(target["src_path"].as_str().unwrap());
    let folder = main.parent().unwrap();
    let is_library = |target: &Value| target["kind"][0] == "lib";
    let has_library = package["targets"].as_array().unwrap().iter().any(is_library);
    let mut files = Vec::new();
    if is_library(target) || !has_library || !folder.ends_with("src") && !folder.ends_with("src/bin") {
        rust_files(folder, &mut files);
    } else {
        files.push(main.to_owned());
    }
    if is_library(target) {
        files.retain(|file| *file != folder.join("main.rs") && !file.starts_with(folder.join("bin")));
    }
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn has_tests(text: &str) -> bool {
    text.lines().any(|line| ["#[test]", "#[tokio::test"].iter().any(|it| line.trim_start().starts_with(it)))
}

/// Returns true if a comment has an example that rustdoc compiles.
fn has_examples(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let comments = lines.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
    let fences = comments.filter_map(|comment| comment.trim_start().strip_prefix("```"));
    // Each second fence ends an example.
    fences
        .step_by(2)
        .any(|language| ["", "compile_fail", "no_run", "rust", "should_panic"].contains(&language))
}

/// A test program without tests only takes time to build, and one that is not built forgets its tests.
#[test]
fn a_library_or_program_is_built_for_tests_if_it_has_some() {
    let mut faults = Vec::new();
    for package in metadata() {
        let targets = package["targets"].as_array().unwrap().iter();
        let kinds = [json!(["lib"]), json!(["bin"])];
        for target in targets.filter(|target| kinds.contains(&target["kind"])) {
            let texts = texts(target, &package);
            let examples = target["kind"][0] == "lib" && texts.iter().any(|text| has_examples(text));
            let tests = texts.iter().any(|text| has_tests(text));
            for (setting, wanted) in [("test", tests), ("doctest", examples)] {
                if target[setting] != wanted {
                    let manifest = package["manifest_path"].as_str().unwrap();
                    faults.push(format!("{manifest}: {} needs {setting} = {wanted}", target["name"]));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn imports_are_found_in_every_form() {
    let text =
        "use crate::a::B;\nuse crate::{c::D, e::{f, g}, h};\n// crate::comment\nfn i() { crate::j::k() }";
    assert_eq!(named(text), ["a", "c", "e", "h", "j"]);
    let cycle = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "")];
    let cycle = cycle.map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])));
    assert_eq!(in_cycles(cycle.into()), ["a", "b"]);
}
