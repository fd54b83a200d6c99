//! The variables of a container: from values, Secrets, ConfigMaps and fields of the pod.

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use std::collections::BTreeMap;

use super::sandbox::Environment;

/// Adds the variables of a container to those that it has from its image.
pub(super) async fn resolve(
    client: &Client,
    pod: &Pod,
    ip: &str,
    container: &Container,
    mut environment: Environment,
) -> Result<Environment, String> {
    let namespace = pod.namespace().unwrap_or_default();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (name, optional, found) = if let Some(map) = &source.config_map_ref {
            (&map.name, map.optional, config_map(client, &namespace, &map.name).await?)
        } else if let Some(secret) = &source.secret_ref {
            (&secret.name, secret.optional, self::secret(client, &namespace, &secret.name).await?)
        } else {
            continue;
        };
        match found {
            Some(found) => {
                environment.extend(found.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)))
            }
            None if optional == Some(true) => {}
            None => return Err(format!("{name:?} not found")),
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match &variable.value_from {
            None => Some(expand(variable.value.as_deref().unwrap_or_default(), &environment)),
            Some(source) => value_from(client, pod, ip, source).await?,
        };
        if let Some(value) = value {
            environment.insert(variable.name.clone(), value);
        }
    }
    Ok(environment)
}

async fn value_from(
    client: &Client,
    pod: &Pod,
    ip: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, String> {
    let namespace = pod.namespace().unwrap_or_default();
    let (name, key, optional, found) = if let Some(field) = &source.field_ref {
        return self::field(pod, ip, &field.field_path).map(Some);
    } else if let Some(it) = &source.config_map_key_ref {
        (&it.name, &it.key, it.optional, config_map(client, &namespace, &it.name).await?)
    } else if let Some(it) = &source.secret_key_ref {
        (&it.name, &it.key, it.optional, secret(client, &namespace, &it.name).await?)
    } else {
        return Err("this kubelet knows fieldRef, configMapKeyRef and secretKeyRef".to_owned());
    };
    match found.and_then(|mut found| found.remove(key)) {
        None if optional != Some(true) => Err(format!("couldn't find key {key} in {namespace}/{name}")),
        value => Ok(value),
    }
}

/// Reads a Secret as text.
async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, String> {
    let secret = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await;
    let data = secret.map_err(|e| e.to_string())?.map(|secret| secret.data.unwrap_or_default());
    let text = |(key, value): (String, k8s_openapi::ByteString)| {
        String::from_utf8(value.0).map(|value| (key, value)).map_err(|e| e.to_string())
    };
    data.map(|data| data.into_iter().map(text).collect()).transpose()
}

async fn config_map(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<BTreeMap<String, String>>, String> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await;
    Ok(map.map_err(|e| e.to_string())?.map(|map| map.data.unwrap_or_default()))
}

/// Returns a field of a pod, as `fieldRef` names it.
pub(super) fn field(pod: &Pod, ip: &str, path: &str) -> Result<String, String> {
    if let Some((map, key)) = path.split_once("['") {
        let map = match map {
            "metadata.labels" => pod.labels(),
            "metadata.annotations" => pod.annotations(),
            _ => return Err(format!("there is no field {path}")),
        };
        return Ok(map.get(key.trim_end_matches("']")).cloned().unwrap_or_default());
    }
    let lines = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
    };
    let spec = pod.spec.as_ref();
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => lines(pod.labels()),
        "metadata.annotations" => lines(pod.annotations()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
        }
        "status.podIP" | "status.podIPs" => ip.to_owned(),
        "status.hostIP" | "status.hostIPs" => super::NODE_IP.to_string(),
        _ => return Err(format!("there is no field {path}")),
    })
}

/// Replaces `$(NAME)` by the variable's value. An unknown name stays as it is, and `$$` is a `$`.
pub(super) fn expand(text: &str, environment: &Environment) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        expanded += before;
        let name = from.strip_prefix("$(").and_then(|after| after.split_once(')'));
        rest = if let Some(after) = from.strip_prefix("$$") {
            expanded.push('$');
            after
        } else if let Some((value, after)) =
            name.and_then(|(name, after)| Some((environment.get(name)?, after)))
        {
            expanded += value;
            after
        } else {
            expanded.push('$');
            &from[1..]
        };
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn known_variables_are_expanded() {
        let environment = [("A".to_owned(), "1".to_owned())].into();
        assert_eq!(expand("$(A)-$(B)-$$(A)-$A-$(A", &environment), "1-$(B)-$(A)-$A-$(A");
    }
}
