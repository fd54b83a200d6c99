//! docs/operator.md and docs/market-objects.md: every command in them is run, in order, and prints what they show. Every name in
//! the tables of the first is one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubebid_operator::api::{BidSlotStatus, UnusedNodes};
use kubebid_operator::crds::{self, CrdOptions};
use kubebid_operator::plan::status::{Observation, SlotReport, Supply, status};
use kubebid_testkit::{Plane, Port, missing_lines};
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../../docs/operator.md");
const MARKET_GUIDE: &str = include_str!("../../../docs/market-objects.md");

/// Blocks that are not run, by how they begin, and why.
const NOT_RUN: [(&str, &str); 1] = [("cargo build", "the programs are those of this build")];

/// The `sh` blocks, in order.
fn blocks(guide: &'static str) -> Vec<&'static str> {
    let after = guide.split("\n```sh\n").skip(1);
    after.map(|text| text.split("\n```").next().unwrap()).collect()
}

/// Fails if a guide shows an output that its commands did not print.
fn check_outputs(guide: &'static str, said: &str) {
    let outputs = guide.split("\n```\n\n```text\n").skip(1).map(|text| text.split("\n```").next().unwrap());
    let missing: Vec<_> = outputs.flat_map(|output| missing_lines(output, said)).collect();
    assert_eq!(missing, [], "not printed:\n{said}");
}

#[tokio::test]
async fn every_command_of_the_guide_works() {
    let said = run(GUIDE);
    check_outputs(GUIDE, &said);
    for expected in [
        "is to be given up by",
        "CeilingSuffices=",
        "bidnode_active_nodes{name=\"gpu\",namespace=\"default\",instance_type=\"h100-8x\"} 2",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
}

#[tokio::test]
async fn every_command_of_the_guide_of_the_market_works() {
    let said = run(MARKET_GUIDE);
    check_outputs(MARKET_GUIDE, &said);
    for expected in
        ["-  reserve: \"1.85\"", "+  reserve: \"1.75\"", "at most 8 units may be offered from here"]
    {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
}

/// Runs the commands of a guide on a plane of their own. Returns what they print.
fn run(guide: &'static str) -> String {
    let operator = Path::new(env!("CARGO_BIN_EXE_kubebid-operator"));
    let programs = operator.parent().unwrap();
    assert!(
        programs.join("kubebid").exists(),
        "the guide needs `kubebid` beside the operator, which a build of the workspace has: cargo build -p kubebid"
    );
    let run: Vec<_> = blocks(guide)
        .into_iter()
        .filter(|block| !NOT_RUN.iter().any(|(begin, _)| block.starts_with(begin)))
        .collect();
    assert_eq!(run.len() + NOT_RUN.len(), blocks(guide).len());
    let plane = Plane::start();
    let folder = tempfile::tempdir().unwrap();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    symlink(project.join("deploy"), folder.path().join("deploy")).unwrap();
    let mut script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nexport PATH={}:{}:$PATH HOME=$PWD KUBECONFIG={}\n",
        programs.display(),
        plane.programs().display(),
        plane.kubeconfig().display(),
    );
    for block in run {
        script
            .push_str(&format!("\necho \"--- after ${{SECONDS}}s\"\ncat <<'STEP'\n{block}\nSTEP\n{block}\n"));
    }
    // Others may have a market of their own on this machine.
    let ports = [7440, 7441, 7443, 7444].map(|port| (port, Port::hold()));
    for (port, held) in &ports {
        script = script.replace(&format!("127.0.0.1:{port}"), &held.address().to_string());
    }
    std::fs::write(folder.path().join("guide.sh"), &script).unwrap();
    // Its time-out ends all that it has started.
    let done = Command::new("timeout")
        .args(["--kill-after=5", "900", "bash", "guide.sh"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let log = |name| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let logs = ["operator.log", "markets.log", "offers.log"].map(log).join("\n");
    let trouble = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}\n{said}\n{trouble}\n{logs}", done.status);
    said
}

/// What stands between backquotes in the tables of a section.
fn names(section: &str) -> BTreeSet<&'static str> {
    let (_, text) = GUIDE.rsplit_once(&format!("### {section}\n")).unwrap();
    let text = text.split("\n###").next().unwrap();
    let cells = text.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// The text constants of a source that begin so.
fn constants(source: &'static str, begins: &str) -> BTreeSet<&'static str> {
    let texts = source.split('"').skip(1).step_by(2);
    texts.filter(|text| text.starts_with(begins) && !text.contains(' ')).collect()
}

#[test]
fn the_tables_have_every_field_and_no_other() {
    let [bidnode, ..] = crds::all(&CrdOptions::default()).unwrap();
    let version = &bidnode.spec.versions[0];
    let root = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    for part in ["spec", "status"] {
        let fields = root.properties.as_ref().unwrap()[part].properties.as_ref().unwrap();
        let fields: BTreeSet<_> = fields.keys().map(String::as_str).collect();
        assert_eq!(names(&format!("Fields of `{part}`")), fields);
    }
}

#[test]
fn the_tables_have_every_condition_and_no_other() {
    let gang_slot = SlotReport {
        name: "train-gang".into(),
        status: BidSlotStatus::default(),
        leaving: false,
        node_ready: false,
        price_micros: None,
        gang_nodes: Some(8),
    };
    let observation = Observation {
        previous: None,
        slots: vec![gang_slot],
        uid: "u".into(),
        generation: None,
        min_nodes: 1,
        max_bid: 1.0,
        deleting: true,
        now: Timestamp::UNIX_EPOCH,
        engine_fault: None,
        markets_left_out: 1,
        pods: None,
        overdue: None,
        supply: Supply::Unknown,
        registration_refused: None,
        invalid_annotation: Some("it is no length of time".into()),
        journal_difference: Some("it is another one".into()),
        unused_nodes: Some(UnusedNodes { count: 3, last_time: Time(Timestamp::UNIX_EPOCH) }),
        cost_micros: None,
        observed_min_nodes: None,
        price_written: None,
        cost_written: Timestamp::UNIX_EPOCH,
        status_written: None,
    };
    let status = status(&observation);
    let types: BTreeSet<_> = status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(names("Conditions"), types);
}

#[test]
fn the_tables_have_every_key_and_no_other() {
    let keys = constants(include_str!("../../src/api/names.rs"), "kubebid.io/");
    assert_eq!(names("Annotations, labels, taints"), keys);
}
