//! ListMarkets, ListInstanceTypes, GetMarketPrice, GetDepth, ListPriceHistory, WatchPrices.
