//! Cache of prices, instance types and costs, which all slots share.

use super::Engine;
use crate::api::LABEL_UID;
use crate::plan::ceiling::Markets;
use crate::plan::scope::{Scope, names_all};
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
/// The age of an answer after which its key is evicted: a BidNode asks at least once a minute.
const EVICT_AFTER: Duration = Duration::from_secs(10 * 60);
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
    markets: TtlCache<Scope, Option<Arc<Markets>>>,
    types: TtlCache<String, Arc<InstanceType>>,
    costs: TtlCache<(), Arc<BTreeMap<String, u64>>>,
}

impl Prices {
    /// Returns the markets of a scope, taken together; `None` if none is open.
    pub(super) async fn markets(
        &self,
        engine: &Engine,
        scope: &Scope,
    ) -> Result<Option<Arc<Markets>>, Error> {
        let read = async {
            // The engine lists the markets of all regions, or of one.
            let region = if let [region] = &scope.regions[..] { region.clone() } else { String::new() };
            let mut listed = Vec::new();
            for instance_type in &scope.instance_types {
                let request = v1::ListMarketsRequest {
                    instance_type: instance_type.clone(),
                    region: region.clone(),
                    ..Default::default()
                };
                listed.extend(engine.answered(engine.client.all(request).await)?.markets);
            }
            Ok(markets(scope, listed).map(Arc::new))
        };
        self.markets.get(scope.clone(), PRICES_TTL, read).await
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
            for line in engine.answered(engine.client.all(request).await)?.lines {
                let sums = line.charged.into_iter().chain(line.accrued);
                let cost: u64 = sums.map(|sums| sums.debit_micros).sum();
                *costs.entry(line.label_value.unwrap_or_default()).or_default() += cost;
            }
            Ok(Arc::new(costs))
        };
        self.costs.get((), COSTS_TTL, read).await
    }
}

/// Combines the markets that a bid in a scope names into one quote.
fn markets(scope: &Scope, mut listed: Vec<v1::Market>) -> Option<Markets> {
    // A market that closes takes no bids. An older engine does not say that.
    listed.retain(|market| !matches!(market.state(), v1::market::State::Closing | v1::market::State::Ended));
    let open: Vec<String> = listed.iter().map(|market| market.market.clone()).collect();
    let named = scope.named(&open);
    listed.retain(|market| names_all(&named.names, std::slice::from_ref(&market.market)));
    let CombinedQuote { quote, increment_bps } = quoted(&listed)?;
    let caps = listed.iter().filter_map(|market| market.rules.as_ref()?.ceiling_max_micros);
    Some(Markets {
        quote,
        increment_bps,
        ceiling_max_micros: caps.min().unwrap_or(u64::MAX),
        open,
        left_out: named.left_out,
    })
}

/// A cache of answers with a time to live. Callers that need the same answer share one call; callers of other keys do not
/// wait for it. An error is cached as well, for a short time. A key that is not asked for any more is evicted when a new one
/// comes.
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
        let cell = self.cell(key);
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

    /// Returns the cell of a key. Before one is made, those are evicted whose answers are so old that no BidNode asks for them.
    fn cell(&self, key: K) -> Cell<V> {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !cells.contains_key(&key) {
            let is_recent = |cached: &Option<(Instant, _)>| {
                cached.as_ref().is_some_and(|(when, _)| when.elapsed() < EVICT_AFTER)
            };
            cells.retain(|_, cell| {
                Arc::strong_count(cell) > 1 || cell.try_lock().is_ok_and(|cached| is_recent(&cached))
            });
        }
        Arc::clone(cells.entry(key).or_default())
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

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_not_asked_for_any_more_is_evicted_when_another_comes() {
        let cached = TtlCache::<&str, u32>::default();
        let ttl = Duration::from_secs(15);
        let keys = || cached.0.lock().unwrap().keys().copied().collect::<Vec<_>>();
        let ask = async |key| cached.get(key, ttl, ready(Ok(1))).await.unwrap();
        ask("gone").await;
        ask("asked").await;
        tokio::time::advance(EVICT_AFTER / 2).await;
        ask("asked").await;
        tokio::time::advance(EVICT_AFTER / 2).await;
        ask("asked").await;
        assert_eq!(keys(), ["asked", "gone"]);
        ask("new").await;
        assert_eq!(keys(), ["asked", "new"]);
    }
}
