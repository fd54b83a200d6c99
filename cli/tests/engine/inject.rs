//! Drills as they are given on a terminal: what is said, what comes of it, and that the journal replays.

use crate::journal::{played, run};
use crate::process::{Engine, binary, market_and_tenant, sqlite, token_of};
use expect_test::{Expect, expect};
use kubebid_client::Client;
use kubebid_client::v1::{self, token::Role};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::process::{Command, Output, Stdio};

const MARKET: &str = "h100/eu";
const SECOND: u64 = 1_000_000;

/// An engine on the stepped clock with a market, a provider with three units, and a tenant on two of them.
struct Drill {
    engine: Engine,
    admin: Client,
    token: String,
    _folder: tempfile::TempDir,
}

const ON: [&str; 3] = ["--clock", "stepped", "--allow-inject"];

impl Drill {
    async fn new() -> Drill {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(&sqlite(folder.path()), folder.path(), &ON);
        let (token, admin) = (engine.admin_token().await, engine.admin().await);
        let t1 = engine.client(&market_and_tenant(&admin, MARKET, "t1").await);
        let p1 = engine.client(&token_of(&admin, "p1", Role::Provider).await);
        let offer = v1::PutOfferRequest {
            market: MARKET.into(),
            capacity: 3,
            reserve_micros: 1_000_000,
            ..Default::default()
        };
        p1.put_offer(offer).await.expect("an offer");
        let bid = v1::PlaceBidRequest {
            markets: vec![MARKET.into()],
            ceiling_micros: 2_000_000,
            max_nodes: 2,
            ..Default::default()
        };
        t1.place_bid(bid).await.expect("a bid");
        for allocation in [1, 2] {
            let ready = v1::ReportReadyRequest { allocation, ..Default::default() };
            t1.report_ready(ready).await.expect("it is ready");
        }
        let drill = Drill { engine, admin, token, _folder: folder };
        drill.at(100).await;
        drill
    }

