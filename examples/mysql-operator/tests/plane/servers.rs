//! Real servers: MariaDB stands in for MySQL, on a kubelet whose pods are processes.

use crate::story::Story;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt as _;
use kubebid_mysql_operator::api::{Mysql, NEW_PASSWORD};
use kubebid_mysql_operator::children::PASSWORD;
use kubebid_testkit::{Kubelet, Signal};
use serde_json::json;

/// A server with a table of one row.
struct Server {
    story: Story,
    kubelet: &'static Kubelet,
}

impl Server {
    /// Begins with a server that is ready.
    async fn begin(namespace: &'static str) -> Server {
        let (story, kubelet) = Story::with_servers(namespace).await;
        story.try_create("shop", json!({"memory": "256Mi"})).await.unwrap();
        story.ready("shop").await;
        let server = Server { story, kubelet };
        let password = server.password().await;
        let made = server.query(&password, "CREATE DATABASE shop; CREATE TABLE shop.carts (id INT PRIMARY KEY); INSERT INTO shop.carts VALUES (7)");
        assert_eq!(made, Ok(String::new()));
        server
    }

    /// Returns the password in the Secret.
    async fn password(&self) -> String {
        let secret: Secret = self.story.api().get("shop").await.unwrap();
        String::from_utf8(secret.data.unwrap()[PASSWORD].0.clone()).unwrap()
    }

    /// Asks the server over the network, as a client does. Returns what it answers, or its complaint.
    fn query(&self, password: &str, sql: &str) -> Result<String, String> {
        let client = format!("MYSQL_PWD='{password}' exec mysql -h 127.0.0.1 -u root -N -e '{sql}'");
        let asked = self.kubelet.exec(self.story.namespace, "shop-0", "mysql", &["sh", "-c", &client]);
        let output = asked.ok_or("its container does not run")?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Asserts that the row is there.
    async fn keeps_its_data(&self) {
        assert_eq!(self.query(&self.password().await, "SELECT id FROM shop.carts"), Ok("7".to_owned()));
    }

    async fn pod(&self) -> Pod {
        self.story.api().get("shop-0").await.unwrap()
    }

    /// Waits until the container was started again, and is ready.
    async fn until_restarted(&self) {
        let is_again_ready = |pod: &Pod| {
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            containers.is_some_and(|all| all[0].restart_count > 0 && all[0].ready)
        };
        self.story.until::<Pod>("shop-0", is_again_ready).await;
    }

    fn signal(&self, signal: Signal) {
        self.kubelet.signal(self.story.namespace, "shop-0", "mysql", signal);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_ready_when_it_answers_to_its_password_and_to_no_other() {
    let server = Server::begin("answers").await;
    let password = server.password().await;
    assert_eq!(server.query(&password, "SELECT 1"), Ok("1".to_owned()));
    for wrong in ["", "wrong", &password.to_uppercase()] {
        let refused = server.query(wrong, "SELECT 1").unwrap_err();
        assert!(refused.contains("Access denied"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_not_ready_when_it_runs_with_another_password_than_that_of_its_secret() {
    let server = Server::begin("login").await;
    let (story, old) = (&server.story, server.password().await);
    story.delete::<Secret>("shop").await;
    story.until_condition("shop", "Secret", "Degraded").await;
    assert!(server.query(&old, "SELECT 1").is_ok(), "the server runs on");
    story.patch::<Mysql>("shop", json!({"metadata": {"annotations": {NEW_PASSWORD: "true"}}})).await;
    story.until::<Secret>("shop", |_| true).await;
    let pod = server.pod().await;
    story.delete::<Pod>("shop-0").await;
    let pod = story.until_replaced(&pod).await;
    story.until_condition("shop", "StatefulSet", "Degraded").await;
    // The server answers by now, but not to the password of the Secret.
    let answers = || async { server.query(&old, "SELECT 1").is_ok() };
    story.eventually("the server runs", answers).await;
    let is_ready = story.api::<Mysql>().get("shop").await.unwrap().status.unwrap().ready;
    assert!(!is_ready);
    let new = server.password().await;
    let alter = format!(
        "ALTER USER root@localhost IDENTIFIED BY \"{new}\"; ALTER USER root@\"%\" IDENTIFIED BY \"{new}\""
    );
    assert_eq!(server.query(&old, &alter), Ok(String::new()));
    story.ready("shop").await;
    server.keeps_its_data().await;
    assert_eq!(server.pod().await.uid(), pod.uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_not_ready_and_is_restarted() {
    let server = Server::begin("hangs").await;
    server.signal(Signal::STOP);
    server.story.until_condition("shop", "Ready", "Degraded").await;
    server.until_restarted().await;
    server.story.ready("shop").await;
    server.keeps_its_data().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_keeps_its_data() {
    let server = Server::begin("crashes").await;
    server.signal(Signal::KILL);
    server.until_restarted().await;
    server.story.ready("shop").await;
    server.keeps_its_data().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_that_is_deleted_is_created_again_with_password_and_data() {
    let server = Server::begin("recreated").await;
    let (story, password, pod) = (&server.story, server.password().await, server.pod().await);
    let set: StatefulSet = story.api().get("shop").await.unwrap();
    story.delete::<StatefulSet>("shop").await;
    story.until_replaced(&set).await;
    story.until_replaced(&pod).await;
    story.ready("shop").await;
    assert_eq!(server.password().await, password);
    server.keeps_its_data().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_grows_while_its_server_runs() {
    let server = Server::begin("grows").await;
    let process = server.kubelet.pid(server.story.namespace, "shop-0", "mysql");
    let set: StatefulSet = server.story.api().get("shop").await.unwrap();
    server.story.patch::<Mysql>("shop", json!({"spec": {"storage": "2Gi"}})).await;
    server.story.until_replaced(&set).await;
    server.story.ready("shop").await;
    server.keeps_its_data().await;
    assert_eq!(server.kubelet.pid(server.story.namespace, "shop-0", "mysql"), process);
}
