//! External provisioner: orders, polls and ends machines at a provider's own server, over HTTP.

mod call;
mod contract;

pub use call::{BadOptions, ExternalOptions};
pub use contract::{MachineAccess, MachineOrder, MachineState, Problem, document};

use super::{Fault, Machine, Order, Provisioner};
use async_trait::async_trait;
use bytes::Bytes;
use call::{Answer, Caller};
use http::{Method, StatusCode};
use k8s_openapi::ByteString;
use kubebid_client::v1;

/// A client of a server that implements the contract (`operator/openapi/provisioner.json`).
#[derive(Debug)]
pub struct External {
    caller: Caller,
    node_config: Option<Bytes>,
}

impl External {
    /// Creates a client.
    pub fn new(options: ExternalOptions) -> Result<Self, BadOptions> {
        Ok(External { caller: Caller::new(options)?, node_config: None })
    }

    /// Sends this with each order of a machine, to set it up with.
    pub fn with_node_config(self, node_config: Option<Bytes>) -> Self {
        External { node_config, ..self }
    }

    async fn call(
        &self,
        method: Method,
        id: &str,
        body: Bytes,
        doing: &'static str,
    ) -> Result<Answer, Fault> {
        self.caller.call(&method, id, &body).await.map_err(|failed| Fault {
            doing,
            why: failed.why,
            retry_after: failed.retry_after,
        })
    }
}

const ORDERING: &str = "order a machine";
const ASKING: &str = "say how far a machine is";
const ENDING: &str = "end a machine";

fn state(answer: &Answer, doing: &'static str) -> Result<Machine, Fault> {
    answer.json::<MachineState>().map(Machine::from).map_err(|why| fault(doing, why))
}

fn fault(doing: &'static str, why: String) -> Fault {
    Fault { doing, why, retry_after: None }
}

#[async_trait]
impl Provisioner for External {
    async fn create(&self, order: &Order) -> Result<Machine, Fault> {
        let node_config = self.node_config.as_ref().map(|config| ByteString(config.to_vec()));
        let body = serde_json::to_vec(&MachineOrder { node_config, ..MachineOrder::from(order) });
        let body = body.map_err(|error| fault(ORDERING, error.to_string()))?;
        let answer = self.call(Method::PUT, &order.id, body.into(), ORDERING).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => state(&answer, ORDERING),
            StatusCode::GONE => Ok(Machine::Gone),
            StatusCode::UNPROCESSABLE_ENTITY => Ok(Machine::Failed { reason: answer.refusal() }),
            _ => Err(fault(ORDERING, answer.refusal())),
        }
    }

    async fn get(&self, id: &str, _node: &str) -> Result<Machine, Fault> {
        let answer = self.call(Method::GET, id, Bytes::new(), ASKING).await?;
        match answer.status {
            StatusCode::OK => state(&answer, ASKING),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Machine::Gone),
            _ => Err(fault(ASKING, answer.refusal())),
        }
    }

    async fn access(&self, id: &str) -> Result<Option<v1::NodeAccess>, Fault> {
        let answer = self.call(Method::GET, id, Bytes::new(), ASKING).await?;
        match answer.status {
            StatusCode::OK => match answer.json::<MachineState>().map_err(|why| fault(ASKING, why))? {
                MachineState::Running { access, .. } => Ok(access.map(Into::into)),
                MachineState::Coming | MachineState::Failed { .. } => Ok(None),
            },
            _ => Ok(None),
        }
    }

    async fn delete(&self, id: &str, _node: Option<&str>) -> Result<(), Fault> {
        let answer = self.call(Method::DELETE, id, Bytes::new(), ENDING).await?;
        match answer.status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            _ => Err(fault(ENDING, answer.refusal())),
        }
    }
}
