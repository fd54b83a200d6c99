//! When an object is reconciled, and what ends a process.

use crate::example::Website;
use crate::story::{Story, eventually, run};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::manager::RunError;
use kubebid_controller::uninstall::remove_finalizer;
use kubebid_controller::{
    Action, Context, ControllerOptions, Error, Manager, Options, Reconciler, ReconcilerError,
};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// A reconciler that notes its passes.
#[derive(Clone, Default)]
struct Noted {
    passes: Arc<Mutex<Vec<Pass>>>,
    fails: bool,
    /// Each pass waits for this and then writes a status.
    gate: Option<Arc<Notify>>,
}

/// A pass over a Website.
#[derive(Clone)]
struct Pass {
    name: String,
    html: String,
    time: Instant,
}

#[derive(Debug, thiserror::Error)]
#[error("it always fails")]
struct Fails;

impl ReconcilerError for Fails {
    fn reason(&self) -> &'static str {
        "fails"
    }
}

impl Reconciler for Noted {
    type Object = Website;
    type Error = Fails;
    const NAME: &'static str = "noted";

    async fn reconcile(&self, site: Arc<Website>, context: &Context) -> Result<Action, Error<Fails>> {
        let pass = Pass { name: site.name_any(), html: site.spec.html.clone(), time: Instant::now() };
        self.passes.lock().unwrap().push(pass);
        if let Some(gate) = &self.gate {
            gate.notified().await;
            context.writer.status(site.as_ref(), &json!({"conditions": []})).await?;
        }
        if self.fails { Err(Error::Own(Fails)) } else { Ok(Action::AwaitChange) }
    }
}

impl Noted {
    /// Returns a manager of this controller for the Websites of a story.
    fn manager(&self, story: &Story, options: Options, min_interval: Duration) -> (Manager, Leadership) {
        let leadership = Leadership::alone();
        let mut manager = Manager::new(story.client.clone(), leadership.clone(), options);
        let controller = ControllerOptions { min_interval, ..ControllerOptions::default() };
        manager.add(self.clone(), story.api(), controller);
        (manager, leadership)
    }

    fn passes_over(&self, name: &str) -> Vec<Pass> {
        self.passes.lock().unwrap().iter().filter(|pass| pass.name == name).cloned().collect()
    }

    /// Waits until an object has had so many passes.
    async fn until(&self, name: &str, passes: usize) {
        eventually(&format!("{passes} passes over {name}"), || self.passes_over(name).len() >= passes).await;
    }

