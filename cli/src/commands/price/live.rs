//! `kubebid price --watch`

use crate::config::Context;
use crate::failure::{Exit, Failure};
use console::Term;
use kubebid_client::Error;
use kubebid_client::v1::WatchPricesRequest;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// The shortest time between two tables.
const PAUSE: Duration = Duration::from_millis(250);

/// Shows the table of prices again when one of them changes: on a terminal in the place of the one before, elsewhere
/// below it.
pub(super) async fn run(context: &Context, market: Option<&str>, type_: Option<&str>) -> Result<(), Failure> {
    let request = WatchPricesRequest {
        markets: market.iter().map(ToString::to_string).collect(),
        instance_type: type_.unwrap_or_default().to_owned(),
        cursor: String::new(),
    };
    let mut watch = context.client.watch_prices(request);
    let changed = Arc::new(Notify::new());
    let change = Arc::clone(&changed);
    let mut watching = tokio::spawn(async move {
        while let Some(frame) = watch.next().await {
            if !frame?.points.is_empty() {
                change.notify_one();
            }
        }
        Ok::<(), Error>(())
    });
    let terminal = Term::stdout();
    let mut lines = 0;
    loop {
        tokio::select! {
            ended = &mut watching => {
                let ended = ended.map_err(|error| Failure::new(Exit::Fault, error.to_string()))?;
                return Ok(ended?);
            }
            () = changed.notified() => {}
        }
        let answer = super::prices(context, market, type_).await?;
        context.out.frame(&answer, |view| {
            let table = super::list(&answer.prices, view);
            let before = std::mem::replace(&mut lines, table.lines().count());
            match view.is_for_people() {
                true if terminal.is_term() => {
                    let _ = terminal.clear_last_lines(before);
                    table
                }
                true if before > 0 => format!("\n{table}"),
                _ => table,
            }
        })?;
        sleep(PAUSE).await;
    }
}
