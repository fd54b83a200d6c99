//! Prices as decimal text, exact to the micro-dollar.

/// Pattern of a price: at most six digits after the point.
pub(super) const PRICE: &str = "^[0-9]{1,7}([.][0-9]{1,6})?$";

/// Returns a price in micro-dollars; None for a text that does not have the pattern.
pub(super) fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.chars().all(|digit| digit.is_ascii_digit());
    if whole.is_empty() || part.len() > 6 || !is_number(whole) || !is_number(part) || text.ends_with('.') {
        return None;
    }
    let micros: u64 = format!("{part:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)
}

/// Returns a price as text, with at least two digits after the point.
pub(super) fn text(micros: u64) -> String {
    let part = format!("{:06}", micros % 1_000_000);
    let shown = part.trim_end_matches('0').len().max(2);
    format!("{}.{}", micros / 1_000_000, &part[..shown])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact() {
        for (price, expected) in [
            ("0", Some(0)),
            ("4.5", Some(4_500_000)),
            ("1000000", Some(1_000_000_000_000)),
            ("0.000001", Some(1)),
            ("0.0000001", None),
            ("4.", None),
            (".5", None),
            ("-1", None),
            ("1e3", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(micros(price), expected, "{price:?}");
        }
        for price in ["0.00", "4.50", "4.000001", "1000000.00"] {
            assert_eq!(text(micros(price).unwrap()), price);
        }
    }
}
