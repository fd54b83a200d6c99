//! `kubebid type`

use crate::args::{Limit, Pair, map};
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, money, pairs, text};
use clap::{Args, Subcommand};
use kubebid_client::Dollars;
use kubebid_client::v1::list_instance_types_response::Entry;
use kubebid_client::v1::{InstanceType, ListInstanceTypesRequest, PutInstanceTypeRequest};

#[derive(Subcommand)]
pub(crate) enum InstanceTypes {
    /// List instance types by name, with what a node has and where it is traded
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Say what a node of a type is, as administrator; what was said before is replaced
    #[command(after_help = "\
Examples:
  kubebid --as admin type put h100-8x --allocatable cpu=192 --allocatable memory=2Ti \\
      --allocatable nvidia.com/gpu=8 --on-demand 98.32")]
    Put(Put),
}

#[derive(Args)]
pub(crate) struct Put {
    /// Its name, as in h100-8x
    name: String,
    /// Resource of a node that pods can use, as a Kubernetes quantity: cpu=192
    #[arg(long, value_name = "RESOURCE=QUANTITY")]
    allocatable: Vec<Pair>,
    /// A label that a node of the type has by itself
    #[arg(long, value_name = "KEY=VALUE")]
    node_label: Vec<Pair>,
    /// Price of such a node elsewhere per node-hour, in dollars
    #[arg(long, value_name = "DOLLARS", allow_hyphen_values = true)]
    on_demand: Option<Dollars>,
}

impl InstanceTypes {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Context { client, out } = context;
        match self {
            InstanceTypes::List { limit } => {
                let answer = client.first(ListInstanceTypesRequest::default(), limit.count()).await?;
                out.answer(&answer, |view| list(&answer.entries, view))?;
                limit.note(answer.entries.len(), &answer.next_page_token);
                Ok(())
            }
            InstanceTypes::Put(put) => {
                let instance_type = InstanceType {
                    name: put.name.clone(),
                    allocatable: map(put.allocatable),
                    node_labels: map(put.node_label),
                    on_demand_price_micros: put.on_demand.map(|Dollars(micros)| micros),
                };
                let request = PutInstanceTypeRequest { instance_type: Some(instance_type) };
                let answer = client.put_instance_type(request).await?;
                out.answer(&answer, |_| format!("put the instance type {}", put.name))
            }
        }
    }
}

fn list(entries: &[Entry], view: &View) -> String {
    let mut list = List::new(
        view,
        &[text("TYPE"), money("ON DEMAND"), text("ALLOCATABLE"), text("NODE LABELS").wide(), text("MARKETS")],
    );
    for entry in entries {
        let instance_type = entry.instance_type.clone().unwrap_or_default();
        list.row([
            instance_type.name,
            dollars(instance_type.on_demand_price_micros),
            pairs(&instance_type.allocatable),
            pairs(&instance_type.node_labels),
            if entry.markets.is_empty() { "-".to_owned() } else { entry.markets.join(",") },
        ]);
    }
    list.or("no instance types")
}
