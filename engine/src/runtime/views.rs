//! Immutable views of markets, prices and names, published after each commit. Reading them takes no lock.

use crate::runtime::reference_price::Reference;
use arc_swap::ArcSwap;
use kubebid_core::event::{Event, Fact};
use kubebid_core::numbers::{Numbers, Supply};
use kubebid_core::units::{MarketId, MarketName, Micros, Names, Seq};
use kubebid_core::{Auction, Exchange, MarketRules, Price};
use std::collections::HashMap;
use std::sync::Arc;

/// A market as of one command.
#[derive(Clone, Debug)]
pub struct MarketView {
    pub market: MarketId,
    pub name: MarketName,
    pub opened_at: Micros,
    pub rules: MarketRules,
    pub numbers: Numbers,
    pub supply: Supply,
    /// The price of which 65 % is the median of the last 48 hours. Bidding strategies multiply it.
    pub reference_price: Option<Price>,
    pub seq: Seq,
    pub at: Micros,
}

/// The markets that are open, in the order in which they were opened.
#[derive(Debug, Default)]
pub struct Markets {
    cells: Vec<Arc<ArcSwap<MarketView>>>,
    by_name: HashMap<MarketName, usize>,
}

impl Markets {
    pub fn get(&self, name: &MarketName) -> Option<Arc<MarketView>> {
        Some(self.cells[*self.by_name.get(name)?].load_full())
    }

    pub fn by_id(&self, id: MarketId) -> Arc<MarketView> {
        self.cells[id.0 as usize].load_full()
    }

    pub fn iter(&self) -> impl Iterator<Item = Arc<MarketView>> {
        self.cells.iter().map(|cell| cell.load_full())
    }

    pub fn of_type(&self, instance_type: &str) -> impl Iterator<Item = Arc<MarketView>> {
        self.iter().filter(move |view| view.name.parts().0 == instance_type)
    }
}

#[derive(Debug, Default)]
pub struct Views {
    markets: ArcSwap<Markets>,
    names: ArcSwap<Names>,
}

impl Views {
    pub fn markets(&self) -> Arc<Markets> {
        self.markets.load_full()
    }

    pub fn names(&self) -> Arc<Names> {
        self.names.load_full()
    }
}

/// The one who publishes.
#[derive(Debug)]
pub(crate) struct Publisher {
    views: Arc<Views>,
    references: Vec<Reference>,
    opened: Vec<Micros>,
    /// The time at which all markets were last published; not yet at the beginning.
    refreshed: Option<Micros>,
}

/// The greatest age of a reference price in a market where nothing happens.
const REFRESH: Micros = Micros::seconds(10);

impl Publisher {
    pub(crate) fn new(views: Arc<Views>) -> Publisher {
        Publisher { views, references: Vec::new(), opened: Vec::new(), refreshed: None }
    }

    /// Takes note of price changes.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others move no price")]
    pub(crate) fn note(&mut self, events: &[Event]) {
        for event in events {
            match &event.fact {
                Fact::MarketOpened { market } => self.open(*market, event.at),
                Fact::PriceChanged { market, numbers } => {
                    self.references[market.0 as usize].change(event.at, numbers);
                }
                _ => {}
            }
        }
    }

    /// Also for markets that were opened before the events that are noted here begin.
    pub(crate) fn open(&mut self, market: MarketId, at: Micros) {
        let index = market.0 as usize;
        if self.references.len() <= index {
            self.references.resize_with(index + 1, Reference::default);
            self.opened.resize(index + 1, at);
        }
    }

    /// A price that was in force before the events that are noted here begin.
    pub(crate) fn recall(&mut self, market: MarketId, at: Micros, numbers: &Numbers) {
        self.references[market.0 as usize].change(at, numbers);
    }

    /// Returns the published names.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.views.names()
    }

    /// Publishes the markets that changed; the first time all, and now and then, for time moves the
    /// reference prices.
    pub(crate) fn publish(&mut self, exchange: &mut Exchange) {
        let mut changed = exchange.take_changed();
        let now = exchange.now();
        if self.refreshed.is_none_or(|refreshed| now.since(refreshed) >= REFRESH) {
            self.refreshed = Some(now);
            changed = (0..self.references.len() as u32).map(MarketId).collect();
        }
        let names = exchange.names();
        let known = self.views.names.load();
        if known.accounts.len() != names.accounts.len() || known.markets.len() != names.markets.len() {
            self.views.names.store(Arc::new(names.clone()));
        }
        let markets = self.views.markets.load_full();
        let mut opened = Vec::new();
        for id in changed {
            let view = self.view(exchange, id);
            match markets.cells.get(id.0 as usize) {
                Some(cell) => cell.store(Arc::new(view)),
                None => opened.push(view),
            }
        }
        if !opened.is_empty() {
            let mut cells = markets.cells.clone();
            let mut by_name = markets.by_name.clone();
            for view in opened {
                by_name.insert(view.name.clone(), cells.len());
                cells.push(Arc::new(ArcSwap::from_pointee(view)));
            }
            self.views.markets.store(Arc::new(Markets { cells, by_name }));
        }
    }

    fn view(&mut self, exchange: &Exchange, id: MarketId) -> MarketView {
        let (numbers, supply) = exchange.market_numbers(id);
        let index = id.0 as usize;
        MarketView {
            market: id,
            name: exchange.names().market(id).clone(),
            opened_at: self.opened[index],
            rules: exchange.market_rules(id).clone(),
            numbers,
            supply,
            reference_price: self.references[index].price(exchange.now()),
            seq: exchange.seq(),
            at: exchange.now(),
        }
    }
}
