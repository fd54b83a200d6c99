//! Objects that a program cannot read: a field has a value of the next version. The others are served.

use crate::story::{Story, eventually, run};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{CustomResourceExt as _, ResourceExt as _};
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::{Action, Context, ControllerOptions, Error, Manager, Options, Reconciler, Watch};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// The kind as the program knows it.
mod present {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(kube::CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Paint", namespaced, status = "PaintStatus")]
    pub(super) struct PaintSpec {
        pub(super) color: Color,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub(super) enum Color {
        Red,
        Blue,
    }

    #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct PaintStatus {
        #[serde(default)]
        pub(super) seen: Option<Color>,
        #[serde(default)]
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        pub(super) conditions: Vec<Condition>,
    }
}

/// The kind as the next version of the program defines it.
mod next {
    use super::present::PaintStatus;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(kube::CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Paint", namespaced, status = "PaintStatus")]
    pub(super) struct PaintSpec {
        pub(super) color: Color,
    }

    #[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
    pub(super) enum Color {
        Red,
        Blue,
        Green,
    }
}

use present::{Color, Paint, PaintStatus};

/// A reconciler that writes into the status which color it has seen.
struct Seen;

impl Reconciler for Seen {
    type Object = Paint;
    type Error = Infallible;
    const NAME: &'static str = "paints";

    async fn reconcile(&self, paint: Arc<Paint>, context: &Context) -> Result<Action, Error<Infallible>> {
        let paint = context.writer.newest(paint);
        let before = paint.status.clone().unwrap_or_default();
        let status = PaintStatus { seen: Some(paint.spec.color), ..before };
        context.writer.status(paint.as_ref(), &status).await?;
        Ok(Action::AwaitChange)
    }
}

/// Defines the kind as the next version does.
fn define(story: &Story) {
    story.plane.apply(&serde_json::to_string(&next::Paint::crd()).unwrap());
    story.plane.get(&["wait", "--for=condition=Established", "crd/paints.example.com", "--timeout=60s"]);
}

/// Returns a manager of the present program, and its watch.
fn manager(story: &Story) -> (Manager, Watch<Paint>) {
    let mut manager = Manager::new(story.client.clone(), Leadership::alone(), Options::default());
    manager.add(Seen, story.api(), ControllerOptions::default());
    let watch = manager.watch(story.api());
    (manager, watch)
}

async fn create(story: &Story, name: &str, color: &str) {
    let paint = json!({
        "apiVersion": "example.com/v1", "kind": "Paint", "metadata": {"name": name}, "spec": {"color": color},
    });
    let paint: next::Paint = serde_json::from_value(paint).unwrap();
    story.api().create(&PostParams::default(), &paint).await.unwrap();
}

async fn paint(story: &Story, name: &str, color: &str) {
    story.patch::<next::Paint>(name, json!({"spec": {"color": color}})).await;
}

/// Waits until the program has seen a color.
async fn until_seen(story: &Story, name: &str, color: Color) -> Paint {
    let is_seen = |paint: &Paint| paint.status.as_ref().is_some_and(|status| status.seen == Some(color));
    story.until::<Paint>(name, is_seen).await
}

/// Waits until the condition of an object says that the program cannot read it. Returns the object.
async fn until_unreadable(story: &Story, name: &str) -> Value {
    let condition = |paint: &Value| {
        let mut conditions = paint["status"]["conditions"].as_array().into_iter().flatten();
        conditions.find(|it| it["type"] == "Readable").cloned()
    };
    let is_said = |paint: &next::Paint| {
        let said = condition(&json!(paint));
        said.is_some_and(|it| {
            it["status"] == "False" && it["observedGeneration"] == json!(paint.metadata.generation)
        })
    };
    json!(story.until::<next::Paint>(name, is_said).await)
}

/// Returns the notes of the events that the program cannot read an object.
async fn notes(story: &Story, name: &str) -> Vec<String> {
    let of = ListParams::default().fields(&format!("involvedObject.name={name},reason=Unreadable"));
    let events = story.api::<Event>().list(&of).await.unwrap();
    events.into_iter().map(|event| event.message.unwrap_or_default()).collect()
}

fn has_condition(paint: &Paint) -> bool {
    paint.status.iter().flat_map(|status| &status.conditions).any(|it| it.type_ == "Readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_come_before_the_program_stop_no_object_but_those_it_cannot_read() {
    let story = Story::begin("definitions-first").await;
    define(&story);
    create(&story, "old", "Red").await;
    create(&story, "new", "Green").await;
    let (program, watch) = manager(&story);
    let running = run(program);
    until_seen(&story, "old", Color::Red).await;
    let object = until_unreadable(&story, "new").await;
    let message = object["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("Green"), "{message}");
    let name = kube::runtime::reflector::ObjectRef::new("new").within("definitions-first");
    assert!(watch.get(&name).is_none() && watch.unreadable(&name).is_some());
    // Objects that come later are served, and it is said once for each generation.
    create(&story, "later", "Blue").await;
    until_seen(&story, "later", Color::Blue).await;
    story.patch::<next::Paint>("new", json!({"metadata": {"labels": {"any": "thing"}}})).await;
    paint(&story, "old", "Blue").await;
    until_seen(&story, "old", Color::Blue).await;
    let notes = notes(&story, "new").await;
    assert!(notes.len() == 1 && notes[0].contains("Green"), "{notes:?}");

    // A person writes a value that the program knows.
    paint(&story, "new", "Red").await;
    until_seen(&story, "new", Color::Red).await;
    let object = story.until::<Paint>("new", |paint| !has_condition(paint)).await;
    assert_eq!(object.labels()["any"], "thing");
    eventually("it can be read", || watch.all_unreadable().is_empty()).await;
    assert!(watch.get(&name).is_some());
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_rolled_back_leaves_what_it_cannot_read_as_it_is() {
    let story = Story::begin("rolled-back").await;
    define(&story);
    let (program, watch) = manager(&story);
    let running = run(program);
    for name in ["one", "two"] {
        create(&story, name, "Red").await;
        until_seen(&story, name, Color::Red).await;
    }
    // The next version writes a value while it runs; then the present one is back.
    paint(&story, "one", "Green").await;
    let before = until_unreadable(&story, "one").await;
    assert_eq!(before["status"]["seen"], "Red", "what was there stays");
    running.abort();
    let (program, again) = manager(&story);
    let running = run(program);
    paint(&story, "two", "Blue").await;
    until_seen(&story, "two", Color::Blue).await;
    assert_eq!((watch.all_unreadable().len(), again.all_unreadable().len()), (1, 1));
    let after = story.api::<next::Paint>().get("one").await.unwrap();
    assert_eq!(
        (json!(after.spec), json!(after.status)["seen"].clone()),
        (json!({"color": "Green"}), json!("Red"))
    );
    // An object that cannot be read can be deleted.
    story.api::<next::Paint>().delete("one", &Default::default()).await.unwrap();
    eventually("it is forgotten", || again.all_unreadable().is_empty()).await;
    running.abort();
}
