//! Metrics, dashboards, alerts, their pages, and what can be set of the compose file: each name that is used is there, and
//! what is there is documented.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The only files that name metrics, each with what its names begin with in the program that is documented.
const SOURCES: [(&str, &str); 6] = [
    ("engine/src/runtime/metrics.rs", ""),
    ("engine/src/runtime/metrics/markets.rs", ""),
    ("market-sim/src/demo/metrics.rs", ""),
    ("operator/src/metrics.rs", ""),
    ("controller/src/metrics.rs", "kubebid_operator_"),
    ("webhook/src/metrics.rs", "kubebid_operator_"),
];

/// Those of Prometheus itself.
const OF_PROMETHEUS: [&str; 1] = ["up"];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = project().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder that end so.
fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(project().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(end));
    files.sort();
    assert!(!files.is_empty(), "{folder} has no {end}");
    files
}

/// Words that may be names, in order.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Every exported metric, and whether it is a histogram.
fn exported() -> BTreeMap<String, bool> {
    let mut metrics = BTreeMap::new();
    for (source, prefix) in SOURCES {
        let text = read(source);
        let compact: String = text.split_whitespace().collect();
        let constants = text.lines().filter_map(|line| {
            let (name, value) = line.trim().split_once("const ")?.1.split_once(": &str = \"")?;
            Some((name, value.strip_suffix("\";")?))
        });
        let constants = constants.map(|(constant, name)| (constant, format!("{prefix}{name}")));
        for (constant, name) in constants.filter(|(_, name)| is_metric(name)) {
            let described = |kind: &str| {
                let names = [format!("{constant},"), format!("name({constant}),")];
                names.iter().any(|name| compact.contains(&format!("describe_{kind}!({name}")))
            };
            let histogram = described("histogram");
            let gauge_or_counter = described("counter") || described("gauge");
            // Those that are written out by hand have their HELP there.
            let by_hand = text.contains(&format!("# HELP {{{constant}}}"))
                || words_after(&text, "head(").any(|word| word == constant);
            assert!(histogram || gauge_or_counter || by_hand, "{source} does not describe {name}");
            assert!(metrics.insert(name.clone(), histogram).is_none(), "{name} is there twice");
        }
    }
    metrics
}

/// The word behind each occurrence.
fn words_after<'a>(text: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| words(rest).next()).collect::<Vec<_>>().into_iter()
}

fn is_metric(name: &str) -> bool {
    ["kubebid_", "bidnode_"].iter().any(|prefix| name.starts_with(prefix))
}

/// What can be asked of Prometheus: a histogram has three names, none of them its own.
fn series() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = OF_PROMETHEUS.iter().map(|name| (*name).to_owned()).collect();
    for (name, histogram) in exported() {
        if histogram {
            names.extend(["bucket", "sum", "count"].map(|end| format!("{name}_{end}")));
        } else {
            names.insert(name);
        }
    }
    names
}

/// The metrics of a query: words before `{`, `[`, an operator or the end, that are no function, label or string.
fn queried(expression: &str) -> BTreeSet<String> {
    let mut outside_strings = String::new();
    for (index, part) in expression.split('"').enumerate() {
        if index % 2 == 0 {
            outside_strings.push_str(part);
        }
    }
    let names = words(&outside_strings).filter(|word| is_metric(word) || OF_PROMETHEUS.contains(word));
    names.map(str::to_owned).collect()
}

#[test]
fn a_query_names_its_metrics() {
    let names = queried(r#"sum by (le) (rate(kubebid_a_bucket{up="kubebid_no"}[5m])) / bidnode_b or up"#);
    assert_eq!(names, ["bidnode_b", "kubebid_a_bucket", "up"].map(str::to_owned).into());
}

#[test]
fn dashboards_ask_for_metrics_that_there_are() {
    let (series, mut titles) = (series(), BTreeSet::new());
    for file in files("deploy/grafana/dashboards", ".json") {
        let dashboard: Value = serde_json::from_str(&read(&file)).unwrap();
        let file = file.file_name().unwrap().to_string_lossy().into_owned();
        for field in ["uid", "title", "description"] {
            assert!(dashboard[field].as_str().is_some_and(|text| !text.is_empty()), "{file} has no {field}");
        }
        assert!(titles.insert(dashboard["uid"].to_string()), "{file}: its uid is another's");
        let mut asks = 0;
        for panel in dashboard["panels"].as_array().expect("panels") {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                let names = queried(query);
                assert!(!names.is_empty(), "{file}, {title}: {query} asks for no metric");
                for name in names {
                    assert!(series.contains(&name), "{file}, {title}: there is no {name}");
                }
                assert_eq!(target["datasource"]["uid"], "prometheus", "{file}, {title}");
                asks += 1;
            }
        }
        assert!(asks > 5, "{file} asks for little");
        for variable in dashboard["templating"]["list"].as_array().expect("variables") {
            let query = variable["query"]["query"].as_str().unwrap();
            assert!(queried(query).iter().all(|name| series.contains(name)), "{file}: {query}");
        }
    }
    let provisioned = read("deploy/grafana/provisioning/datasources/prometheus.yml");
    assert!(provisioned.contains("uid: prometheus\n"), "the data source that they name");
}

