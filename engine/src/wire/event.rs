//! Events as the wire tells them.
