//! WatchPrices: the current numbers, and then each change, encoded once for all watchers.

use super::Api;
use super::event_filter::{EventFilter, VisibleEvents};
use super::follow::{Frame as Changes, Live, follow};
use crate::auth::caller::Caller;
use crate::events::commit::Commit;
use crate::events::encoded::add;
use crate::events::message::price_point;
use crate::wire::cursor::Cursor;
use crate::wire::lists;
use crate::wire::market;
use crate::wire::page;
use crate::wire::pieces::Pieces;
use crate::wire::status::{ApiError, Code};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use kubebid_core::Reject;
use kubebid_core::units::MarketName;
use kubebid_proto::v1;
use prost::Message;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

impl Api {
    /// WatchPrices: streams the present numbers of markets, and then each change.
    pub async fn watch_prices(
        &self,
        caller: &Caller,
        request: v1::WatchPricesRequest,
    ) -> Result<impl Stream<Item = Result<v1::WatchPricesResponse, ApiError>> + Send + use<>, ApiError> {
        let frames = self.watch_price_frames(caller, request).await?;
        Ok(frames.map(|frame| frame.map(PriceFrame::into_message)))
    }

    /// Works like [`Api::watch_prices`], for protocols that send the frames on as bytes.
    pub(crate) async fn watch_price_frames(
        &self,
        caller: &Caller,
        request: v1::WatchPricesRequest,
    ) -> Result<impl Stream<Item = Result<PriceFrame, ApiError>> + Send + use<>, ApiError> {
        if !request.markets.is_empty() && !request.instance_type.is_empty() {
            return Err(ApiError::new(Code::Market(Reject::BadMarkets)));
        }
        let named = lists::distinct("WatchPricesRequest.markets", "markets", request.markets)?;
        let filter = EventFilter::prices(named.iter().map(|name| MarketName::new(name)).collect());
        let live = Live::listen(self.engine(), &filter);
        // Read before the views: the stream sends what the views do not have yet.
        let applied = (self.engine().applied(), Cursor::ALL);
        let markets = self.engine().views().markets();
        let mut views = Vec::new();
        for name in &named {
            views.push(self.market_view(&markets, name)?);
        }
        if named.is_empty() {
            views = markets.not_ended().collect();
        }
        let kind = request.instance_type;
        let of_type = move |name: &str| kind.is_empty() || name.split('/').next() == Some(&kind[..]);
        views.retain(|view| of_type(view.name.as_str()));
        let from = self.place_of(&request.cursor).await?;
        let journal = self.engine().journal_id();
        let cursor = move |(seq, index)| Cursor { journal, seq, index }.to_string();
        let (mut shown, mut present) = (HashMap::new(), Vec::new());
        if from.is_none() {
            present = page::frames(views.iter().map(|view| market::present(view)));
            shown.extend(views.iter().map(|view| (view.name.to_string(), view.seq.0)));
        }
        let reader = Arc::clone(&caller.session.limit_state);
        let changes = follow(self.clone(), reader, filter, live, from.unwrap_or(applied));
        let changes = changes.map(move |changes| {
            let Changes { found_events, place } = changes?;
            // The present numbers may be later than the place at which the changes begin.
            let asked = |name: &str, seq| of_type(name) && shown.get(name).is_none_or(|shown| seq > *shown);
            let shown = found_events.into_iter().flat_map(|visible| show(visible, asked));
            Ok(PriceFrame { shown: shown.collect(), cursor: cursor(place) })
        });
        let frames = present.len();
        let present = present.into_iter().enumerate().map(move |(frame, points)| {
            // A watch that ends before the last of them has to begin anew.
            let cursor = if frame + 1 == frames { cursor(applied) } else { String::new() };
            Ok(PriceFrame { shown: points.into_iter().map(Shown::Own).collect(), cursor })
        });
        Ok(stream::iter(present).chain(changes))
    }
}

/// A message of WatchPrices, whose points many watches may share.
#[derive(Debug)]
pub(crate) struct PriceFrame {
    shown: Vec<Shown>,
    cursor: String,
}

/// Points of a frame.
#[derive(Debug)]
enum Shown {
    /// Consecutive changes of a commit.
    Run(Arc<Commit>, Range<usize>),
    Own(v1::PricePoint),
}

/// Filters found changes by the market's name and the number of the command.
fn show(visible: VisibleEvents, asked: impl Fn(&str, u64) -> bool) -> Vec<Shown> {
    let VisibleEvents::Prices(commit, run) = visible else {
        let points = visible.events().filter_map(price_point);
        return points.filter(|point| asked(&point.market, point.seq)).map(Shown::Own).collect();
    };
    let encoded_events = commit.encoded_events();
    let is_asked = |change: &usize| {
        let message = &encoded_events.events[encoded_events.prices().events[*change]];
        message.market.as_ref().is_some_and(|market| asked(market.as_str(), message.event.seq))
    };
    let changes: Vec<usize> = run.filter(is_asked).collect();
    let runs = changes.chunk_by(|one, next| one + 1 == *next);
    runs.map(|run| Shown::Run(commit.clone(), run[0]..run[run.len() - 1] + 1)).collect()
}

impl PriceFrame {
    fn into_message(self) -> v1::WatchPricesResponse {
        let points = self.shown.into_iter().flat_map(|shown| match shown {
            Shown::Run(commit, run) => {
                VisibleEvents::Prices(commit, run).events().filter_map(price_point).collect()
            }
            Shown::Own(point) => vec![point],
        });
        v1::WatchPricesResponse { points: points.collect(), cursor: self.cursor }
    }

    /// Encodes the message.
    pub(crate) fn encode(self) -> Vec<Bytes> {
        let own = self.shown.iter().filter(|shown| matches!(shown, Shown::Own(_))).count();
        let mut frame = Pieces::with_capacity(128 * (1 + own));
        for shown in self.shown {
            match shown {
                Shown::Run(commit, run) => frame.share(commit.encoded_events().prices().encoded(&run)),
                Shown::Own(point) => add(&point.encode_to_vec(), frame.own()),
            }
        }
        let rest = v1::WatchPricesResponse { points: Vec::new(), cursor: self.cursor };
        rest.encode(frame.own()).expect("a vector grows");
        frame.finish()
    }
}
