//! "Did you mean": the known name that is nearest to one that no market or account has.

use crate::config::{Connection, Context};
use crate::failure::{Failure, note};
use clap::ArgMatches;
use kubebid_client::v1::{ListAccountsRequest, ListMarketsRequest};
use kubebid_client::{Client, Code, Error};

/// The least likeness of two names that may be meant for each other, from 0 to 1.
const ALIKE: f64 = 0.75;

/// The names on the command line.
pub(crate) struct Names {
    markets: Vec<String>,
    accounts: Vec<String>,
}

impl Names {
    /// Returns the names among the arguments of a command, found by the names of the arguments.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let mut command = matches;
        while let Some((_, inner)) = command.subcommand() {
            command = inner;
        }
        let values = |arguments: [&str; 2]| {
            let values = arguments.into_iter().filter_map(|id| command.try_get_many::<String>(id).ok()?);
            values.flatten().cloned().collect()
        };
        Names { markets: values(["market", "markets"]), accounts: values(["account", "provider"]) }
    }

    /// Returns the failure with the name that may have been meant, if there is one.
    pub(crate) async fn improve(&self, failure: Failure, connection: &Connection) -> Failure {
        let Ok(context) = connection.open() else { return failure };
        let (said, known) = match failure.code {
            Some(Code::UnknownMarket) => (&self.markets, markets(&context.client).await),
            Some(Code::UnknownAccount) => (&self.accounts, accounts(&context.client).await),
            _ => return failure,
        };
        let known = known.unwrap_or_default();
        let mut unknown = said.iter().filter(|name| !known.contains(name));
        match unknown.find_map(|name| nearest(name, &known)) {
            Some(meant) => failure.did_you_mean(meant),
            None => failure,
        }
    }
}

/// Says on standard error that no market is open for an instance type, with the type that may have been meant.
pub(crate) async fn note_unknown_type(context: &Context, instance_type: &str) {
    let Ok(markets) = markets(&context.client).await else { return };
    let types: Vec<_> =
        markets.iter().filter_map(|market| market.split_once('/')).map(|(name, _)| name.to_owned()).collect();
    if types.iter().any(|known| known == instance_type) {
        return;
    }
    let meant =
        nearest(instance_type, &types).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    note(format_args!("note: no market is open for the instance type {instance_type}{meant}"));
}

async fn markets(client: &Client) -> Result<Vec<String>, Error> {
    let markets = client.all(ListMarketsRequest::default()).await?.markets;
    Ok(markets.into_iter().map(|market| market.market).collect())
}

async fn accounts(client: &Client) -> Result<Vec<String>, Error> {
    let accounts = client.all(ListAccountsRequest::default()).await?.accounts;
    Ok(accounts.into_iter().map(|account| account.name).collect())
}

/// Returns the known name that is most like a name, if one is alike. Small and capital letters are the same.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let alike = known.iter().map(|known| (strsim::jaro(&name, &known.to_lowercase()), known.as_str()));
    let (likeness, best) = alike.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (likeness >= ALIKE).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_meant() {
        let known = ["h100-8x/eu-west", "a100-8x/eu-west", "l40s-4x/us-east"].map(str::to_owned);
        for (name, meant) in [
            ("h100-8x/eu-wst", Some("h100-8x/eu-west")),
            ("h100/eu-west", Some("h100-8x/eu-west")),
            ("a10-8x/eu-west", Some("a100-8x/eu-west")),
            ("H100-8X/EU-WEST", Some("h100-8x/eu-west")),
            ("l40s/us", Some("l40s-4x/us-east")),
            ("tpu/moon", None),
        ] {
            assert_eq!(nearest(name, &known), meant, "{name}");
        }
        assert_eq!(nearest("h100", &[]), None);
    }
}