#[test]
fn alerts_ask_for_metrics_that_there_are_and_have_a_runbook() {
    let (series, runbooks) = (series(), read("docs/runbooks.md"));
    let mut sections: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let tests = read("deploy/prometheus/tests/kubebid.yml");
    for file in files("deploy/prometheus/rules", ".yml") {
        let rules: Value = serde_saphyr::from_str(&read(&file)).unwrap();
        for rule in
            rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
        {
            let alert = rule["alert"].as_str().expect("only alerts");
            let names = queried(rule["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{alert}");
            for name in names {
                assert!(series.contains(&name), "{alert}: there is no {name}");
            }
            assert!(rule["annotations"]["summary"].is_string(), "{alert} has no summary");
            let link = format!("docs/runbooks.md#{}", alert.to_lowercase());
            assert_eq!(rule["annotations"]["runbook_url"], link, "{alert}");
            assert!(sections.remove(alert), "docs/runbooks.md has no section {alert}");
            let section = runbooks.split(&format!("## {alert}\n")).nth(1).unwrap();
            let severity = rule["labels"]["severity"].as_str().expect("a severity");
            assert!(
                section.trim_start().starts_with(&format!("*{severity}.*")),
                "{alert}: its section says another severity"
            );
            if severity == "page" {
                assert!(
                    tests.contains(&format!("alertname: {alert}\n")),
                    "{alert} wakes people and has no test"
                );
            }
        }
    }
    assert!(sections.is_empty(), "sections without an alert: {sections:?}");
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_there() {
    let metrics = exported();
    let page = read("docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
        is_metric(name).then(|| (name.to_owned(), rest.starts_with(" | histogram |")))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), metrics);
    let series = series();
    let known = |word: &str| metrics.contains_key(word) || series.contains(word);
    let mut pages = files("docs", ".md");
    pages.push(project().join("README.md"));
    for page in pages {
        let text = read(&page);
        // `kubebid_engine=debug` and the role `kubebid_reader` name other things.
        for code in text.split('`').skip(1).step_by(2) {
            for word in words(code).filter(|word| is_metric(word)) {
                let others = [
                    "kubebid_reader",
                    "kubebid_engine",
                    "kubebid_operator",
                    "kubebid_core",
                    "kubebid_client",
                    "kubebid_testkit",
                ];
                assert!(
                    known(word) || others.contains(&word),
                    "{}: there is no metric {word}",
                    page.display()
                );
            }
        }
    }
}

#[test]
fn the_example_of_settings_has_those_of_the_compose_file_with_its_defaults() {
    let compose = read("docker-compose.yml");
    let mut used = BTreeMap::new();
    for place in compose.split("${").skip(1) {
        let place = place.split('}').next().unwrap();
        let (name, default) = place.split_once(":-").unwrap_or_else(|| panic!("${{{place}}} has no default"));
        let before = used.insert(name.to_owned(), default.to_owned());
        assert!(before.is_none_or(|before| before == default), "{name} has two defaults");
    }
    let example = read(".env.example");
    let said = example.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let said = said.map(|line| line.split_once('=').expect("NAME=value"));
    assert_eq!(
        said.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>(),
        used
    );
    for line in compose.lines().filter(|line| line.trim_start().starts_with("image: ")) {
        let tag = line.rsplit(':').next().unwrap().trim_end_matches('}');
        assert!(tag.chars().any(|c| c.is_ascii_digit()), "not pinned: {line}");
    }
}
