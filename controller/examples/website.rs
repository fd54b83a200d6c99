//! A whole controller: a `Website` is a ConfigMap with its page and a Deployment that serves it.
#![allow(missing_debug_implementations)]

use clap::Parser;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, CustomResource, Resource, ResourceExt};
use kubebid_controller::ControllerOptions;
use kubebid_controller::composite::{Child, Children, Composed, Composite, Kinds};
use kubebid_controller::conditions::{self, NewCondition};
use kubebid_controller::process::{self, ProcessArgs, Program};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
pub struct WebsiteSpec {
    pub html: String,
    pub replicas: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WebsiteStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone)]
pub struct Websites {
    pub client: kube::Client,
}

impl Composite for Websites {
    type Object = Website;
    const NAME: &'static str = "websites";

    fn kinds(&self, kinds: &mut Kinds<'_, '_, Website>) {
        kinds.add::<ConfigMap>(Api::all(self.client.clone()));
        kinds.add::<Deployment>(Api::all(self.client.clone()));
    }

    fn children(&self, site: &Website, _: &Children) -> Vec<Child> {
        let name = site.name_any();
        let owners = [site.controller_owner_ref(&())];
        let metadata = json!({"name": name, "namespace": site.namespace(), "ownerReferences": owners});
        let page = json!({"metadata": metadata, "data": {"index.html": site.spec.html}});
        let labels = json!({"website": name});
        let volume = json!({"name": "page", "configMap": {"name": name}});
        let mount = json!({"name": "page", "mountPath": "/usr/share/nginx/html"});
        let container = json!({"name": "web", "image": "nginx", "volumeMounts": [mount]});
        let deployment = json!({"metadata": metadata, "spec": {
            "replicas": site.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": [volume]}},
        }});
        vec![Child::applied_json::<ConfigMap>(page), Child::applied_json::<Deployment>(deployment)]
    }

    fn status(&self, site: &Website, observed: &Children, now: Timestamp) -> Value {
        let deployment = observed.get::<Deployment>(&site.name_any());
        let available = deployment.and_then(|it| it.status.as_ref()?.available_replicas).unwrap_or_default();
        let message = format!("{available} of {} replicas are available", site.spec.replicas);
        let ready = match observed.conflicts.first() {
            Some((kind, name)) => {
                NewCondition::new("Ready", false, "Conflict", format!("{kind} {name} is foreign"))
            }
            None if available < site.spec.replicas => NewCondition::new("Ready", false, "Creating", message),
            None => NewCondition::new("Ready", true, "Available", message),
        };
        let mut status = site.status.clone().unwrap_or_default();
        conditions::set(&mut status.conditions, ready, site.metadata.generation, now);
        json!(status)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let program = Program::new("website-operator", "example")?;
    process::run(program, &ProcessArgs::parse(), async |manager| {
        let websites = Websites { client: manager.client().clone() };
        let api = Api::all(manager.client().clone());
        manager.add(Composed::new(websites), api, ControllerOptions::default());
        Ok(())
    })
    .await
}
