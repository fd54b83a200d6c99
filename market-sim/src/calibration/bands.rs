//! The bands: facts about published traces, in two small files that name their sources.

use serde::Deserialize;

/// The range of a statistic in published traces; `None` for an open end.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Band {
    /// Name of the statistic.
    pub statistic: String,
    /// Lower end.
    pub low: Option<f64>,
    /// Value in the published trace.
    pub real: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Returns the bands of prices: the 10th, 50th and 90th percentile over twelve EC2 spot markets in 2015.
pub fn price_bands() -> Vec<Band> {
    read(include_str!("prices.csv"))
}

/// Returns the bands of demand: the jobs of the ElasticFlow clusters, with a tolerance of our choice.
pub fn demand_bands() -> Vec<Band> {
    read(include_str!("demand.csv"))
}

fn read(text: &str) -> Vec<Band> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().map(|band| band.expect("the bands are part of the program")).collect()
}
