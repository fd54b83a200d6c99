//! Shared parts of the commands that run something here instead of asking an engine.

use crate::failure::{Exit, Failure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kubebid_engine::server::ServeError;
use kubebid_engine::store::StoreOptions;
use std::error::Error;
use std::fmt::Write as _;
use tokio::signal::unix::{SignalKind, signal};

/// Ends when somebody wants us to stop: Ctrl-C, or SIGTERM. From the call on, neither ends the process.
pub(crate) fn stop_signal() -> impl Future<Output = ()> {
    let listen = |kind| signal(kind).expect("signals can be listened to");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

/// An error and what was behind it, in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            let _ = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text
}

pub(crate) fn fault(error: &dyn Error) -> Failure {
    Failure::new(Exit::Fault, with_causes(error))
}

/// Why an engine does not serve.
pub(crate) fn unserved(error: &ServeError) -> Failure {
    let failure = fault(error);
    match error {
        ServeError::Listen { .. } => {
            failure.next("is another engine running? name other ports with --listen and --ops-listen")
        }
        ServeError::Tls(_)
        | ServeError::Api(_)
        | ServeError::Bootstrap(_)
        | ServeError::LostStore { .. }
        | ServeError::Store(_)
        | ServeError::Engine(_) => failure,
    }
}

/// The store of a URL.
pub(crate) fn store(url: &str) -> Result<StoreOptions, Failure> {
    StoreOptions::from_url(url).map_err(|error| Failure::usage(error.to_string()))
}

/// Returns a progress bar on standard error, so that the answer can go elsewhere.
pub(crate) fn progress_bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}, {eta} left");
    bar.set_style(style.expect("a template"));
    bar.set_message(what);
    bar
}
