//! The market page: the files of `web/`, which are part of the program.

use super::nothing_here;
use super::prepared::Prepared;
use super::problem::problem;
use crate::api::Api;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use kubebid_proto::v1;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::LazyLock;

/// The page without its prices.
const PAGE: &str = include_str!("../../../web/index.html");
/// The place in the page of the table for browsers without JavaScript.
const PRICES: &str = "<!-- prices -->";
const NO_PRICES: &str = "<p>Without JavaScript this page shows prices only where the markets are public \
    (<code>kubebid serve --public-markets</code>). <code>kubebid price</code> prints them.</p>";

const HTML: &str = "text/html; charset=utf-8";

/// The page loads its own files and calls its own API, and nothing else.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every answer of the page.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    // A page of another origin that opened this one cannot lead it elsewhere, such as to a link that logs in.
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::REFERRER_POLICY, "no-referrer"),
];

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../../../web/", $path)))),*]
    };
}

/// The files of `web/` that are served, by their path below `/assets/`.
const FILES: &[(&str, &[u8])] = files![
    "app.css",
    "icon.svg",
    "src/address.js",
    "src/api.js",
    "src/calendar.js",
    "src/chart.js",
    "src/command.js",
    "src/csv.js",
    "src/cut.js",
    "src/dom.js",
    "src/format.js",
    "src/identify.js",
    "src/live.js",
    "src/main.js",
    "src/session.js",
    "src/shell.js",
    "src/stream.js",
    "src/views/admin.js",
    "src/views/bid-dialogs.js",
    "src/views/command-dialog.js",
    "src/views/explain.js",
    "src/views/login.js",
    "src/views/market.js",
    "src/views/markets.js",
    "src/views/money.js",
    "src/views/node-access.js",
    "src/views/nodes.js",
    "src/views/none.js",
    "src/views/offers.js",
    "src/views/place.js",
    "src/words.js",
];

static ASSETS: LazyLock<BTreeMap<&str, Prepared>> = LazyLock::new(|| {
    let prepared = |(path, bytes): &(&'static str, &'static [u8])| {
        (*path, Prepared::new(media_type(path), Bytes::from_static(bytes)))
    };
    FILES.iter().map(prepared).collect()
});

static WITHOUT_PRICES: LazyLock<Prepared> = LazyLock::new(|| with_prices(NO_PRICES));

/// Returns the page, or without one what the API has for people.
pub(super) fn index(api: &Api, headers: &HeaderMap) -> Response {
    if !api.has_page() {
        return Html(include_str!("index.html")).into_response();
    }
    let page = match api.public_markets() {
        Some(markets) => with_prices(&table(&markets)).answer(headers),
        None => WITHOUT_PRICES.answer(headers),
    };
    guarded(page)
}

/// Returns a file of the page by the path of its URL.
pub(super) fn asset(api: &Api, path: &str, headers: &HeaderMap) -> Response {
    let asset = path.strip_prefix("/assets/").and_then(|name| ASSETS.get(name));
    match asset.filter(|_| api.has_page()) {
        Some(asset) => guarded(asset.answer(headers)),
        None => problem(nothing_here()),
    }
}

fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some(_) | None => panic!("{path} has no known ending"),
    }
}

fn with_prices(prices: &str) -> Prepared {
    Prepared::new(HTML, PAGE.replacen(PRICES, prices, 1).into())
}

/// Returns the prices of markets as a table. Names of markets need no escape: they have letters, digits, `.`, `_` and `-`.
fn table(markets: &[v1::Market]) -> String {
    let mut table =
        "<table><caption>Prices in dollars per node-hour</caption><thead><tr><th>Market</th><th>Price</th>\
        <th>Entry</th><th>Floor</th><th>In use</th></tr></thead><tbody>"
            .to_owned();
    for market in markets {
        let price = market.price.clone().unwrap_or_default();
        let (numbers, supply) = (price.numbers.unwrap_or_default(), price.supply.unwrap_or_default());
        let [entry, floor] = [numbers.entry_price_micros, numbers.floor_micros]
            .map(|price| price.map_or_else(|| "–".to_owned(), dollars));
        let in_use = supply.allocated + supply.notice;
        write!(
            table,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{entry}</td><td>{floor}</td><td>{in_use} of {}</td></tr>",
            market.market,
            dollars(numbers.market_price_micros),
            supply.total,
        )
        .expect("a text grows");
    }
    table + "</tbody></table>"
}

/// Formats a price in dollars, exactly, with two decimals at least.
fn dollars(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let more_decimals = text.len() - text.trim_end_matches('0').len();
    text[..text.len() - more_decimals.min(4)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The most that the page may send, in bytes.
    const COMPRESSED_BYTES_MAX: usize = 200_000;

    #[test]
    fn every_file_of_the_page_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
        let mut found = BTreeSet::new();
        for folder in ["", "src", "src/views"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let ends = |end| path.extension().is_some_and(|extension| extension == end);
                if ends("js") || ends("css") || ends("svg") {
                    let name = path.strip_prefix(&root).unwrap();
                    found.insert(name.to_str().unwrap().to_owned());
                }
            }
        }
        assert_eq!(found, FILES.iter().map(|(path, _)| (*path).to_owned()).collect());
    }

    #[test]
    fn the_page_is_small() {
        let assets: usize = ASSETS.values().map(Prepared::compressed_bytes).sum();
        let bytes = assets + WITHOUT_PRICES.compressed_bytes();
        assert!(bytes <= COMPRESSED_BYTES_MAX, "{bytes} bytes compressed");
    }

    #[test]
    fn the_page_has_one_place_for_prices_and_nothing_inline() {
        assert_eq!(PAGE.matches(PRICES).count(), 1);
        for inline in ["<style", "style=", " onclick", "<script>"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
    }

    #[test]
    fn prices_are_exact() {
        let formatted = [0, 8_000_000, 8_165_900, 12_345_678, 1].map(dollars);
        assert_eq!(formatted, ["0.00", "8.00", "8.1659", "12.345678", "0.000001"]);
    }
}
