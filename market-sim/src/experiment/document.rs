//! Writes tables into a page of documentation, between two comments that name them.

/// The error for a document that has no place for these tables.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no line {begin} with a line {END} after it")]
pub struct NoPlace {
    begin: String,
}

const END: &str = "<!-- end of tables -->";

/// Returns the document with `tables` between the comments of `place`.
pub fn with_tables(document: &str, place: &str, tables: &str) -> Result<String, NoPlace> {
    let begin = format!("<!-- tables: {place} -->");
    let found = document.split_once(&format!("{begin}\n"));
    let rest = found.and_then(|(before, rest)| Some((before, rest.split_once(&format!("{END}\n"))?.1)));
    let (before, after) = rest.ok_or_else(|| NoPlace { begin: begin.clone() })?;
    Ok(format!("{before}{begin}\n\n{}\n\n{END}\n{after}", tables.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_its_comments_is_replaced() {
        let page = "# A\n\n<!-- tables: a -->\nold\n<!-- end of tables -->\nprose\n<!-- tables: b -->\nb\n<!-- end of tables -->\n";
        let once = with_tables(page, "a", "| new |\n").expect("a place");
        assert_eq!(once, page.replace("-->\nold\n", "-->\n\n| new |\n\n"));
        assert_eq!(with_tables(&once, "a", "| new |\n").as_ref(), Ok(&once));
        assert!(with_tables(page, "c", "").is_err());
    }
}
