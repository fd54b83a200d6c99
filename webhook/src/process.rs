//! The process of an operator with webhooks: its flags, the webhooks beside the controllers, and the commands `migrate` and
//! `convert`.

use crate::authority::plan::Lifetimes;
use crate::authority::{Authority, AuthorityOptions, Target};
use crate::conversion::Conversions;
use crate::manifests::{ManifestError, convert_files};
use crate::migrate;
use crate::server::{ServerOptions, Webhooks, serve};
use clap::Args;
use kube::Client;
use kubebid_controller::leader_election::Leadership;
use kubebid_controller::output::print;
use kubebid_controller::process::{self, ProcessArgs, Program, stop_signal, time};
use kubebid_controller::{Manager, Object, Writer};
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::error;

/// The flags that every operator with webhooks has, besides those of [`ProcessArgs`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookArgs {
    /// Address of the webhooks [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub webhook_listen: Option<SocketAddr>,
    /// Names or addresses by which the API server reaches them [default: that of their Service]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub webhook_name: Vec<String>,
    /// The namespace of their Service, and of the Secret with the authority of their certificates [default: that of the Lease]
    #[arg(long, value_name = "NAMESPACE")]
    pub webhook_namespace: Option<String>,
    /// The lifetime of the authority
    #[arg(long, default_value = "720h", value_name = "TIME", value_parser = time)]
    pub webhook_ca_lifetime: Duration,
    /// The lifetime of the certificate of a replica
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = time)]
    pub webhook_certificate_lifetime: Duration,
    /// A file with a certificate that somebody else makes, whose authority is in the caBundles, as PEM
    #[arg(long, value_name = "FILE", requires = "webhook_key")]
    pub webhook_certificate: Option<PathBuf>,
    /// A file with the key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "webhook_certificate")]
    pub webhook_key: Option<PathBuf>,
}

/// The webhooks of an operator, and its names for them.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name of the Kubernetes Service.
    pub name: &'static str,
    /// The name of the Secret with the authority.
    pub secret: &'static str,
    /// The objects that say which authority the API server trusts.
    pub targets: Vec<Target>,
    /// Returns the webhooks, which may ask the cluster.
    pub webhooks: fn(Client) -> Webhooks,
}

/// Runs an operator as [`process::run`] does, and serves its webhooks if there is an address for them. Every replica serves,
/// also one that does not lead, and also when the controllers have failed, until the requests under way are answered.
///
/// # Errors
/// Those of [`process::run`], lifetimes that do not fit each other, and an address that cannot be bound.
pub async fn run(
    program: Program,
    args: &ProcessArgs,
    webhook_args: &WebhookArgs,
    service: Service,
    mut build: impl AsyncFnMut(&mut Manager) -> Result<(), Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let Some(address) = webhook_args.webhook_listen else {
        return process::run(program, args, build).await;
    };
    let client = args.client().await?;
    let webhooks = (service.webhooks)(client.clone());
    let namespace = args.lease_namespace(&client).to_owned();
    let authority = webhook_args.authority(client, service, &namespace)?;
    let listener =
        TcpListener::bind(address).map_err(|error| format!("--webhook-listen {address}: {error}"))?;
    let is_over = Notify::new();
    let working = async {
        let ended = process::run(program, args, async |manager| {
            let (authority, writer) = (authority.clone(), manager.writer("webhooks"));
            // Before all objects are listed: a list may need a conversion.
            manager.spawn_at_once(async move { authority.lead(&writer).await });
            build(manager).await
        })
        .await;
        is_over.notify_one();
        ended
    };
    let stop = async {
        tokio::select! {
            () = stop_signal() => {}
            () = is_over.notified() => {}
        }
    };
    let serving = async {
        let served = serve(listener, &authority, webhooks, ServerOptions::default(), stop).await;
        if let Err(error) = &served {
            error!(%error, "the webhooks are not served any more; the controllers go on");
        }
        served
    };
    let (ended, served) = tokio::join!(working, serving);
    served?;
    ended
}

impl WebhookArgs {
    /// Returns the source of the certificate of this replica.
    fn authority(
        &self,
        client: Client,
        service: Service,
        lease_namespace: &str,
    ) -> Result<Authority, Box<dyn Error>> {
        if let Some((certificate, key)) = self.webhook_certificate.clone().zip(self.webhook_key.clone()) {
            return Ok(Authority::from_files(client, certificate, key, service.targets));
        }
        let options = self.authority_options(service.name, service.secret, lease_namespace)?;
        Ok(Authority::new(client, options, service.targets)?)
    }

