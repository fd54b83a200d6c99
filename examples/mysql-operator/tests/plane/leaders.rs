//! Two replicas, of which one writes at a time.

use crate::operator::{Operator, account};
use crate::story::{PATIENCE, Story};
use kubebid_mysql_operator::api::Mysql;
use kubebid_testkit::Account;
use serde_json::json;
use tokio::time::timeout;

/// Two replicas, each a service account of its own. The first one leads.
struct Replicas {
    accounts: [Account; 2],
    first: Operator,
    _second: Operator,
}

impl Replicas {
    /// Starts both. The Lease lasts for so many seconds.
    async fn start(story: &Story, lease_seconds: u32) -> Replicas {
        let accounts =
            ["one", "two"].map(|name| account(story.plane, story.namespace, name, story.folder.path()));
        let start = |account: &Account, identity: &str| {
            let seconds = [lease_seconds, lease_seconds / 3, lease_seconds / 3].map(|it| it.to_string());
            let lease = ["--lease-seconds", &seconds[0], "--renew-deadline-seconds", &seconds[1]];
            let more = ["--retry-period-seconds", &seconds[2], "--identity", identity];
            Operator::start(story.namespace, account, &[&lease[..], &more[..]].concat())
        };
        let first = start(&accounts[0], "one");
        story.running("shop").await;
        let second = start(&accounts[1], "two");
        let asks = || async { !accounts[1].requests().is_empty() };
        story.eventually("the second replica asks for the Lease", asks).await;
        Replicas { accounts, first, _second: second }
    }

    /// Changes the Mysql, and waits until the change is seen. The audit log has never shown two writers.
    async fn work(&self, story: &Story, cpu: &str) {
        story.patch::<Mysql>("shop", json!({"spec": {"cpu": cpu}})).await;
        story.until_condition("shop", "Service", "Available").await;
        let [one, two] = self.accounts.each_ref().map(Account::writes);
        assert!(
            !one.is_empty() && (two.is_empty() || one.iter().max() < two.iter().min()),
            "{one:?} {two:?}"
        );
    }

    fn has_taken_over(&self) -> bool {
        !self.accounts[1].writes().is_empty()
    }
}

#[tokio::test]
async fn a_replica_takes_over_when_the_leader_is_killed() {
    let story = Story::without_operator("killed").await;
    let mut replicas = Replicas::start(&story, 6).await;
    replicas.work(&story, "1").await;
    assert!(!replicas.has_taken_over());
    replicas.first.process.signal("KILL");
    replicas.first.process.ended().await;
    replicas.work(&story, "2").await;
    assert!(replicas.has_taken_over());
}

#[tokio::test]
async fn of_two_processes_of_one_name_one_leads() {
    let story = Story::without_operator("one-name").await;
    let accounts =
        ["one", "two"].map(|name| account(story.plane, story.namespace, name, story.folder.path()));
    // As on one host whose network they share.
    let [_first, second] =
        accounts.each_ref().map(|account| Operator::start(story.namespace, account, &["--identity", "host"]));
    let leads = async |operator: &Operator| {
        operator.process.page("/metrics").await.lines().any(|line| line == "mysql_operator_leader 1")
    };
    story.running("shop").await;
    let asks = || async { accounts.iter().all(|account| !account.requests().is_empty()) };
    story.eventually("both have asked for the Lease", asks).await;
    let [one, two] = accounts.each_ref().map(|account| account.writes().is_empty());
    assert!(one != two, "one of them writes");
    assert_eq!(leads(&second).await, one, "the one that writes leads");
}

#[tokio::test]
async fn a_leader_that_stands_still_writes_nothing_when_it_goes_on() {
    let story = Story::without_operator("stopped").await;
    let mut replicas = Replicas::start(&story, 6).await;
    replicas.first.process.signal("STOP");
    replicas.work(&story, "1").await;
    assert!(replicas.has_taken_over());
    replicas.first.process.signal("CONT");
    timeout(PATIENCE, replicas.first.process.ended()).await.expect("the old leader ends by itself");
    replicas.work(&story, "2").await;
}

#[tokio::test]
async fn a_leader_that_is_terminated_hands_over_at_once() {
    let story = Story::without_operator("terminated").await;
    // The Lease lasts for longer than the story.
    let mut replicas = Replicas::start(&story, 3600).await;
    replicas.first.process.signal("TERM");
    timeout(PATIENCE, replicas.first.process.ended()).await.expect("it ends");
    replicas.work(&story, "1").await;
    assert!(replicas.has_taken_over());
}
