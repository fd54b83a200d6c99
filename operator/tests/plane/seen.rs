//! What a watch has seen of objects: each of their versions, also those that lasted for a moment only.

use futures_util::StreamExt as _;
use kube::api::Api;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The version at which an object was first so, by name, from here on: once it returns, nothing is missed.
pub(crate) async fn first_versions<K>(
    api: Api<K>,
    is_so: impl Fn(&K) -> bool + Send + 'static,
) -> Arc<Mutex<BTreeMap<String, u64>>>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let versions = Arc::new(Mutex::new(BTreeMap::new()));
    let found = Arc::clone(&versions);
    let (listed, mut is_listed) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            let object = match event {
                Ok(Event::Apply(object) | Event::Delete(object) | Event::InitApply(object)) => object,
                Ok(Event::InitDone) => {
                    listed.send_replace(true);
                    continue;
                }
                Ok(Event::Init) | Err(_) => continue,
            };
            if is_so(&object) {
                let version =
                    object.meta().resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or(0);
                let name = object.meta().name.clone().unwrap_or_default();
                found.lock().unwrap().entry(name).or_insert(version);
            }
        }
    });
    is_listed.wait_for(|listed| *listed).await.unwrap();
    versions
}
