//! Acts on the labels of nodes that no BidNode writes, and on the status of a NodePoolLabelSet.

use crate::api::NodePoolLabelSet;
use crate::clock;
use crate::error::Error;
use crate::label_sets::LabelSets;
use crate::observe;
use crate::plan::{label_set, labels};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::runtime::events::EventType;
use kubebid_controller::Context as PassContext;
use kubebid_controller::events::EventRecorder;
use kubebid_controller::writer::WriteError;

/// Patches a node that is not as its set wants it, and records whether the API server refuses that.
pub(crate) async fn label(node: &Node, label_sets: &LabelSets, context: &PassContext) -> Result<(), Error> {
    let name = node.name_any();
    let patch = label_sets.with_pools(|pools| labels::plan(node, pools)).of_node(node);
    let Some(patch) = patch else {
        label_sets.set_refusal(&name, None);
        return Ok(());
    };
    match context.writer.patch(node, patch).await {
        Ok(_) => {
            label_sets.set_refusal(&name, None);
            report_repair(node, label_sets, &context.events);
            Ok(())
        }
        Err(error) => {
            if let WriteError::Cluster(error) = &error
                && let kube::Error::Api(answer) = error.as_ref()
                && (400..500).contains(&answer.code)
            {
                label_sets.set_refusal(&name, Some(answer.message.clone()));
            }
            Err(error.into())
        }
    }
}

/// Records an event about a node whose annotations could not be read, and were written anew.
pub(crate) fn report_repair(node: &Node, label_sets: &LabelSets, events: &EventRecorder) {
    if labels::is_corrupt(node, label_sets.rules()) {
        let annotation = &label_sets.rules().managed_annotation;
        let note = format!(
            "annotation {annotation} or the one beside it could not be read, and is written anew: labels of an earlier \
             NodePoolLabelSet may be left"
        );
        events.publish(node, None, EventType::Warning, "ManagedLabelsRepaired", note);
    }
}

/// Writes the status of a set.
pub(crate) async fn write_status(
    set: &NodePoolLabelSet,
    label_sets: &LabelSets,
    context: &PassContext,
) -> Result<(), Error> {
    let nodes = observe::label_set::observe(set, label_sets);
    let status = label_set::status(set, &label_sets.standing(set), &nodes, clock::now());
    context.writer.status(set, &status).await?;
    Ok(())
}