    async fn at(&self, seconds: u64) {
        let to = v1::AdvanceTimeRequest { to_us: seconds * SECOND };
        self.admin.advance_time(to).await.expect("time moves");
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["--endpoint", &self.engine.endpoint(), "--token", &self.token, "inject"]);
        command.args(arguments.split(' '));
        command
    }

    fn inject(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("the tool starts")
    }

    /// What it prints is what is expected.
    fn says(&self, arguments: &str, expected: &Expect) {
        let out = self.inject(arguments);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        expected.assert_eq(&String::from_utf8(out.stdout).expect("text"));
    }

    /// The nodes of the account that have not ended.
    async fn holds(&self, account: &str) -> usize {
        let held = v1::ListAllocationsRequest {
            account: Some(account.into()),
            states: vec![v1::allocation::State::Starting as i32, v1::allocation::State::Active as i32],
            min_seq: self.seq().await,
            ..Default::default()
        };
        self.admin.all(held).await.expect("a list").allocations.len()
    }

    /// Waits for an event of this kind behind the first `seq` commands.
    async fn event(&self, kind: &str, seq: u64) {
        let filter = v1::EventFilter { kinds: vec![kind.into()], ..Default::default() };
        let mut watch = self.admin.watch_events_from_start(Some(filter));
        loop {
            let frame = watch.next().await.expect("the watch goes on").expect("the engine is there");
            if frame.events.iter().any(|event| event.seq > seq) {
                return;
            }
        }
    }

    async fn seq(&self) -> u64 {
        self.admin.advance_time(v1::AdvanceTimeRequest { to_us: 0 }).await.expect("an answer").seq
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drills_are_off_unless_the_engine_allows_them() {
    let mut drill = Drill::new().await;
    drill.engine.restart(&["--clock", "stepped"]);
    let before = drill.seq().await;
    for arguments in [
        "preempt 1",
        "supply-loss h100/eu --units 1",
        "outage p1",
        "restore h100/eu",
        "demand h100/eu --nodes 1 --max 3 --for 10m",
        "end-demand --all",
        "rate 60",
    ] {
        let out = drill.inject(arguments);
        assert_eq!(out.status.code(), Some(3), "{arguments}");
        let said = String::from_utf8(out.stderr).expect("text");
        assert!(said.contains("INJECT_DISABLED") && said.contains("--allow-inject"), "{arguments}: {said}");
    }
    assert_eq!(drill.seq().await, before + 1, "nothing is journaled");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_drill_says_what_it_does_and_the_journal_replays() {
    let mut drill = Drill::new().await;
    drill.says(
        "preempt 1",
        &expect![[r#"
            node:  1 of t1, for bid 3
            unit:  h100/eu:p1#1
            ends:  1970-01-01T01:00:00Z (in 58m20s), when its protection is over
            p1 offers one unit less; put it back: kubebid inject restore h100/eu --provider p1 --capacity 3
        "#]],
    );
    drill.says(
        "supply-loss h100/eu --units 2",
        &expect![[r#"
            2 units are taken: 0 free, 2 held (command 9)
            ALLOCATION  TENANT  BID  UNIT          ENDS
                     3  t1        3  h100/eu:p1#3  at once
                     2  t1        3  h100/eu:p1#2  at once
            price: $1.00 before, $2.00 now
            put it back: kubebid inject restore h100/eu --provider p1 --capacity 2
        "#]],
    );
    drill.says(
        "restore --provider p1",
        &expect![[r#"
            p1 offers 3 units in h100/eu again: 3 are back
        "#]],
    );
    drill.says(
        "demand h100/eu --nodes 4 --max 5 --for 10m",
        &expect![[r#"
            bid 11 of kubebid.inject wants 4 nodes in h100/eu for up to $5.00, until 1970-01-01T00:11:40Z (in 10m)
            nodes: 1 at once, 0 after the notices of others, 3 still wanted
            price: $1.00 before, $2.00 now
            end it early: kubebid inject end-demand 11
        "#]],
    );
    assert_eq!(drill.holds("t1").await, 2);
    drill.event("ready", 11).await;

    // Killed in the middle of it.
    drill.engine.restart(&ON);
    let seq = drill.seq().await;
    drill.at(700).await;
    drill.event("ended", seq).await;
    assert_eq!(drill.holds("kubebid.inject").await, 0);
    drill.says("end-demand --all", &expect![["no demand spike is under way\n"]]);
    drill.says(
        "outage p1 --for 10ms",
        &expect![[r#"
            3 units are taken: 1 free, 2 held (command 20)
            ALLOCATION  TENANT  BID  UNIT          ENDS
                     4  t1        3  h100/eu:p1#4  at once
                     1  t1        3  h100/eu:p1#1  at once
            p1 offers 3 units in h100/eu again: 3 are back
        "#]],
    );
    drill.says(
        "restore h100/eu",
        &expect![["nothing is missing: all of these offers are as they were last put\n"]],
    );
    drill.says("rate", &expect![["the clock stands still; it is 1970-01-01T00:11:40Z\n"]]);
    drill.says(
        "rate 1000000",
        &expect![[r#"
        the clock moves 1000000 seconds a second; it is 1970-01-01T00:11:40Z
    "#]],
    );
    assert!(drill.inject("rate 0").status.success());

    let (_, hash) = played(&run(&["journal", "export", "--store", drill.engine.store()]));
    let replayed = run(&["journal", "replay", "--store", drill.engine.store()]);
    assert!(replayed.contains(&format!("state hash {hash:032x}")), "{replayed} but played {hash:032x}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_is_interrupted_is_over_at_once() {
    let drill = Drill::new().await;
    let mut outage = drill.command("outage p1 --for 1h");
    let mut outage = outage.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
    // It says so when what it takes is gone.
    let mut said = Vec::new();
    while !said.ends_with(b"putting it back in 1h") {
        let mut byte = [0];
        outage.stderr.as_mut().unwrap().read_exact(&mut byte).expect("it says so");
        said.extend(byte);
    }
    assert_eq!(drill.holds("t1").await, 0);
    kill_process(Pid::from_child(&outage), Signal::INT).expect("it runs");
    let out = outage.wait_with_output().expect("it ends");
    assert!(out.status.success(), "{:?}", out.status);
    let said = String::from_utf8(out.stdout).expect("text");
    assert!(said.ends_with("p1 offers 3 units in h100/eu again: 3 are back\n"), "{said}");
    assert_eq!(drill.holds("t1").await, 2);
}
