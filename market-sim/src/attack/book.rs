//! Small books: some units, an agent and one to three rivals, and what they want, drawn by a seed.

use crate::world::RandomStream;
use kubebid_core::Price;
use kubebid_core::units::Micros;

/// The tick of all small books.
pub(super) const TICK: u64 = 100;
/// Time from the award of a node until it is ready.
pub(super) const BOOT: Micros = Micros::seconds(120);
/// Hours of a small book.
const HOURS: u64 = 10;

/// A kind of small book, or the simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// Ten holders of one node each, the agent is one of them, and a rival that waits.
    OneOfTen,
    /// The same, with rivals that come and go.
    Arrivals,
    /// The agent holds all ten units, and a rival wants as many.
    Corner,
    /// The agent wants ten of sixteen units, and a rival two or three.
    Several,
    /// Two markets of three units each.
    TwoMarkets,
    /// The agent can use four nodes or none.
    Gang,
    /// A provider withdraws units and puts them back.
    Withdrawals,
    /// Two markets, the cheaper one of which is closed after some hours.
    Closing,
    /// The agent sells six units to three holders.
    Seller,
    /// The agent needs nothing; four holders fill the market.
    Full,
    /// The agent needs nothing; two of eight units are free.
    Roomy,
    /// The agent needs nothing, and tenants report nodes ready themselves.
    SelfReporting,
    /// A market of a simulated world for two days, with the agent as one more tenant.
    World,
}

/// The part that the agent plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A tenant, with accomplices perhaps.
    Tenant,
    /// A provider, with accounts that bid perhaps.
    Seller,
    /// An agent that needs nothing and wants to do harm.
    Griefer,
}

/// The need of the agent or of a rival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Need {
    /// The worth of a node-hour.
    pub(super) value: Price,
    pub(super) nodes: u32,
    /// Fewer nodes than this are worth nothing.
    pub(super) least: u32,
    pub(super) from: Micros,
    pub(super) to: Micros,
}

impl Need {
    /// Returns the node-hours that are needed.
    pub(super) fn node_hours(&self) -> f64 {
        f64::from(self.nodes) * self.to.since(self.from).0 as f64 / Micros::HOUR.0 as f64
    }
}

/// A truthful tenant: it bids the value for its need while it lasts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rival {
    pub(super) need: Need,
    /// The markets that its bid names.
    pub(super) markets: Vec<usize>,
}

/// A command that a provider or the administrator gives at a set time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// Provider, market, capacity, reserve.
    Offer(usize, usize, u64, Price),
    /// Closes a market.
    Close(usize),
}

/// A small book, drawn by a seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Book {
    pub(super) end: Micros,
    pub(super) markets: usize,
    pub(super) outside: Vec<(Micros, Outside)>,
    pub(super) rivals: Vec<Rival>,
    pub(super) agent: Need,
    /// Machines of the agent that it can sell, and what a node-hour on one costs it.
    pub(super) machines: u64,
    pub(super) cost: Price,
    /// True if tenants report readiness, not providers.
    pub(super) self_reporting: bool,
}

impl Setting {
    /// All settings.
    pub const ALL: [Setting; 13] = [
        Setting::OneOfTen,
        Setting::Arrivals,
        Setting::Corner,
        Setting::Several,
        Setting::TwoMarkets,
        Setting::Gang,
        Setting::Withdrawals,
        Setting::Closing,
        Setting::Seller,
        Setting::Full,
        Setting::Roomy,
        Setting::SelfReporting,
        Setting::World,
    ];

