//! A world is the same for the same seed, and its prices come out of the auction.

use kubebid_core::units::Micros;
use market_sim::calibration::{compare_demand, compare_prices};
use market_sim::venue::{InProcess, JournaledVenue};
use market_sim::world::{
    FIELDS, Kind, Outcome, PAIRS, Rules, Settings, jobs_of, simulate, simulate_parallel,
};
use std::num::{NonZeroU64, NonZeroUsize};

fn lived(settings: &Settings) -> Outcome {
    let threads = NonZeroUsize::new(2).expect("two");
    simulate_parallel(settings, threads, |_| {}).expect("the auditor agrees")
}

fn small(seed: u64) -> Settings {
    Settings { seed, days: 2, markets: 2, ..Settings::default() }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| serde_json::to_vec(&lived(&small(seed))).expect("an outcome is JSON");
    let first = bytes(1);
    assert!(first == bytes(1), "two runs of seed 1 differ");
    assert!(first != bytes(2), "seeds 1 and 2 agree");
}

#[test]
fn an_exchange_for_all_markets_and_one_for_each_give_the_same_bytes() {
    let settings = Settings { markets: 3, ..small(1) };
    let together = simulate(&settings, &mut InProcess::new(), |_| {}).expect("the auditor agrees");
    let bytes = |outcome: &Outcome| serde_json::to_vec(outcome).expect("an outcome is JSON");
    assert!(bytes(&together) == bytes(&lived(&settings)), "the markets feel each other");
}

#[test]
fn an_exchange_that_is_lost_and_recovered_from_its_journal_gives_the_same_bytes() {
    let settings = Settings { days: 1, ..small(1) };
    let every = NonZeroU64::new(97).expect("more than none");
    let recovered = simulate(&settings, &mut JournaledVenue::new(every), |_| {}).expect("it is what it was");
    let bytes = |outcome: &Outcome| serde_json::to_vec(outcome).expect("an outcome is JSON");
    assert!(bytes(&recovered) == bytes(&lived(&settings)), "something was lost");
}

#[test]
fn a_further_market_changes_no_other() {
    let two = lived(&small(1));
    let three = lived(&Settings { markets: 3, ..small(1) });
    assert!(two.markets[..] == three.markets[..2], "the third market is felt in the others");
}

#[test]
fn the_page_of_a_world_shows_every_market_and_every_way_to_bid() {
    let outcome = lived(&small(1));
    let page = outcome.page();
    for chart in &page.charts[..3] {
        let names: Vec<&str> = chart.series.iter().map(|series| &series.name[..]).collect();
        let markets: Vec<&str> = outcome.markets.iter().map(|market| &market.market[..]).collect();
        assert_eq!(names, markets, "{}", chart.title);
        assert!(chart.series.iter().all(|series| series.points.len() > 100), "{}", chart.title);
    }
    let notices: f64 = page.charts[3].series[0].points.iter().map(|point| point.y).sum();
    let counted: u64 = outcome.markets.iter().flat_map(|market| &market.notices).sum();
    assert_eq!(notices, counted as f64);
    assert_eq!(page.tables[0].rows.len(), outcome.kinds.len());
}

#[test]
fn jobs_come_whatever_the_rules_are() {
    let settings = small(1);
    let under_default_rules = Settings { rules: Rules::MARKET_DEFAULT, ..settings.clone() };
    assert!(jobs_of(&settings, 0) == jobs_of(&under_default_rules, 0));
    let (chosen, default) = (lived(&settings), lived(&under_default_rules));
    let jobs =
        |outcome: &Outcome| outcome.kinds.values().map(|sums| sums.jobs).sum::<u64>() + outcome.over_budget;
    assert_eq!(jobs(&chosen), jobs(&default));
}

#[test]
fn every_kind_of_tenant_has_jobs_and_pays_for_its_nodes() {
    let outcome = lived(&Settings { days: 4, ..small(3) });
    for kind in Kind::ALL {
        let sums = outcome.kinds.get(&kind).copied().unwrap_or_default();
        assert!(sums.jobs > 0 && sums.done > 0 && sums.cost_micros > 0, "{}: {sums:?}", kind.name());
    }
    assert_eq!(outcome.kinds.values().map(|sums| sums.cost_micros).sum::<u128>(), outcome.debits_micros);
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    assert!(outcome.bills_exact > 100, "{outcome}");
}

