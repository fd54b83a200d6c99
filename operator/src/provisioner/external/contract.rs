//! Contract with an external provisioner: requests, answers, and their OpenAPI document.

use super::super::{Machine, Order};
use k8s_openapi::ByteString;
use kubebid_client::v1;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, Paths};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, Info, LicenseBuilder, ObjectBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder, Schema,
};
use utoipa::{PartialSchema as _, ToSchema};

const INTRODUCTION: &str = "What the KubeBid operator asks of a provider's own machinery: a machine for each unit that \
the operator holds in the market. Serve this, and run the operator with `--provisioner external --provisioner-url`.

Every call may be repeated, at any time and also while an earlier one is still under way: an id stands for one machine \
and makes one machine, whatever the body of a repeat says. An id is used once: after a DELETE, also one that came before \
any PUT, a PUT of it answers 410. Remember ids for a day after their end, so that a PUT that was late on its way makes no \
machine that nobody ends.

The machine's kubelet registers a Node with the taint `kubebid.io/unregistered=ID:NoExecute` (`--register-with-taints`), \
where ID is the id of the order; the operator gives it its labels and taints, and takes that one away, in one step. A Node \
that does not prove to be the machine is not touched: it has that taint with the id, or a `providerID` that ends with `/` \
and the id or the unit. The Node object is the operator's to \
delete; the machine is ended by DELETE. One that dies by itself answers 404 from then on, or is `failed`.

Answer at once: what takes long is `coming`. The operator waits for 5 seconds in all, within which it tries three times \
where the answer is 429 or 5xx, or none, and not before its Retry-After. PUT is also how it asks how far a machine is: four times a second at first, and \
every 5 seconds when it takes long.";

/// The order of a machine for one unit.
#[derive(Serialize, Deserialize, ToSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MachineOrder {
    /// A name for the node, unique in the cluster; the provider may choose another.
    #[schema(examples("gpu-3-1f9c0"))]
    pub name: String,
    /// The type of the machine, as the market names it.
    #[schema(examples("h100-8x"))]
    pub instance_type: String,
    /// The region of the machine.
    #[schema(examples("eu-west"))]
    pub region: String,
    /// The unit of the market: "type/region:provider#number".
    #[schema(examples("h100-8x/eu-west:acme#4"))]
    pub unit: String,
    /// The resources that pods can use at least, as Kubernetes quantities by resource.
    pub allocatable: BTreeMap<String, String>,
    /// The labels that its kubelet registers besides its own.
    pub labels: BTreeMap<String, String>,
    /// The content of the operator's `--node-config`, in base64: what the machine is set up with, as user data of
    /// cloud-init. Absent if the operator has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Byte)]
    pub node_config: Option<ByteString>,
}

impl From<&Order> for MachineOrder {
    fn from(order: &Order) -> Self {
        let quantity =
            |(name, quantity): (&String, &k8s_openapi::apimachinery::pkg::api::resource::Quantity)| {
                (name.clone(), quantity.0.clone())
            };
        MachineOrder {
            name: order.name.clone(),
            instance_type: order.instance_type.clone(),
            region: order.region.clone(),
            unit: order.unit.clone(),
            allocatable: order.allocatable.iter().map(quantity).collect(),
            labels: order.labels.clone(),
            node_config: None,
        }
    }
}

/// The state of a machine.
#[derive(Serialize, Deserialize, ToSchema, Clone, Debug, PartialEq, Eq)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum MachineState {
    /// The machine is being made.
    Coming,
    /// The machine runs; its kubelet registers, or has registered, as this node.
    Running {
        /// The name of the node. The node itself has to prove that it is the machine.
        #[schema(examples("gpu-3-1f9c0"))]
        node: String,
        /// The way to reach the machine by other ways than the cluster. The operator reports it to the market, which
        /// shows it to the operator's account alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(inline)]
        access: Option<MachineAccess>,
    },
    /// The machine does not run and will not. The operator ends it and bids for another.
    Failed {
        /// The reason, in a sentence for the owner of the node.
        #[schema(examples("the host did not boot"))]
        reason: String,
    },
}

/// The way to reach a machine. At most 4 KiB, as the market encodes it; what the market refuses is not reported.
#[derive(Serialize, Deserialize, ToSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct MachineAccess {
    /// Host names or IP addresses, the preferred one first.
    pub addresses: Vec<String>,
    /// Ports by the name of their service, as in `{"ssh": 22}`.
    pub ports: BTreeMap<String, u32>,
    /// The user to log in as.
    #[schema(examples("ubuntu"))]
    pub user: String,
    /// Anything else, such as the fingerprint of the host key.
    pub notes: String,
}

