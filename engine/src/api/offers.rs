//! PutOffer, GetOffer, ListOffers, WithdrawUnit, ReportUnitLost.
