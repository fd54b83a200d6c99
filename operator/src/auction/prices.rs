//! Prices and instance types, asked for now and then: nothing here is worth a call for every slot.

use crate::api::BidNodeSpec;
use crate::plan::price::Markets;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubebid_client::{Client, Error, v1};
use kubebid_strategy::{Quote, shared_tick_micros};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a price may be: the slow beat on which ceilings are looked at again.
const PRICES_FOR: Duration = Duration::from_secs(15);
const TYPES_FOR: Duration = Duration::from_secs(60);

/// What a node of a type is.
#[derive(Clone, Debug, Default)]
pub struct Type {
    /// What pods can use of it.
    pub allocatable: BTreeMap<String, Quantity>,
    pub labels: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
pub(super) struct Prices {
    markets: Kept<(String, Option<String>), Option<Arc<Markets>>>,
    types: Kept<String, Arc<Type>>,
}

impl Prices {
    pub(super) async fn markets(
        &self,
        client: &Client,
        spec: &BidNodeSpec,
    ) -> Result<Option<Arc<Markets>>, Error> {
        let key = (spec.instance_type.clone(), spec.region.clone());
        let read = async {
            let request = v1::ListMarketsRequest {
                instance_type: spec.instance_type.clone(),
                region: spec.region.clone().unwrap_or_default(),
                ..Default::default()
            };
            Ok(markets(&client.all(request).await?.markets).map(Arc::new))
        };
        self.markets.get(key, PRICES_FOR, read).await
    }

    pub(super) async fn instance_type(&self, client: &Client, name: &str) -> Result<Arc<Type>, Error> {
        let read = async {
            let request = v1::ListInstanceTypesRequest { name: name.to_owned(), ..Default::default() };
            let entries = client.all(request).await?.entries;
            let Some(it) = entries.into_iter().find_map(|entry| entry.instance_type) else {
                return Ok(Arc::default());
            };
            let allocatable =
                it.allocatable.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect();
            Ok(Arc::new(Type { allocatable, labels: it.node_labels.into_iter().collect() }))
        };
        self.types.get(name.to_owned(), TYPES_FOR, read).await
    }
}

/// The markets as one: the lowest reference and floor of those that have a free node, of all where none has; a
/// tick that suits all, the largest increment.
fn markets(markets: &[v1::Market]) -> Option<Markets> {
    let rules = || markets.iter().filter_map(|market| market.rules.as_ref());
    let tick_micros = shared_tick_micros(rules().filter_map(|rules| rules.tick_micros))?;
    let prices = || markets.iter().filter_map(|market| market.price.as_ref());
    let has_free = |price: &&v1::MarketPrice| price.supply.as_ref().is_some_and(|supply| supply.free > 0);
    let any_free = prices().any(|price| has_free(&price));
    let quote = lowest(prices().filter(|price| !any_free || has_free(price)), tick_micros);
    Some(Markets {
        names: markets.iter().map(|market| market.market.clone()).collect(),
        quote,
        increment_bps: rules().filter_map(|rules| rules.increment_bps).max().unwrap_or_default().into(),
    })
}

fn lowest<'a>(prices: impl Iterator<Item = &'a v1::MarketPrice>, tick_micros: u64) -> Quote {
    let mut quote = Quote { reference_micros: None, floor_micros: None, tick_micros };
    let lower = |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).min();
    for price in prices {
        let floor = price.numbers.as_ref().and_then(|numbers| numbers.floor_micros);
        quote.reference_micros = lower(quote.reference_micros, price.reference_price_micros);
        quote.floor_micros = lower(quote.floor_micros, floor);
    }
    quote
}

/// Answers that are good for a while. Who asks for one that is being read waits for it.
#[derive(Debug)]
struct Kept<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept(Mutex::new(BTreeMap::new()))
    }
}

impl<K: Ord + Hash, V: Clone> Kept<K, V> {
    async fn get(
        &self,
        key: K,
        good_for: Duration,
        read: impl Future<Output = Result<V, Error>>,
    ) -> Result<V, Error> {
        let mut kept = self.0.lock().await;
        if let Some((when, value)) = kept.get(&key)
            && when.elapsed() < good_for
        {
            return Ok(value.clone());
        }
        let value = read.await?;
        kept.insert(key, (Instant::now(), value.clone()));
        Ok(value)
    }
}
