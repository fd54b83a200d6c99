//! Immutable views of markets, prices and names, published after each commit. Reading them takes no lock.

use crate::runtime::reference_price::Reference;
use arc_swap::ArcSwap;
use kubebid_core::event::{Event, Fact};
use kubebid_core::numbers::{Numbers, Supply};
use kubebid_core::units::{MarketId, MarketName, Micros, Names, Seq};
use kubebid_core::{Auction, Exchange, MarketRules, MarketState, Price};
use std::collections::HashMap;
use std::sync::Arc;

/// A market as of one command.
#[derive(Clone, Debug)]
pub struct MarketView {
    /// The market.
    pub market: MarketId,
    /// Its name, as `type/region`.
    pub name: MarketName,
    /// The market time at which it was first opened.
    pub opened_at: Micros,
    /// Its state (R18).
    pub state: MarketState,
    /// Its rules.
    pub rules: MarketRules,
    /// Its five numbers (R9).
    pub numbers: Numbers,
    /// The counts of its units.
    pub supply: Supply,
    /// The price of which 65 % is the median of the last 48 hours. Bidding strategies multiply it.
    pub reference_price: Option<Price>,
    /// The command that the view belongs to.
    pub seq: Seq,
    /// The market time of the view.
    pub at: Micros,
}

/// All markets, in the order in which they were opened; those that have ended too.
#[derive(Debug, Default)]
pub struct Markets {
    cells: Vec<Arc<ArcSwap<MarketView>>>,
    by_name: HashMap<MarketName, usize>,
}

impl Markets {
    /// Returns the view of a market; None if there is no such market.
    pub fn get(&self, name: &MarketName) -> Option<Arc<MarketView>> {
        Some(self.cells[*self.by_name.get(name)?].load_full())
    }

    /// Returns the view of a market by its id.
    ///
    /// # Panics
    /// If the id is not that of a market.
    pub fn by_id(&self, id: MarketId) -> Arc<MarketView> {
        self.cells[id.0 as usize].load_full()
    }

    /// Returns all views in the order in which the markets were opened.
    pub fn iter(&self) -> impl Iterator<Item = Arc<MarketView>> {
        self.cells.iter().map(|cell| cell.load_full())
    }

    /// Returns the views of the markets that have not ended.
    pub fn not_ended(&self) -> impl Iterator<Item = Arc<MarketView>> {
        self.iter().filter(|view| view.state != MarketState::Ended)
    }

    /// Returns the views of the markets of an instance type that have not ended.
    pub fn of_type(&self, instance_type: &str) -> impl Iterator<Item = Arc<MarketView>> {
        self.not_ended().filter(move |view| view.name.parts().0 == instance_type)
    }
}

/// The published views. Reading them takes no lock.
#[derive(Debug, Default)]
pub struct Views {
    markets: ArcSwap<Markets>,
    names: ArcSwap<Names>,
}

impl Views {
    /// Returns the markets as of the last published commit.
    pub fn markets(&self) -> Arc<Markets> {
        self.markets.load_full()
    }

    /// Returns the names of accounts and markets as of the last published commit.
    pub fn names(&self) -> Arc<Names> {
        self.names.load_full()
    }
}

/// The side that publishes the views.
#[derive(Debug)]
pub(crate) struct Publisher {
    views: Arc<Views>,
    references: Vec<Reference>,
    opened: Vec<Micros>,
    /// The time at which all markets were last published; None before the first time.
    refreshed: Option<Micros>,
}

/// The greatest age of a reference price in a market where nothing happens.
const REFRESH: Micros = Micros::seconds(10);

impl Publisher {
    pub(crate) fn new(views: Arc<Views>) -> Publisher {
        Publisher { views, references: Vec::new(), opened: Vec::new(), refreshed: None }
    }

    /// Takes the price changes from the events of a command.
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

    /// Adds a market, also one that was opened before the first event that is noted here.
    pub(crate) fn open(&mut self, market: MarketId, at: Micros) {
        let index = market.0 as usize;
        if self.references.len() <= index {
            self.references.resize_with(index + 1, Reference::default);
            self.opened.resize(index + 1, at);
        }
    }

    /// Adds a price that was in force before the first event that is noted here.
    pub(crate) fn recall(&mut self, market: MarketId, at: Micros, numbers: &Numbers) {
        self.references[market.0 as usize].change(at, numbers);
    }

    /// Returns the published names.
    pub(crate) fn names(&self) -> Arc<Names> {
        self.views.names()
    }

    /// Publishes the markets that changed. Publishes all of them the first time, and from time to
    /// time, because reference prices change with time alone.
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
            state: exchange.market_state(id),
            rules: exchange.market_rules(id).clone(),
            numbers,
            supply,
            reference_price: self.references[index].price(exchange.now()),
            seq: exchange.seq(),
            at: exchange.now(),
        }
    }
}
