//! The flags of node pool labels, which several commands have.

use clap::Args;
use kubebid_operator::api::{ANNOTATION_MANAGED_LABELS, POOL_LABELS, PREVIOUS_SUFFIX};
use kubebid_operator::control::LabelOptions;
use kubebid_operator::plan::labels::LabelRules;

/// The settings of node pool labels.
#[derive(Args)]
pub(crate) struct LabelArgs {
    /// The namespace whose NodePoolLabelSets count
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kubebid-system",
        help_heading = "Labels of node pools"
    )]
    label_set_namespace: String,
    #[command(flatten)]
    pools: PoolArgs,
    /// The annotation of a node with the keys that came from its set; the one beside it ends in -previous
    #[arg(long, value_name = "NAME", default_value = ANNOTATION_MANAGED_LABELS, value_parser = annotation, help_heading = "Labels of node pools")]
    managed_labels_annotation: String,
}

/// The labels that name a pool.
#[derive(Args)]
pub(crate) struct PoolArgs {
    /// The labels with the name of a node's pool: the first that has a value counts
    #[arg(long, value_delimiter = ',', value_name = "KEYS", default_values = POOL_LABELS, value_parser = label_key, help_heading = "Labels of node pools")]
    pub(crate) pool_labels: Vec<String>,
}

impl LabelArgs {
    /// Returns the settings of the controller of labels.
    pub(crate) fn options(&self) -> LabelOptions {
        LabelOptions {
            namespace: self.label_set_namespace.clone(),
            rules: LabelRules::new(self.pools.pool_labels.clone(), &self.managed_labels_annotation),
        }
    }
}

/// Parses the key of a label.
fn label_key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("a", text));
    domain(prefix)?;
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let ends = |text: &str| text.starts_with(is_alphanumeric) && text.ends_with(is_alphanumeric);
    if name.len() <= 63 && ends(name) && name.chars().all(is_name) {
        Ok(text.to_owned())
    } else {
        Err("it is no key of a label".to_owned())
    }
}

/// Parses the name of an annotation that has another beside it.
fn annotation(text: &str) -> Result<String, String> {
    label_key(&format!("{text}{PREVIOUS_SUFFIX}"))?;
    Ok(text.to_owned())
}

/// Parses a DNS domain.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let is_part = |part: &str| {
        part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
            && part.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-')
    };
    if text.len() <= 253 && text.split('.').all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("it is no domain".to_owned())
    }
}

fn is_alphanumeric(it: char) -> bool {
    it.is_ascii_alphanumeric()
}