    /// Returns the name for command lines and tables.
    pub fn name(self) -> &'static str {
        match self {
            Setting::OneOfTen => "one-of-ten",
            Setting::Arrivals => "arrivals",
            Setting::Corner => "corner",
            Setting::Several => "several",
            Setting::TwoMarkets => "two-markets",
            Setting::Gang => "gang",
            Setting::Withdrawals => "withdrawals",
            Setting::Closing => "closing",
            Setting::Seller => "seller",
            Setting::Full => "full",
            Setting::Roomy => "roomy",
            Setting::SelfReporting => "self-reporting",
            Setting::World => "world",
        }
    }

    /// Returns what the setting is, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Setting::OneOfTen => {
                "Ten units at $0.50, ten holders of one node each at about $2.00, of whom the agent is one. After \
                 some minutes a rival wants one to three nodes and stays."
            }
            Setting::Arrivals => {
                "The same ten holders. Rivals come now and then and stay for 10 to 60 minutes."
            }
            Setting::Corner => {
                "Ten units at $0.50, the agent wants all at about $9, and a rival wants all at a little less."
            }
            Setting::Several => {
                "Sixteen units at $0.50, the agent wants ten at about $2.00, a holder has five at more, and a rival \
                 wants two or three."
            }
            Setting::TwoMarkets => {
                "Two markets of three units, at $0.50 and about $0.80. The agent wants one node in either, and \
                 three rivals come, one of which bids in both."
            }
            Setting::Gang => {
                "Eight units at $0.50. The agent can use four nodes or none; a holder has four, and two rivals come."
            }
            Setting::Withdrawals => {
                "Six units at $0.50. Six holders, of whom the agent is one, and a rival; the provider withdraws one or \
                 two units every two hours or so, and puts them back after 40 minutes."
            }
            Setting::Closing => {
                "Two markets of four units, at $0.50 and $0.70. The first is closed after three to five hours. The \
                 agent wants two nodes in either."
            }
            Setting::Seller => {
                "The agent has six machines that cost it $0.50 an hour and sells alone. Three holders want two nodes each at \
                 about $2.00, and a fourth waits for one at about $0.80."
            }
            Setting::Full => {
                "Six units at $0.50 are held by four tenants at about $2.00. The agent needs nothing."
            }
            Setting::Roomy => "The same tenants come within four hours, and two of eight units stay free.",
            Setting::SelfReporting => {
                "As the full one, but tenants report themselves that their nodes are ready."
            }
            Setting::World => {
                "A market of 24 units in a simulated world, two days long, all others truthful. The agent wants two \
                 nodes for 44 hours."
            }
        }
    }

    /// Returns the part that the agent plays.
    pub fn role(self) -> Role {
        match self {
            Setting::OneOfTen
            | Setting::Arrivals
            | Setting::Corner
            | Setting::Several
            | Setting::TwoMarkets
            | Setting::Gang
            | Setting::Withdrawals
            | Setting::Closing
            | Setting::World => Role::Tenant,
            Setting::Seller => Role::Seller,
            Setting::Full | Setting::Roomy | Setting::SelfReporting => Role::Griefer,
        }
    }

    /// Draws the book of a seed; none for the world.
    pub(super) fn draw(self, seed: u64) -> Option<Book> {
        let mut random = RandomStream::named(seed, self.name());
        let draw = &mut Draw(&mut random);
        Some(match self {
            Setting::OneOfTen => {
                let mut book = draw.ten_holders();
                // The agent is still protected then, so that it cannot have lowered its ceiling.
                let (nodes, from) = (1 + draw.below(3), 200 + draw.below(800));
                let share = 94 + draw.below(5);
                let lowest = book.lowest_value();
                book.rival(Price(lowest * share / 100 / TICK * TICK), nodes as u32, from, HOURS * 3600, &[0]);
                book
            }
            Setting::Arrivals => {
                let mut book = draw.ten_holders();
                let mut at = 1500 + draw.below(1800);
                let lowest = book.lowest_value();
                while at < HOURS * 3600 - 3600 {
                    let stays = 600 + draw.below(3000);
                    let value = lowest * (80 + draw.below(19)) / 100 / TICK * TICK;
                    book.rival(Price(value), 1 + draw.below(2) as u32, at, at + stays, &[0]);
                    at += stays + 600 + draw.below(4200);
                }
                book
            }
            Setting::Corner => {
                let value = draw.about(9_000_000, 5);
                let mut book = Book::new(&[(10, 500_000)], draw.need(value, 10));
                let share = 94 + draw.below(5);
                let from = 200 + draw.below(800);
                book.rival(Price(value.0 * share / 100 / TICK * TICK), 10, from, HOURS * 3600, &[0]);
                book
            }
            Setting::Several => {
                let value = draw.about(2_000_000, 5);
                let mut book = Book::new(&[(16, 500_000)], draw.need(value, 10));
                book.rival(draw.about(2_600_000, 5), 5, 0, HOURS * 3600, &[0]);
                let (nodes, share) = (2 + draw.below(2), 94 + draw.below(5));
                let from = 1200 + draw.below(3000);
                book.rival(
                    Price(value.0 * share / 100 / TICK * TICK),
                    nodes as u32,
                    from,
                    HOURS * 3600,
                    &[0],
                );
                book
            }
            Setting::TwoMarkets => {
                let dear = draw.about(800_000, 15).0;
                let value = draw.about(2_000_000, 10);
                let mut book = Book::new(&[(3, 500_000), (3, dear)], draw.need(value, 1));
                for markets in [&[0][..], &[1], &[0, 1]] {
                    let value = draw.about(1_900_000, 25);
                    let (from, nodes) = (draw.below(3 * 3600), 1 + draw.below(3));
                    let to = from + 2 * 3600 + draw.below(5 * 3600);
                    book.rival(value, nodes as u32, from, to, markets);
                }
                book
            }
            Setting::Gang => {
                let value = draw.about(2_000_000, 5);
                let mut need = draw.need(value, 4);
                need.least = 4;
                let mut book = Book::new(&[(8, 500_000)], need);
                book.rival(draw.about(2_600_000, 5), 4, 0, HOURS * 3600, &[0]);
                for _ in 0..2 {
                    let (from, nodes) = (1200 + draw.below(4 * 3600), 1 + draw.below(2));
                    let to = from + 3600 + draw.below(4 * 3600);
                    book.rival(draw.about(1_900_000, 20), nodes as u32, from, to, &[0]);
                }
                book
            }
            Setting::Withdrawals => {
                let value = draw.about(2_000_000, 10);
                let mut book = Book::new(&[(6, 500_000)], draw.need(value, 1));
                (0..5).for_each(|_| book.rival(draw.about(2_000_000, 10), 1, 0, HOURS * 3600, &[0]));
                book.rival(draw.about(1_500_000, 20), 1, 1800 + draw.below(3600), HOURS * 3600, &[0]);
                let mut at = 2400 + draw.below(3600);
                while at < (HOURS - 1) * 3600 {
                    let left = 4 + draw.below(2);
                    book.outside.push((Micros::seconds(at), Outside::Offer(0, 0, left, Price(500_000))));
                    let back = Micros::seconds(at + 2400);
                    book.outside.push((back, Outside::Offer(0, 0, 6, Price(500_000))));
                    at += 4800 + draw.below(4800);
                }
                book
            }
            Setting::Closing => {
                let value = draw.about(2_000_000, 10);
                let mut book = Book::new(&[(4, 500_000), (4, 700_000)], draw.need(value, 2));
                for markets in [&[0][..], &[1], &[0, 1]] {
                    let from = draw.below(3600);
                    book.rival(
                        draw.about(1_900_000, 15),
                        1 + draw.below(2) as u32,
                        from,
                        HOURS * 3600,
                        markets,
                    );
                }
                let at = 3 * 3600 + draw.below(2 * 3600);
                book.outside.push((Micros::seconds(at), Outside::Close(0)));
                let gone = Micros::seconds(at + 3600);
                book.outside.push((gone, Outside::Offer(0, 0, 0, Price(500_000))));
                book
            }
            Setting::Seller => {
                let nothing = draw.need(Price::ZERO, 0);
                let mut book = Book::new(&[(0, 0)], nothing);
                (book.machines, book.cost) = (6, Price(500_000));
                for _ in 0..3 {
                    book.rival(draw.about(2_000_000, 10), 2, 120 + draw.below(600), HOURS * 3600, &[0]);
                }
                book.rival(draw.about(800_000, 10), 1, 120, HOURS * 3600, &[0]);
                book
            }
            Setting::Full => draw.holders(6, 60),
            Setting::Roomy => draw.holders(8, 4 * 3600),
            Setting::SelfReporting => Book { self_reporting: true, ..draw.holders(6, 60) },
            Setting::World => return None,
        })
    }
}

