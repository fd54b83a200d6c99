//! Metrics of the webhooks. The recorder of the process collects them, under the first word of its names.

use k8s_openapi::jiff::Timestamp;
use kubebid_controller::metrics::name;
use metrics::{counter, describe_counter, describe_gauge, gauge};

const READY: &str = "webhook_ready";
const CA_EXPIRATION: &str = "webhook_ca_expiration_timestamp_seconds";
const CERTIFICATE_EXPIRATION: &str = "webhook_certificate_expiration_timestamp_seconds";
const CA_ROTATIONS: &str = "webhook_ca_rotations_total";
const CERTIFICATE_RENEWALS: &str = "webhook_certificate_renewals_total";
const REQUESTS: &str = "webhook_requests_total";
const FAILED_CONVERSIONS: &str = "webhook_failed_conversions_total";
const DROPPED_FIELDS: &str = "webhook_dropped_fields_total";

pub(crate) fn describe() {
    describe_gauge!(name(READY), "1 while all clients trust the certificate of this replica");
    describe_gauge!(name(CA_EXPIRATION), "End of the CA that signs the certificates of the webhooks");
    describe_gauge!(name(CERTIFICATE_EXPIRATION), "End of the certificate of this replica");
    describe_counter!(name(CA_ROTATIONS), "CAs that this replica has let sign after another one");
    describe_counter!(name(CERTIFICATE_RENEWALS), "Certificates that this replica has taken into use");
    describe_counter!(name(REQUESTS), "Requests to the webhooks, by path and status code");
    describe_counter!(name(FAILED_CONVERSIONS), "Conversions that were answered with a failure");
    describe_counter!(
        name(DROPPED_FIELDS),
        "Converted objects whose annotations had no room for fields to keep"
    );
    ready(false);
    counter!(name(CA_ROTATIONS)).increment(0);
    counter!(name(FAILED_CONVERSIONS)).increment(0);
    counter!(name(DROPPED_FIELDS)).increment(0);
}

pub(crate) fn ready(is_ready: bool) {
    gauge!(name(READY)).set(if is_ready { 1.0 } else { 0.0 });
}

pub(crate) fn ca_expires(time: Timestamp) {
    gauge!(name(CA_EXPIRATION)).set(seconds(time));
}

/// Counts a certificate in use. The end of one from a file is not known.
pub(crate) fn certificate_renewed(expires: Option<Timestamp>) {
    counter!(name(CERTIFICATE_RENEWALS)).increment(1);
    if let Some(expires) = expires {
        gauge!(name(CERTIFICATE_EXPIRATION)).set(seconds(expires));
    }
}

pub(crate) fn ca_rotated() {
    counter!(name(CA_ROTATIONS)).increment(1);
}

pub(crate) fn request(path: &str, code: u16) {
    counter!(name(REQUESTS), "path" => path.to_owned(), "code" => code.to_string()).increment(1);
}

/// Counts a ConversionReview whose answer is a failure, by an error or a panic. Its status code is 200.
pub(crate) fn failed_conversion() {
    counter!(name(FAILED_CONVERSIONS)).increment(1);
}

/// Counts an object that was converted without the fields that its new version cannot say: its annotations are full.
pub(crate) fn dropped_fields() {
    counter!(name(DROPPED_FIELDS)).increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and seconds fit")]
fn seconds(time: Timestamp) -> f64 {
    time.as_second() as f64
}
