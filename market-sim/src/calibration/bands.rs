//! The bands: facts about published traces, in two small files that name their sources.

use serde::Deserialize;

/// Where a statistic lies in the real thing; `None` for an open end.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Band {
    pub statistic: String,
    pub low: Option<f64>,
    pub real: Option<f64>,
    pub high: Option<f64>,
}

/// Of the prices of twelve EC2 spot markets in 2015: the 10th, 50th and 90th percentile over the markets.
pub fn price_bands() -> Vec<Band> {
    read(include_str!("prices.csv"))
}

/// Of the jobs of the ElasticFlow clusters, with what we allow around it.
pub fn demand_bands() -> Vec<Band> {
    read(include_str!("demand.csv"))
}

fn read(text: &str) -> Vec<Band> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().map(|band| band.expect("the bands are part of the program")).collect()
}