impl From<MachineAccess> for v1::NodeAccess {
    fn from(access: MachineAccess) -> v1::NodeAccess {
        let MachineAccess { addresses, ports, user, notes } = access;
        v1::NodeAccess { addresses, ports, user, notes }
    }
}

impl From<MachineState> for Machine {
    fn from(state: MachineState) -> Self {
        match state {
            MachineState::Coming => Machine::Coming,
            MachineState::Running { node, .. } => Machine::Running { node },
            MachineState::Failed { reason } => Machine::Failed { reason },
        }
    }
}

/// The reason why a call was refused: the part of RFC 9457 that is read.
#[derive(Serialize, Deserialize, ToSchema, Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A sentence for people.
    #[schema(examples("no h200-8x is left in eu-west"))]
    pub detail: String,
}

/// Returns the contract as an OpenAPI 3.1 document.
pub fn document() -> OpenApi {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("The text of the operator's `--provisioner-token-file`."));
    let components = ComponentsBuilder::new()
        .schema("MachineOrder", MachineOrder::schema())
        .schema("MachineState", MachineState::schema())
        .schema("Problem", Problem::schema())
        .security_scheme("token", SecurityScheme::Http(bearer.build()));
    let mut info = Info::new("KubeBid external provisioner", "1");
    info.description = Some(INTRODUCTION.to_owned());
    info.license = Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build());
    let mut paths = Paths::new();
    for (method, operation) in
        [(HttpMethod::Put, put()), (HttpMethod::Get, get()), (HttpMethod::Delete, delete())]
    {
        paths.add_path_operation("/v1/machines/{id}", vec![method], operation);
    }
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components.build()))
        .security(Some([SecurityRequirement::new("token", Vec::<String>::new())]))
        .build()
}

fn put() -> utoipa::openapi::path::Operation {
    let body = RequestBodyBuilder::new().content("application/json", content("MachineOrder"));
    operation("putMachine", "Order a machine, or ask how far the one that was ordered is")
        .request_body(Some(body.required(Some(Required::True)).build()))
        .response("200", state("It was ordered before, and is so far."))
        .response("201", state("It is ordered by this call."))
        .response("410", refusal("It was ended."))
        .response("422", refusal("It cannot be made, now or later: taken as `failed` with this reason."))
        .build()
}

fn get() -> utoipa::openapi::path::Operation {
    operation("getMachine", "Ask how far a machine is")
        .response("200", state("It is so far."))
        .response("404", refusal("There is none: it was never ordered, was ended, or is lost."))
        .build()
}

fn delete() -> utoipa::openapi::path::Operation {
    operation("deleteMachine", "End a machine")
        .response("204", Response::new("It is ended, or sure to be: the unit goes back to the market now."))
        .response("404", refusal("There is none, which is as well."))
        .build()
}

fn operation(id: &str, summary: &str) -> OperationBuilder {
    let uuid = ObjectBuilder::new().schema_type(Type::String).build();
    let parameter = ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("What the operator calls it: a UUID, unique over all clusters."))
        .schema(Some(Schema::from(uuid)));
    OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .parameter(parameter)
        .response("default", refusal("Refused, or not possible now. 429 and 5xx are tried again."))
}

fn content(name: &str) -> Content {
    Content::new(Some(RefOr::Ref::<Schema>(Ref::from_schema_name(name))))
}

fn state(text: &str) -> ResponseBuilder {
    ResponseBuilder::new().description(text).content("application/json", content("MachineState"))
}

fn refusal(text: &str) -> ResponseBuilder {
    ResponseBuilder::new().description(text).content("application/problem+json", content("Problem"))
}

#[cfg(test)]
mod tests {
    use super::{MachineState, document};
    use expect_test::expect_file;
    use serde_json::json;

    /// `UPDATE_EXPECT=1 cargo test -p kubebid-operator --lib external` writes it anew.
    #[test]
    fn the_document_is_that_of_the_types() {
        let text = document().to_pretty_json().unwrap() + "\n";
        expect_file!["../../../openapi/provisioner.json"].assert_eq(&text);
    }

    #[test]
    fn states_differ_by_one_field() {
        for (state, body) in [
            (MachineState::Coming, json!({"state": "coming"})),
            (
                MachineState::Running { node: "n".into(), access: None },
                json!({"state": "running", "node": "n"}),
            ),
            (MachineState::Failed { reason: "r".into() }, json!({"state": "failed", "reason": "r"})),
        ] {
            assert_eq!(serde_json::to_value(&state).unwrap(), body);
            assert_eq!(serde_json::from_value::<MachineState>(body).unwrap(), state);
        }
    }
}
