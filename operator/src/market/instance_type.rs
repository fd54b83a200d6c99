//! `InstanceType`: what a node of a type is.

use super::PRICE;
use super::call_error;
use kube::{CustomResource, ResourceExt as _};
use kubebid_client::{Client, Dollars, v1};
use kubebid_controller::external::permissions::Permissions;
use kubebid_controller::external::{
    Answer, CallError, DeleteAnswer, External, ExternalStatus, Managed, Observed, Request, Timing,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The nodes of a type, at the KubeBid auction.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "market.kubebid.io",
    version = "v1alpha1",
    kind = "InstanceType",
    status = "ExternalStatus",
    printcolumn(name = "OnDemand", type_ = "string", json_path = ".spec.onDemandPrice"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct InstanceTypeSpec {
    /// The resources that pods can request of a node, as in a Node's `status.allocatable`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, String>,
    /// Labels that nodes of the type have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// The price of a node on demand, in USD per node-hour, to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = PRICE))]
    pub on_demand_price: Option<String>,
}

impl Managed for InstanceType {
    fn external(&self) -> Option<&ExternalStatus> {
        self.status.as_ref()
    }

    fn external_mut(&mut self) -> &mut ExternalStatus {
        self.status.get_or_insert_default()
    }
}

/// Instance types at the engine, which cannot be removed there.
pub(super) struct InstanceTypes(pub(super) Client);

impl InstanceTypes {
    fn wanted(object: &InstanceType) -> v1::InstanceType {
        v1::InstanceType {
            name: object.name_any(),
            allocatable: object.spec.allocatable.clone().into_iter().collect(),
            node_labels: object.spec.node_labels.clone().into_iter().collect(),
            on_demand_price_micros: object
                .spec
                .on_demand_price
                .as_deref()
                .and_then(|text| Some(text.parse::<Dollars>().ok()?.0)),
        }
    }

    async fn put(&self, object: &InstanceType) -> Result<Answer<()>, CallError> {
        let request = v1::PutInstanceTypeRequest { instance_type: Some(InstanceTypes::wanted(object)) };
        self.0.put_instance_type(request).await.map_err(call_error::of)?;
        Ok(Answer::done())
    }
}

impl External for InstanceTypes {
    type Object = InstanceType;
    type Payload = ();
    type Details = ();

    const NAME: &'static str = "instance-types";
    const PERMISSIONS: Permissions = Permissions { delete: false, ..Permissions::ALL };

    fn identity(&self, object: &InstanceType) -> String {
        object.name_any()
    }

    async fn observe(&self, request: &Request<'_, Self>) -> Result<(Observed, ()), CallError> {
        let name = request.object.name_any();
        let list = v1::ListInstanceTypesRequest { name: name.clone(), ..Default::default() };
        let listed = self.0.list_instance_types(list).await.map_err(call_error::of)?;
        let there =
            listed.entries.into_iter().filter_map(|entry| entry.instance_type).find(|it| it.name == name);
        let observed = match there {
            None => Observed::Missing,
            Some(there) if there == InstanceTypes::wanted(request.object) => Observed::Ready,
            Some(_) => Observed::UpdateRequired,
        };
        Ok((observed, ()))
    }

    async fn create(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put(request.object).await
    }

    async fn update(&self, request: &Request<'_, Self>) -> Result<Answer<()>, CallError> {
        self.put(request.object).await
    }

    async fn delete(&self, _: &Request<'_, Self>) -> Result<DeleteAnswer, CallError> {
        Err(CallError::terminal("NotRemovable", "the engine cannot forget an instance type"))
    }

    fn timing(&self) -> Timing {
        super::TIMING
    }
}