    fn authority_options(
        &self,
        service: &str,
        secret: &str,
        lease_namespace: &str,
    ) -> Result<AuthorityOptions, Box<dyn Error>> {
        let namespace = self.webhook_namespace.as_deref().unwrap_or(lease_namespace);
        let names = if self.webhook_name.is_empty() {
            vec![format!("{service}.{namespace}.svc")]
        } else {
            self.webhook_name.clone()
        };
        let lifetimes = Lifetimes {
            authority: self.webhook_ca_lifetime.try_into()?,
            leaf: self.webhook_certificate_lifetime.try_into()?,
            ..Lifetimes::default()
        };
        Ok(AuthorityOptions { namespace: namespace.to_owned(), secret: secret.to_owned(), names, lifetimes })
    }
}

/// The flags of a command `migrate`.
#[derive(Args, Clone, Debug)]
pub struct MigrateArgs {
    /// Only say if there is anything to do: then the exit code is 1
    #[arg(long)]
    pub check: bool,
}

impl MigrateArgs {
    /// Stores all objects of a kind in the version that its definition stores, and says how many, or says what there is to do.
    ///
    /// # Errors
    /// A cluster that is not configured, and [`migrate::MigrateError`].
    pub async fn run<K: Object>(&self, program: &'static str) -> Result<ExitCode, Box<dyn Error>> {
        let client = process::client(process::SILENCE_LIMIT, true).await?;
        if self.check {
            let check = migrate::check::<K>(&client).await?;
            let versions = check.stored_versions.join(", ");
            print(format_args!("stored: {}; objects may be in {versions}\n", check.stored))?;
            if check.unserved > 0 {
                let unserved = check.unserved;
                print(format_args!(
                    "{unserved} objects have field managers of a version that is not served\n"
                ))?;
            }
            return Ok(if check.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        let writer = Writer::new(client, program, "migrate", Leadership::alone(), false);
        let migrated = migrate::migrate::<K>(&writer).await?;
        let (written, gone) = (migrated.written, migrated.gone);
        print(format_args!("{written} objects are written, {gone} were deleted meanwhile\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The flags of a command `convert`.
#[derive(Args, Clone, Debug)]
pub struct ConvertArgs {
    /// The version, without the group
    #[arg(long, value_name = "VERSION")]
    pub to: String,
    /// A file in YAML or JSON; `-` is the standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

impl ConvertArgs {
    /// Returns the objects of the files in the version, as documents of YAML.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn convert(&self, conversions: &Conversions) -> Result<String, ManifestError> {
        convert_files(conversions, &self.files, &self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use k8s_openapi::jiff::SignedDuration;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        webhooks: WebhookArgs,
    }

    fn options(arguments: &[&str]) -> AuthorityOptions {
        let arguments = [&["program"], arguments].concat();
        let args = Command::try_parse_from(arguments).unwrap().webhooks;
        args.authority_options("disks", "disks-webhooks", "disks-system").unwrap()
    }

    #[test]
    fn names_and_the_namespace_are_those_of_the_service_unless_others_are_given() {
        let default = options(&[]);
        assert_eq!((&default.namespace[..], &default.secret[..]), ("disks-system", "disks-webhooks"));
        assert_eq!(default.names, ["disks.disks-system.svc"]);
        let other = options(&["--webhook-namespace", "other"]);
        assert_eq!((&other.namespace[..], other.names), ("other", vec!["disks.other.svc".to_owned()]));
        let named = ["--webhook-name", "127.0.0.1", "--webhook-name", "a.example,b.example"];
        assert_eq!(options(&named).names, ["127.0.0.1", "a.example", "b.example"]);
    }

    #[test]
    fn lifetimes_are_those_of_the_flags_and_refused_if_they_do_not_fit() {
        let hours = SignedDuration::from_hours;
        let default = options(&[]).lifetimes;
        assert_eq!((default.authority, default.leaf), (hours(720), hours(24)));
        let other =
            options(&["--webhook-ca-lifetime", "10h", "--webhook-certificate-lifetime", "1h"]).lifetimes;
        assert_eq!((other.authority, other.leaf), (hours(10), hours(1)));
        assert_eq!(other.check(), Ok(()));
        assert!(options(&["--webhook-ca-lifetime", "1h"]).lifetimes.check().is_err());
    }

    #[test]
    fn a_certificate_of_a_file_needs_its_key() {
        let files = ["--webhook-certificate", "tls.crt", "--webhook-key", "tls.key"];
        let parsed = |flags: &[&str]| Command::try_parse_from([&["program"], flags].concat());
        let args = parsed(&files).map(|command| command.webhooks).unwrap();
        assert_eq!(
            args.webhook_certificate.zip(args.webhook_key),
            Some(("tls.crt".into(), "tls.key".into()))
        );
        assert!(parsed(&files[..2]).is_err());
        assert!(parsed(&files[2..]).is_err());
    }
}