#[test]
fn a_series_has_a_point_for_every_sample() {
    let settings = Settings { sample_seconds: 3600, ..small(1) };
    for market in lived(&settings).markets {
        let points = 2 * 24 + 1;
        assert_eq!(market.market_price_micros.len(), points);
        assert_eq!(market.entry_price_micros.len(), points);
        let lengths = [&market.unmet_nodes, &market.nodes_in_use, &market.supply_nodes, &market.notices];
        assert!(lengths.iter().all(|series| series.len() == points));
        assert!(market.cost_micros.values().all(|series| series.len() == points));
        assert!(market.nodes_in_use.iter().zip(&market.supply_nodes).all(|(used, all)| used <= all));
    }
}

/// A week of four markets says little: only what holds in any such week is asked.
#[test]
fn a_week_has_a_floor_and_spikes() {
    let settings = Settings { days: 7, markets: 4, ..Settings::default() };
    let table = compare_prices(&lived(&settings));
    let measured = |name: &str| {
        let row = table.rows.iter().find(|row| row.statistic == name);
        row.unwrap_or_else(|| panic!("{name} is not in the table")).measured
    };
    assert!((settings.supply.reserve[0]..0.2).contains(&measured("median_over_on_demand")), "{table}");
    assert!((0.5..=10.0).contains(&measured("max_over_on_demand")), "{table}");
    assert!((0.1..1.0).contains(&measured("hourly_log_return_std")), "{table}");
    assert!(measured("hourly_log_return_excess_kurtosis") > 3.0, "{table}");
    assert!(measured("hourly_log_return_autocorrelation") < 0.0, "{table}");
    assert!((0.5..8.0).contains(&measured("excursions_per_day")), "{table}");
    assert!(measured("excursion_hours_p50") < 1.0, "{table}");
    assert!(measured("return_correlation_between_markets").abs() < 0.2, "{table}");
}

/// Two weeks instead of two months, but the bands are the same: what needs longer is left out.
#[test]
fn jobs_are_like_those_of_real_clusters() {
    let table = compare_demand(&Settings { days: 28, markets: 8, ..Settings::default() });
    let robust = |name: &str| {
        name.starts_with("duration_seconds")
            || name.starts_with("positive_gap")
            || name.starts_with("share_of_jobs")
    };
    let out: Vec<&str> =
        table.outside().map(|row| row.statistic.as_str()).filter(|name| robust(name)).collect();
    assert!(out.is_empty(), "{out:?}\n{table}");
}

