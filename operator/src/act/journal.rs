//! Acts on the remembered journal of the engine.

use crate::context::Context;
use crate::journal::{Comparison, JournalOptions};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta};
use kubebid_controller::api_error;
use serde_json::json;
use std::collections::BTreeMap;
use tracing::info;

/// The key of the identity in the ConfigMap.
const JOURNAL: &str = "journal";

/// Compares a journal with the remembered one. The first one is remembered, and one that an administrator accepts.
pub(crate) async fn compare(journal: &str, context: &Context) -> Result<Comparison, String> {
    if journal.is_empty() {
        // An older engine does not say which journal it has.
        return Ok(Comparison::Same);
    }
    let JournalOptions { namespace, name, accepted } = &context.options.journal;
    let maps: Api<ConfigMap> = Api::namespaced(context.slot_writer.client().clone(), namespace);
    let there = maps.get_opt(name).await.map_err(|error| api_error::message(&error))?;
    let remembered = there.as_ref().and_then(|map| map.data.as_ref()?.get(JOURNAL).cloned());
    let Some(map) = there else {
        let metadata = ObjectMeta {
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            ..ObjectMeta::default()
        };
        let data = Some(BTreeMap::from([(JOURNAL.to_owned(), journal.to_owned())]));
        let map = ConfigMap { metadata, data, ..ConfigMap::default() };
        context.slot_writer.create(&map).await.map_err(|error| error.to_string())?;
        return Ok(Comparison::Same);
    };
    match remembered {
        Some(remembered) if remembered == journal => return Ok(Comparison::Same),
        Some(remembered) if accepted.as_deref() != Some(journal) => {
            return Ok(Comparison::Different(format!(
                "the engine has the journal {journal}, and the operator knows {remembered}: no node is given up because the engine does \
                 not know its bid. Correct --endpoints, or start the operator with --accept-journal {journal}"
            )));
        }
        Some(_) | None => {}
    }
    let remember = json!({"data": {JOURNAL: journal}});
    context.slot_writer.patch(&map, remember).await.map_err(|error| error.to_string())?;
    info!(journal, "the operator follows this journal");
    Ok(Comparison::Same)
}
