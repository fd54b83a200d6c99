//! `kubebid explain`

use crate::args::its_number;
use crate::config::Context;
use crate::failure::Failure;
use crate::output::{List, View, dollars, money, number, or_dash, prose, text};
use clap::Subcommand;
use kubebid_client::v1::explain_request::Subject;
use kubebid_client::v1::{ExplainRequest, ExplainResponse};
use kubebid_report::text::printable;

#[derive(Subcommand)]
pub(crate) enum Explain {
    /// Why a bid has not all it wants
    #[command(after_help = "Examples:\n  kubebid explain bid 12")]
    Bid {
        /// Its number
        #[arg(value_parser = its_number)]
        bid: u64,
    },
    /// Why a node is under notice, or has ended
    #[command(after_help = "Examples:\n  kubebid explain alloc 5")]
    Alloc {
        /// Its number
        #[arg(value_parser = its_number)]
        allocation: u64,
    },
}

impl Explain {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let subject = match self {
            Explain::Bid { bid } => Subject::Bid(bid),
            Explain::Alloc { allocation } => Subject::Allocation(allocation),
        };
        let request = ExplainRequest { subject: Some(subject), min_seq: 0 };
        let answer = context.client.explain(request).await?;
        context.out.answer(&answer, |view| explanation(&answer, view))
    }
}

fn explanation(answer: &ExplainResponse, view: &View) -> String {
    let mut steps =
        List::new(view, &[number("COMMAND").wide(), text("WHEN"), text("RULE"), prose("WHAT HAPPENED")]);
    for step in &answer.steps {
        steps.row([step.seq.to_string(), view.brief(step.at_us), step.rule.clone(), step.text.clone()]);
    }
    view.around(steps.or(""), |steps| {
        let mut said = printable(&answer.summary);
        if !answer.rule.is_empty() {
            said.push_str(&format!(" ({})", printable(&answer.rule)));
        }
        let obstacles = obstacles(answer, view);
        for table in [obstacles.as_str(), steps].into_iter().filter(|table| !table.is_empty()) {
            said.push_str(&format!("\n\n{table}"));
        }
        said
    })
}

/// Returns the markets in which a bid waits, and for what.
fn obstacles(answer: &ExplainResponse, view: &View) -> String {
    let columns = [text("MARKET"), text("WHY"), money("NEEDED"), text("PROTECTION ENDS")];
    let mut list = List::new(view, &columns);
    for obstacle in &answer.obstacles {
        list.row([
            obstacle.market.clone(),
            obstacle.reason().as_str_name().to_owned(),
            dollars(obstacle.needed_ceiling_micros),
            or_dash(obstacle.protected_until_us.map(|at| view.brief(at))),
        ]);
    }
    list.or("")
}