#[test]
fn a_world_may_be_otherwise_but_not_misspelt() {
    let settings = Settings::default();
    let changed = settings.with(r#"{"jobs": {"per_hour": 3.5}}"#).expect("a field of the settings");
    assert_eq!(changed.jobs.per_hour, 3.5);
    assert_eq!(Settings { jobs: settings.jobs.clone(), ..changed }, settings);
    let error = settings.with(r#"{"jobs": {"per_our": 3.5}}"#).expect_err("no such field").to_string();
    assert!(error.contains("per_our"), "{error}");
}

#[test]
fn a_world_may_be_yaml() {
    let yaml = "# a calm week\ndays: 7\njobs:\n  per_hour: 5\n  kinds: [[truthful, 1.0]]\nsupply:\n  reserve: [0.1, 0.2]\n";
    let json = r#"{"days": 7, "jobs": {"per_hour": 5, "kinds": [["truthful", 1]]}, "supply": {"reserve": [0.1, 0.2]}}"#;
    let settings = Settings::default();
    assert_eq!(settings.with(yaml).expect("a world"), settings.with(json).expect("a world"));
}

#[test]
fn what_a_world_cannot_be_is_refused_by_field_before_anything_runs() {
    for (world, field) in [
        ("jobs: {per_hour: -5}", "jobs.per_hour"),
        ("jobs: {per_hour: 1e9}", "jobs.per_hour"),
        ("jobs: {per_hour: .nan}", "per_hour"),
        ("jobs: {per_hour: many}", "jobs.per_hour"),
        ("jobs: {kinds: []}", "jobs.kinds"),
        ("jobs: {kinds: [[truthful, 0]]}", "jobs.kinds"),
        ("jobs: {kinds: [[urgent, 1]]}", "jobs.kinds"),
        ("jobs: {kinds: [[miser, 1]]}", "jobs.kinds"),
        ("on_demand_micros: 0", "on_demand_micros"),
        ("supply: {reserve: [0.2, 0.1]}", "supply.reserve"),
        ("supply: {reserve: [0.2]}", "supply.reserve"),
        ("supply: {outage_share: [0.5, 2]}", "supply.outage_share"),
        ("supply: {units: 1e12}", "supply.units"),
        ("rushes: {tenants: 0}", "rushes.tenants"),
        ("rules: {ceiling_max_on_demand: 0}", "rules.ceiling_max_on_demand"),
        ("rules: {notice_seconds: -1}", "rules.notice_seconds"),
        ("days: 3.5", "days"),
        ("weeks: 3", "weeks"),
    ] {
        let error = Settings::default().with(world).expect_err(world).to_string();
        assert!(error.contains(field), "{world}: {error}");
    }
    for none in ["", "3", "[1, 2]", "{", "a: b: c"] {
        assert!(Settings::default().with(none).is_err(), "{none:?}");
    }
}

#[test]
fn a_world_without_jobs_or_without_rushes_ends() {
    let jobless = "jobs: {per_hour: 0}";
    let calm = "rushes: {calm_rate: 0, hot_rate: 0}";
    let rare = "jobs: {per_hour: 1e-300}\nrushes: {calm_rate: 1e-300, hot_rate: 0}";
    let still =
        "jobs: {per_hour: 0}\nrushes: {calm_rate: 0, hot_rate: 0}\nsupply: {churn_rate: 0, outage_rate: 0}";
    for (world, has_jobs, has_rushes) in
        [(jobless, false, true), (calm, true, false), (rare, false, false), (still, false, false)]
    {
        let outcome = lived(&small(1).with(world).expect("a fair wish"));
        let of = |urgent: bool| {
            let kinds = outcome.kinds.iter().filter(|(kind, _)| (**kind == Kind::Urgent) == urgent);
            kinds.map(|(_, sums)| sums.jobs).sum::<u64>()
        };
        assert_eq!((of(false) > 0, of(true) > 0), (has_jobs, has_rushes), "{world}");
        let _ = (compare_demand(&outcome.settings), compare_prices(&outcome));
    }
}

/// Each number at its least and at its most, one at a time, in a small world.
#[test]
fn every_field_at_either_end_of_its_range_gives_a_world_that_ends() {
    let small =
        "days: 1\nmarkets: 1\njobs: {per_hour: 1}\nrushes: {calm_rate: 1, hot_rate: 5}\nsupply: {units: 10}";
    let small = Settings::default().with(small).expect("a small world");
    // More of these is only longer, and seeds have no ends.
    let long = ["seed", "days", "markets", "supply.units", "supply.providers", "jobs.per_hour"];
    let many =
        ["supply.churn_rate", "supply.outage_rate", "rushes.calm_rate", "rushes.hot_rate", "sample_seconds"];
    for field in FIELDS.iter().filter(|field| !long.contains(&field.name)) {
        for end in [field.least, field.most] {
            if many.contains(&field.name) && end != field.least.max(1.0) {
                continue;
            }
            let pair = matches!(field.name, "supply.reserve" | "supply.outage_share");
            let value = if pair { format!("[{end}, {end}]") } else { format!("{end}") };
            // A least value cannot be above the highest one: that one is there too.
            let partner = PAIRS.iter().find_map(|(least, most)| match field.name {
                name if name == *least && end == field.most => most.split_once('.'),
                name if name == *most && end == field.least => least.split_once('.'),
                _ => None,
            });
            let partner = partner.map_or(String::new(), |(_, name)| format!(", {name}: {value}"));
            let world = match field.name.split_once('.') {
                Some((part, name)) => format!("{part}: {{{name}: {value}{partner}}}"),
                None => format!("{}: {value}", field.name),
            };
            let settings = small.with(&world).unwrap_or_else(|error| panic!("{world}: {error}"));
            simulate(&settings, &mut InProcess::new(), |_| {})
                .unwrap_or_else(|error| panic!("{world}: {error}"));
        }
    }
}

#[test]
fn the_epoch_of_a_world_is_a_monday() {
    let (first, _) = jobs_of(&small(1), 0)[0];
    let days = first.0 / Micros::DAY.0;
    assert_eq!((days + 3) % 7, 0);
}
