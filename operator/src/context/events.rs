//! Event recorder: writes Kubernetes events without delaying a reconcile.

use crate::leader_election::Leadership;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

/// The name that events give as their reporting controller.
const REPORTER: &str = "kubebid-operator";

/// An event, and the object that it is about.
struct KubeEvent {
    event: Event,
    regarding: ObjectReference,
}

/// The sending end of the event recorder.
#[derive(Clone)]
pub(crate) struct Events(UnboundedSender<KubeEvent>);

impl Events {
    /// Queues an event about an object.
    pub(crate) fn record(&self, event: Event, regarding: ObjectReference) {
        // The receiver is gone when the controllers end.
        let _ = self.0.send(KubeEvent { event, regarding });
    }
}

/// Writes the queued events, one after the other.
pub(crate) struct EventRecorder {
    recorder: Recorder,
    queued: UnboundedReceiver<KubeEvent>,
    leadership: Leadership,
}

impl EventRecorder {
    /// Creates a recorder and its queue.
    pub(crate) fn new(client: Client, leadership: Leadership) -> (Self, Events) {
        let reporter = Reporter { controller: REPORTER.to_owned(), instance: None };
        let (sender, queued) = unbounded_channel();
        (EventRecorder { recorder: Recorder::new(client, reporter), queued, leadership }, Events(sender))
    }

    /// Writes events while it is polled. An event that cannot be written is logged and dropped.
    pub(crate) async fn run(mut self) {
        while let Some(KubeEvent { event, regarding }) = self.queued.recv().await {
            if !self.leadership.is_valid() {
                continue;
            }
            if let Err(error) = self.recorder.publish(&event, &regarding).await {
                warn!(%error, reason = event.reason, "an event could not be written");
            }
        }
    }
}
