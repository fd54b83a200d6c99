//! Connections with the API server that fall silent without an end, as when its machine loses power.

use crate::story::Story;
use kubebid_cache_operator::api::Phase;
use kubebid_testkit::Process;
use serde_json::json;
use std::net::SocketAddr;
use std::process::Command;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay before a server.
struct Relay {
    address: SocketAddr,
    /// The number of times that connections fell silent.
    cuts: watch::Sender<u32>,
}

impl Relay {
    async fn start(server: String) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let relay = Relay { address: listener.local_addr().unwrap(), cuts: watch::Sender::new(0) };
        let cuts = relay.cuts.subscribe();
        tokio::spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let (server, mut cuts) = (server.clone(), cuts.clone());
                cuts.mark_unchanged();
                tokio::spawn(async move {
                    let mut stream = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut stream) => {}
                        // Both ends stay open, and nothing is relayed any more.
                        _ = cuts.changed() => std::future::pending().await,
                    }
                });
            }
        });
        relay
    }

    /// Lets all connections fall silent. New ones are relayed.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_goes_on_after_its_connections_fall_silent() {
    let mut story = Story::without_operator("partition").await;
    let server = story.plane.url().to_owned();
    let relay = Relay::start(server.replace("https://", "")).await;
    let direct = std::fs::read_to_string(story.account.kubeconfig()).unwrap();
    assert!(direct.contains(&server), "{direct}");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, direct.replace(&server, &format!("https://{}", relay.address))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cache-operator"));
    command.args(["run", "--listen", "127.0.0.1:0", "--namespace", story.namespace, "--alone"]);
    command.args(["--silence-limit", "10s"]).env("KUBECONFIG", kubeconfig);
    story.operator = Some(Process::start(&mut command));

    story.create("before", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("before", Phase::Ready).await;
    relay.cut();
    story.create("after", json!({"engine": "memcached", "memory": "64Mi"})).await;
    story.until_phase("after", Phase::Ready).await;
}