impl Book {
    fn new(supply: &[(u64, u64)], agent: Need) -> Book {
        let offer = |(market, (units, reserve)): (usize, &(u64, u64))| {
            (Micros(0), Outside::Offer(market, market, *units, Price(reserve / TICK * TICK)))
        };
        Book {
            end: Micros::seconds(HOURS * 3600),
            markets: supply.len(),
            outside: supply.iter().enumerate().filter(|(_, (units, _))| *units > 0).map(offer).collect(),
            rivals: Vec::new(),
            agent,
            machines: 0,
            cost: Price::ZERO,
            self_reporting: false,
        }
    }

    fn rival(&mut self, value: Price, nodes: u32, from: u64, to: u64, markets: &[usize]) {
        let (from, to) = (Micros::seconds(from), Micros::seconds(to.min(HOURS * 3600)));
        let need = Need { value, nodes, least: 1, from, to };
        self.rivals.push(Rival { need, markets: markets.to_vec() });
    }

    fn lowest_value(&self) -> u64 {
        let rivals = self.rivals.iter().map(|rival| rival.need.value.0);
        rivals.chain([self.agent.value.0]).min().expect("an agent")
    }
}

/// Draws parts of a book.
struct Draw<'a>(&'a mut RandomStream);

impl Draw<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Draws a price within some percent of another.
    fn about(&mut self, price: u64, percent: u64) -> Price {
        let share = 100.0 + percent as f64 * self.0.between(-1.0, 1.0);
        Price((price as f64 * share / 100.0) as u64 / TICK * TICK)
    }

    /// Returns a need from a moment after the beginning to the end.
    fn need(&mut self, value: Price, nodes: u32) -> Need {
        let from = Micros::seconds(60 + self.below(60));
        Need { value, nodes, least: 1, from, to: Micros::seconds(HOURS * 3600) }
    }

    fn ten_holders(&mut self) -> Book {
        let value = self.about(2_050_000, 2);
        let mut book = Book::new(&[(10, 500_000)], self.need(value, 1));
        for _ in 0..9 {
            book.rival(self.about(2_050_000, 2), 1, 0, HOURS * 3600, &[0]);
        }
        book
    }

    /// Returns a book of four holders of six nodes, who come within some seconds.
    fn holders(&mut self, units: u64, within: u64) -> Book {
        let nothing = self.need(Price::ZERO, 0);
        let mut book = Book::new(&[(units, 500_000)], nothing);
        for nodes in [2, 2, 1, 1] {
            book.rival(self.about(2_000_000, 10), nodes, self.below(within), HOURS * 3600, &[0]);
        }
        book
    }
}
