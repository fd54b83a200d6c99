//! A cache of prices and instance types, refreshed from time to time, so that slots need no calls of their own.

use super::Auction;
use crate::api::{BidNodeSpec, LABEL_UID};
use crate::plan::price::Markets;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubebid_client::{Error, Quoted, quoted, v1};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old a price may be: the slow beat on which ceilings are looked at again.
const PRICES_FOR: Duration = Duration::from_secs(15);
const TYPES_FOR: Duration = Duration::from_secs(60);
const COSTS_FOR: Duration = Duration::from_secs(60);

/// The number of pods a kubelet takes, where the type does not say.
const PODS: &str = "110";
/// The time for which nobody asks again who gave no answer.
const SILENT_FOR: Duration = Duration::from_secs(1);

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
    costs: Kept<(), Arc<BTreeMap<String, u64>>>,
}

impl Prices {
    pub(super) async fn markets(
        &self,
        auction: &Auction,
        spec: &BidNodeSpec,
    ) -> Result<Option<Arc<Markets>>, Error> {
        let key = (spec.instance_type.clone(), spec.region.clone());
        let read = async {
            let request = v1::ListMarketsRequest {
                instance_type: spec.instance_type.clone(),
                region: spec.region.clone().unwrap_or_default(),
                ..Default::default()
            };
            Ok(markets(&auction.heard(auction.client.all(request).await)?.markets).map(Arc::new))
        };
        self.markets.get(key, PRICES_FOR, read).await
    }

    pub(super) async fn instance_type(&self, auction: &Auction, name: &str) -> Result<Arc<Type>, Error> {
        let read = async {
            let request = v1::ListInstanceTypesRequest { name: name.to_owned(), ..Default::default() };
            let entries = auction.heard(auction.client.all(request).await)?.entries;
            let Some(it) = entries.into_iter().find_map(|entry| entry.instance_type) else {
                return Ok(Arc::default());
            };
            let mut allocatable: BTreeMap<_, _> =
                it.allocatable.into_iter().map(|(name, amount)| (name, Quantity(amount))).collect();
            allocatable.entry("pods".to_owned()).or_insert_with(|| Quantity(PODS.to_owned()));
            Ok(Arc::new(Type { allocatable, labels: it.node_labels.into_iter().collect() }))
        };
        self.types.get(name.to_owned(), TYPES_FOR, read).await
    }

    /// Returns what the nodes of each BidNode have cost so far, in micro-dollars by the UID of the BidNode: what
    /// was charged, and what those that run have accrued.
    pub(super) async fn costs(&self, auction: &Auction) -> Result<Arc<BTreeMap<String, u64>>, Error> {
        let read = async {
            let request = v1::GetStatementRequest {
                labels: auction.labels([]),
                by_label: LABEL_UID.to_owned(),
                ..Default::default()
            };
            let mut costs = BTreeMap::new();
            for line in auction.heard(auction.client.get_statement(request).await)?.lines {
                let sums = line.charged.into_iter().chain(line.accrued);
                let cost: u64 = sums.map(|sums| sums.debit_micros).sum();
                *costs.entry(line.label_value.unwrap_or_default()).or_default() += cost;
            }
            Ok(Arc::new(costs))
        };
        self.costs.get((), COSTS_FOR, read).await
    }
}

/// The markets as one, and how many units they have in all.
fn markets(listed: &[v1::Market]) -> Option<Markets> {
    let Quoted { quote, increment_bps } = quoted(listed)?;
    let supplies = listed.iter().filter_map(|market| market.price.as_ref()?.supply.as_ref());
    Some(Markets { quote, increment_bps, units: supplies.map(|supply| u64::from(supply.total)).sum() })
}

/// Answers that are good for a while. Who asks for one that is being read waits for it, and for no other; where none
/// comes, nobody else waits for as long again.
#[derive(Debug)]
struct Kept<K, V>(std::sync::Mutex<BTreeMap<K, Cell<V>>>);

type Cell<V> = Arc<Mutex<Option<(Instant, Result<V, Error>)>>>;

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept(std::sync::Mutex::default())
    }
}

impl<K: Ord, V: Clone> Kept<K, V> {
    async fn get(
        &self,
        key: K,
        good_for: Duration,
        read: impl Future<Output = Result<V, Error>>,
    ) -> Result<V, Error> {
        let cell = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let mut kept = cell.lock().await;
        if let Some((when, answer)) = &*kept
            && when.elapsed() < if answer.is_ok() { good_for } else { SILENT_FOR }
        {
            return answer.clone();
        }
        let answer = read.await;
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use std::future::ready;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_holds_nobody_else_up() {
        let kept = Kept::<&str, u32>::default();
        let (began, good_for) = (Instant::now(), Duration::from_secs(15));
        let silence = || async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Err(Error::Config("silence".to_owned()))
        };
        let hundred = join_all((0..100).map(|_| kept.get("silent", good_for, silence())));
        let (answers, other) = tokio::join!(hundred, async {
            let answer = kept.get("quick", good_for, ready(Ok(7))).await;
            (answer.unwrap(), began.elapsed())
        });
        assert_eq!(other, (7, Duration::ZERO));
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(began.elapsed(), Duration::from_secs(5), "all have waited for one answer");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_while_and_none_for_a_moment() {
        let kept = Kept::<&str, u32>::default();
        let good_for = Duration::from_secs(15);
        assert!(kept.get("k", good_for, ready(Err(Error::Config("silence".to_owned())))).await.is_err());
        assert!(kept.get("k", good_for, ready(Ok(1))).await.is_err());
        tokio::time::advance(SILENT_FOR).await;
        assert_eq!(kept.get("k", good_for, ready(Ok(1))).await.unwrap(), 1);
        tokio::time::advance(good_for - Duration::from_millis(1)).await;
        assert_eq!(kept.get("k", good_for, ready(Ok(2))).await.unwrap(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(kept.get("k", good_for, ready(Ok(2))).await.unwrap(), 2);
    }
}
