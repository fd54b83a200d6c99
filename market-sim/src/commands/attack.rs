//! `market-sim attack`: searches for policies that gain by anything but the truth, or that do harm for nothing.

use super::stdout::Stdout;
use clap::Args;
use kubebid_core::command::{RuleChange, RuleValue};
use market_sim::attack::{Measurement, Runs, Search, Setting, markdown, named, page, search};
use market_sim::experiment::with_tables;
use std::error::Error;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Arguments {
    /// Named policies to play, such as flicker or seller-flicker [default: all]
    policies: Vec<String>,
    /// Settings in which to play, such as one-of-ten or world; --list shows all [default: all]
    #[arg(long = "in", value_name = "SETTING", value_delimiter = ',', value_parser = setting)]
    settings: Vec<Setting>,
    /// Seeds of each policy in each setting
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    seeds: u64,
    /// Also try this many policies of a random search, with as many seeds each
    #[arg(long, value_name = "POLICIES", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    search: u64,
    /// Everything that is drawn follows from it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    seed: u64,
    /// Rule of the small books that differs from the default, such as pricing=LowestAccepted
    #[arg(long = "rule", value_name = "NAME=VALUE", value_parser = rule)]
    rules: Vec<RuleChange>,
    /// Runs at the same time [default: one for each core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// List settings and named policies, and end
    #[arg(long)]
    list: bool,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page to look at; .json and .csv have its data
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write the gains as a picture
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Write the tables into this page of documentation, between <!-- tables: attack --> and <!-- end of tables -->
    #[arg(long, value_name = "FILE.md")]
    into: Option<PathBuf>,
}

const HELP: &str = "\
An agent trades as a policy says: a programme of bids, amendments, cancellations, releases, offers and
withdrawals, of one account or of up to three that collude, with conditions on what these accounts see. All others
are truthful. Each run is compared with the truth for the same seed.

  gain        the agent's payoff over that of the truth: the value of the node time that it needed, less restarts
              and payments, plus income, per node-hour; mean and half the 95 % confidence interval over the seeds
  harm        in settings where the agent needs nothing: work that others lost, by node time and by restarts
  harm per $  that harm for each dollar that the agent lost
  *           a gain of more than 1 % of the truthful payoff beyond the interval, or harm of $1 for less than $0.50

The search mutates the best policies of each setting, shortens the best one, and measures it on fresh seeds. The
same arguments give the same figures, whatever the threads.

Examples:
  market-sim attack --list
  market-sim attack flicker sleeper --in one-of-ten,world
  market-sim attack --rule pricing=LowestAccepted --in full
  market-sim attack --search 2000 --report attacks.html --json attacks.json

Exit codes: 0 done, whatever was found; 1 a run ended early, or a file could not be written; 2 wrong arguments.";

fn setting(text: &str) -> Result<Setting, String> {
    let known = Setting::ALL.into_iter().find(|setting| setting.name() == text);
    let names = Setting::ALL.map(Setting::name).join(", ");
    known.ok_or_else(|| format!("{text:?} is no setting: there are {names}"))
}

fn rule(text: &str) -> Result<RuleChange, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    let value = match value.parse() {
        Ok(number) => RuleValue::Number(number),
        Err(_) => RuleValue::Word(value.into()),
    };
    let change = RuleChange { name: name.into(), value };
    let allowed = kubebid_core::MarketRules::default().with(std::slice::from_ref(&change));
    allowed.map(|_| change).map_err(|reject| format!("{text:?} is refused: {}", reject.code()))
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = if arguments.list { list() } else { attack(arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::complain(error.as_ref()),
    }
}

fn list() -> Result<(), Box<dyn Error>> {
    for setting in Setting::ALL {
        writeln!(Stdout, "{}\n    {}", setting.name(), setting.about())?;
        let names: Vec<String> = named(setting.role()).into_iter().map(|policy| policy.name).collect();
        writeln!(Stdout, "    {}", names.join(", "))?;
    }
    Ok(())
}

fn attack(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let settings = match arguments.settings.as_slice() {
        [] => Setting::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let chosen = |setting: &Setting| {
        let all = named(setting.role()).into_iter();
        all.filter(|policy| arguments.policies.is_empty() || arguments.policies.contains(&policy.name))
            .collect::<Vec<_>>()
    };
    for name in &arguments.policies {
        if !settings.iter().any(|setting| named(setting.role()).iter().any(|policy| policy.name == *name)) {
            return Err(format!("no policy of these settings is named {name:?}; --list shows all").into());
        }
    }
    let runs = Runs {
        rules: arguments.rules.clone(),
        threads: arguments.threads.unwrap_or_else(super::simulate::cores),
    };
    let started = Instant::now();
    let first = 1_000_000_000 + arguments.seed * 1_000_000;
    let seeds = first..first + arguments.seeds;
    let count: usize = settings.iter().map(|setting| chosen(setting).len()).sum();
    let bar = super::counting_bar(count as u64 + arguments.search, "policies");
    let mut all: Vec<Measurement> = Vec::new();
    for setting in &settings {
        let policies = chosen(setting);
        if policies.is_empty() {
            continue;
        }
        let baseline = runs.baseline(*setting, seeds.clone())?;
        for policy in policies {
            all.push(runs.measure(&baseline, &policy)?);
            bar.inc(1);
        }
    }
    let found = match arguments.search {
        0 => Vec::new(),
        policies => {
            let wanted = Search { policies, seeds: arguments.seeds, seed: arguments.seed, settings };
            search(&runs, &wanted, || bar.inc(1))?
        }
    };
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let tables = markdown(&all, &found);
    write!(Stdout, "{tables}")?;
    let runs_done = (count as u64 + arguments.search) * arguments.seeds;
    writeln!(
        Stdout,
        "{} policies with {} seeds each in {seconds:.0} s: {:.0} runs a second",
        count as u64 + arguments.search,
        arguments.seeds,
        runs_done as f64 / seconds
    )?;
    if let Some(path) = &arguments.json {
        let all = serde_json::json!({ "named": all, "found": found });
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)
            .map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    let drawn = page(&all, &found);
    if let Some(path) = &arguments.report {
        super::write_page(&drawn, path)?;
    }
    if let Some(path) = &arguments.picture {
        let picture = kubebid_report::pictures("Gains over the truth", &drawn.charts);
        std::fs::write(path, picture).map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    if let Some(path) = &arguments.into {
        let page = std::fs::read_to_string(path);
        let page = page.map_err(|fault| format!("cannot read {}: {fault}", path.display()))?;
        let page = with_tables(&page, "attack", &tables);
        let page = page.map_err(|none| format!("{}: {none}", path.display()))?;
        std::fs::write(path, page).map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
    }
    Ok(())
}
