//! `uninstall`: removes the finalizers of the operator.

use super::{Done, PROGRAM, lease_namespace};
use clap::Args;
use kubebid_controller::output::print;
use kubebid_controller::process::ProcessArgs;
use kubebid_controller::{Object, Writer, uninstall};
use kubebid_operator::api::{BidNode, BidSlot, FINALIZER};
use kubebid_operator::market::{Account, InstanceType, Market, Offer};
use std::error::Error;
use std::process::ExitCode;

/// The Leases of the Deployments in deploy/kubernetes/markets and deploy/kubernetes/offers.
const MARKET_LEASES: [&str; 2] = ["kubebid-markets", "kubebid-offers"];

/// Remove the operator's finalizers, so that its objects and definitions can be deleted without it
#[derive(Args)]
#[command(after_help = "\
End all replicas first, also those of kubebid-markets and kubebid-offers. What the objects stand
for stays: bids and nodes of BidNodes, offers at the engine. To end these too, delete the objects
and wait, while the operator still runs.

Examples:
  kubectl scale -n kubebid-system deployment/kubebid-operator --replicas 0
  kubebid-operator uninstall --dry-run                  which objects have a finalizer
  kubebid-operator uninstall")]
#[command(mut_arg("lease_namespace", lease_namespace))]
pub(crate) struct Uninstall {
    #[command(flatten)]
    process: ProcessArgs,
}

impl Uninstall {
    pub(crate) async fn run(self) -> Done {
        uninstall::uninstall(PROGRAM, &MARKET_LEASES, &self.process, async |writer| {
            let external = "market.kubebid.io/external";
            let mut removed = 0;
            removed += without_finalizer::<BidNode>(writer, FINALIZER).await?;
            removed += without_finalizer::<BidSlot>(writer, FINALIZER).await?;
            removed += without_finalizer::<InstanceType>(writer, external).await?;
            removed += without_finalizer::<Market>(writer, external).await?;
            removed += without_finalizer::<Account>(writer, external).await?;
            removed += without_finalizer::<Offer>(writer, external).await?;
            Ok(print(format_args!("{removed} objects had a finalizer of the operator\n"))?)
        })
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Removes a finalizer from all objects of a kind, and names them.
async fn without_finalizer<K: Object>(writer: &Writer, finalizer: &str) -> Result<usize, Box<dyn Error>> {
    let removed = uninstall::remove_finalizer::<K>(writer, finalizer).await?;
    for object in &removed {
        print(format_args!("{} {object}\n", K::kind(&())))?;
    }
    Ok(removed.len())
}
