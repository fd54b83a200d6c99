//! OpenMarket, ChangeRules, PutInstanceType, AdvanceTime, accounts and tokens.