    /// Waits until events that are on the way have arrived: one of another object comes after them.
    async fn settled(&self, story: &Story, marker: &str) {
        story.create(marker, "").await;
        self.until(marker, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_object_is_reconciled_when_the_pause_ends() {
    let story = Story::begin("pause").await;
    let noted = Noted::default();
    let running = run(noted.manager(&story, Options::default(), Duration::ZERO).0);
    story.create("blog", "one").await;
    noted.until("blog", 1).await;
    let paused = |value| json!({"metadata": {"annotations": {"example.com/paused": value}}});
    story.patch::<Website>("blog", paused(Some("true"))).await;
    noted.settled(&story, "after-pause").await;
    let passes = noted.passes_over("blog").len();
    story.patch::<Website>("blog", json!({"spec": {"html": "two"}})).await;
    noted.settled(&story, "after-change").await;
    assert_eq!(noted.passes_over("blog").len(), passes, "a paused object was reconciled");
    story.patch::<Website>("blog", paused(None)).await;
    noted.until("blog", passes + 1).await;
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_do_not_end_a_backoff_but_people_do() {
    let story = Story::begin("backoff").await;
    let noted = Noted { fails: true, ..Noted::default() };
    let hour = Duration::from_secs(3600);
    let options = Options { backoff: hour..=hour, ..Options::default() };
    let running = run(noted.manager(&story, options, Duration::ZERO).0);
    story.create("blog", "one").await;
    noted.until("blog", 1).await;
    story.patch::<Website>("blog", json!({"metadata": {"labels": {"any": "thing"}}})).await;
    noted.settled(&story, "after-label").await;
    assert_eq!(noted.passes_over("blog").len(), 1, "an event has ended a backoff");
    let token = json!({"metadata": {"annotations": {"example.com/reconcile-at": "2026-11-23"}}});
    story.patch::<Website>("blog", token).await;
    noted.until("blog", 2).await;
    story.patch::<Website>("blog", json!({"spec": {"html": "two"}})).await;
    noted.until("blog", 3).await;
    story.api::<Website>().delete("blog", &DeleteParams::default()).await.unwrap();
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_all_the_time_is_reconciled_once_per_interval() {
    let story = Story::begin("pacing").await;
    let noted = Noted::default();
    let second = Duration::from_secs(1);
    let running = run(noted.manager(&story, Options::default(), second).0);
    story.create("blog", "0").await;
    let began = Instant::now();
    let mut changes = 0;
    while began.elapsed() < 5 * second {
        changes += 1;
        story.patch::<Website>("blog", json!({"spec": {"html": changes.to_string()}})).await;
        sleep(Duration::from_millis(100)).await;
    }
    let during = noted.passes_over("blog").len();
    assert!(during >= 3, "{during} passes during {changes} changes in 5 s");
    let has_last = || noted.passes_over("blog").last().is_some_and(|pass| pass.html == changes.to_string());
    eventually("a pass over the last change", has_last).await;
    let passes = noted.passes_over("blog");
    let gaps: Vec<_> = passes.windows(2).map(|pair| pair[1].time - pair[0].time).collect();
    // A pass notes its time some moments after it was admitted, more of them if the machine is busy. Each such moment is in two gaps.
    assert!(gaps.iter().all(|gap| *gap > second / 2), "{gaps:?}");
    assert!(gaps.iter().sum::<Duration>() > second * gaps.len() as u32 - second / 2, "{gaps:?}");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_under_way_finishes_and_none_begins_when_the_process_stops() {
    let story = Story::begin("stop").await;
    let gate = Arc::new(Notify::new());
    let noted = Noted { gate: Some(Arc::clone(&gate)), ..Noted::default() };
    let (manager, leadership) = noted.manager(&story, Options::default(), Duration::ZERO);
    let running = run(manager);
    story.create("blog", "one").await;
    noted.until("blog", 1).await;
    let finish = tokio::spawn(async move { leadership.finish().await });
    story.create("shop", "two").await;
    sleep(Duration::from_millis(500)).await;
    assert!(!finish.is_finished());
    gate.notify_one();
    finish.await.unwrap();
    assert!(story.api::<Website>().get("blog").await.unwrap().status.is_some(), "the pass did not write");
    assert!(noted.passes_over("shop").is_empty(), "a pass began");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_not_answered_in_time_ends_the_process() {
    let story = Story::begin("sync").await;
    let mut manager = Manager::new(
        story.client.clone(),
        Leadership::alone(),
        Options { sync_timeout: Duration::from_secs(2), ..Options::default() },
    );
    manager.watch::<undefined::Undefined>(story.api());
    let ended = manager.run().await;
    assert!(matches!(&ended, Err(RunError::NotSynced(kinds)) if kinds == "undefineds"), "{ended:?}");
}

/// A kind that no CustomResourceDefinition defines.
mod undefined {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(kube::CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Undefined", namespaced)]
    pub(super) struct UndefinedSpec {}
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_a_finalizer_and_no_other() {
    let story = Story::begin("uninstall").await;
    for name in ["blog", "shop"] {
        story.create(name, "").await;
    }
    let ours = "example.com/ours";
    let finalizers = json!({"metadata": {"finalizers": ["others.com/first", ours, "others.com/last"]}});
    let before = story.patch::<Website>("blog", finalizers).await;
    let (manager, _) = Noted::default().manager(&story, Options::default(), Duration::ZERO);
    let writer = manager.writer("uninstall");
    let removed = remove_finalizer::<Website>(&writer, ours).await.unwrap();
    assert_eq!(removed.iter().map(|object| object.name.as_str()).collect::<Vec<_>>(), ["blog"]);
    let blog = story.api::<Website>().get("blog").await.unwrap();
    assert_eq!(blog.finalizers(), ["others.com/first", "others.com/last"]);
    // An old copy of the object, from before another finalizer went, removes nothing else.
    let again = writer.remove_finalizer(&before, ours).await;
    assert!(again.is_err(), "{again:?}");
    assert!(remove_finalizer::<Website>(&writer, ours).await.unwrap().is_empty());
    story.patch::<Website>("blog", json!({"metadata": {"finalizers": null}})).await;
}
