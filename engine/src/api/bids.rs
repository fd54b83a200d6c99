//! PlaceBid, PlaceBids, QuoteBid, GetBid, ListBids, AmendBid, CancelBid.
