//! Cache of prices, instance types and costs, which all slots share.

use super::Engine;
use crate::api::{BidNodeSpec, LABEL_UID};
use crate::plan::ceiling::Markets;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubebid_client::{CombinedQuote, Error, quoted, v1};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The age at which prices are read again.
const PRICES_TTL: Duration = Duration::from_secs(15);
/// The age at which an instance type is read again.
const TYPES_TTL: Duration = Duration::from_secs(60);
/// The age at which costs are read again.
const COSTS_TTL: Duration = Duration::from_secs(60);

/// The number of pods on a node, if the instance type does not say: the default of the kubelet.
const PODS: &str = "110";
/// The age at which a call that had no answer is repeated.
const ERROR_TTL: Duration = Duration::from_secs(1);

/// An instance type: the properties of its nodes.
#[derive(Clone, Debug, Default)]
pub struct InstanceType {
    /// The resources that pods can use.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The labels that a node of the type has by itself.
    pub labels: BTreeMap<String, String>,
}

/// The cached answers.
#[derive(Debug, Default)]
pub(super) struct Prices {
    markets: TtlCache<(String, Option<String>), Option<Arc<Markets>>>,
    types: TtlCache<String, Arc<InstanceType>>,
    costs: TtlCache<(), Arc<BTreeMap<String, u64>>>,
}

impl Prices {
    /// Returns the markets of a BidNode, taken together; `None` if none is open.
    pub(super) async fn markets(
        &self,
        engine: &Engine,
        spec: &BidNodeSpec,
    ) -> Result<Option<Arc<Markets>>, Error> {
        let key = (spec.instance_type.clone(), spec.region.clone());
        let read = async {
            let request = v1::ListMarketsRequest {
                instance_type: spec.instance_type.clone(),
                region: spec.region.clone().unwrap_or_default(),
                ..Default::default()
            };
            Ok(markets(&engine.answered(engine.client.all(request).await)?.markets).map(Arc::new))
        };
        self.markets.get(key, PRICES_TTL, read).await
    }

    /// Returns an instance type; an empty one if the engine does not know it.
    pub(super) async fn instance_type(
        &self,
        engine: &Engine,
        name: &str,
    ) -> Result<Arc<InstanceType>, Error> {
        let read = async {
            let request = v1::ListInstanceTypesRequest { name: name.to_owned(), ..Default::default() };
            let entries = engine.answered(engine.client.all(request).await)?.entries;
            let Some(it) = entries.into_iter().find_map(|entry| entry.instance_type) else {
                return Ok(Arc::default());
            };
            let mut allocatable: BTreeMap<_, _> =
                it.allocatable.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect();
            allocatable.entry("pods".to_owned()).or_insert_with(|| Quantity(PODS.to_owned()));
            Ok(Arc::new(InstanceType { allocatable, labels: it.node_labels.into_iter().collect() }))
        };
        self.types.get(name.to_owned(), TYPES_TTL, read).await
    }

    /// Returns the cost of the nodes of each BidNode so far, in micro-dollars by the UID of the BidNode: what was charged, and
    /// what running nodes have accrued.
    pub(super) async fn costs(&self, engine: &Engine) -> Result<Arc<BTreeMap<String, u64>>, Error> {
        let read = async {
            let request = v1::GetStatementRequest {
                labels: engine.labels([]),
                by_label: LABEL_UID.to_owned(),
                ..Default::default()
            };
            let mut costs = BTreeMap::new();
            for line in engine.answered(engine.client.get_statement(request).await)?.lines {
                let sums = line.charged.into_iter().chain(line.accrued);
                let cost: u64 = sums.map(|sums| sums.debit_micros).sum();
                *costs.entry(line.label_value.unwrap_or_default()).or_default() += cost;
            }
            Ok(Arc::new(costs))
        };
        self.costs.get((), COSTS_TTL, read).await
    }
}

/// Combines markets into one quote, with the number of their units.
fn markets(listed: &[v1::Market]) -> Option<Markets> {
    let CombinedQuote { quote, increment_bps } = quoted(listed)?;
    let supplies = listed.iter().filter_map(|market| market.price.as_ref()?.supply.as_ref());
    Some(Markets { quote, increment_bps, units: supplies.map(|supply| u64::from(supply.total)).sum() })
}

/// A cache of answers with a time to live. Callers that need the same answer share one call; callers of other keys do not
/// wait for it. An error is cached as well, for a short time.
#[derive(Debug)]
struct TtlCache<K, V>(std::sync::Mutex<BTreeMap<K, Cell<V>>>);

type Cell<V> = Arc<Mutex<Option<(Instant, Result<V, Error>)>>>;

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        TtlCache(std::sync::Mutex::default())
    }
}

impl<K: Ord, V: Clone> TtlCache<K, V> {
    async fn get(
        &self,
        key: K,
        ttl: Duration,
        read: impl Future<Output = Result<V, Error>>,
    ) -> Result<V, Error> {
        let cell = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let mut cached = cell.lock().await;
        if let Some((when, answer)) = &*cached
            && when.elapsed() < if answer.is_ok() { ttl } else { ERROR_TTL }
        {
            return answer.clone();
        }
        let answer = read.await;
        *cached = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::future::ready;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_delays_no_other_key() {
        let cached = TtlCache::<&str, u32>::default();
        let (began, ttl) = (Instant::now(), Duration::from_secs(15));
        let silence = || async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Err(Error::Config("silence".to_owned()))
        };
        let hundred = join_all((0..100).map(|_| cached.get("silent", ttl, silence())));
        let (answers, other) = tokio::join!(hundred, async {
            let answer = cached.get("quick", ttl, ready(Ok(7))).await;
            (answer.unwrap(), began.elapsed())
        });
        assert_eq!(other, (7, Duration::ZERO));
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(began.elapsed(), Duration::from_secs(5), "all have waited for one answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_ttl_a_while_and_none_for_a_moment() {
        let cached = TtlCache::<&str, u32>::default();
        let ttl = Duration::from_secs(15);
        assert!(cached.get("k", ttl, ready(Err(Error::Config("silence".to_owned())))).await.is_err());
        assert!(cached.get("k", ttl, ready(Ok(1))).await.is_err());
        tokio::time::advance(ERROR_TTL).await;
        assert_eq!(cached.get("k", ttl, ready(Ok(1))).await.unwrap(), 1);
        tokio::time::advance(ttl - Duration::from_millis(1)).await;
        assert_eq!(cached.get("k", ttl, ready(Ok(2))).await.unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cached.get("k", ttl, ready(Ok(2))).await.unwrap(), 2);
    }
}
