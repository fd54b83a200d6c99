//! The audit log: one line for each command of an administrator, over gRPC and REST.

use crate::world::{Caller, World, assert_refused};
use axum::body::Body;
use http::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kubebid_proto::v1;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use tonic::Code;
use tonic::service::Interceptor;
use v1::token::Role;

/// The lines of the whole process: the other tests write there too.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines of commands of this account, oldest first, without their times.
fn lines_of(account: &str) -> Vec<String> {
    let log = String::from_utf8(LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap();
    let of = format!("account=\"{account}\"");
    let lines = log.lines().filter(|line| line.contains(&of));
    lines.map(|line| line.split_once("audit: ").expect("the target").1.to_owned()).collect()
}

/// Revokes a token over REST.
async fn revoke(world: &World, caller: &Caller, token: &str) {
    let carried = caller.bearer.clone().call(tonic::Request::new(())).unwrap();
    let request = Request::delete(format!("http://{}/v1/tokens/{token}", world.address))
        .header("authorization", carried.metadata().get("authorization").unwrap().to_str().unwrap());
    let client = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_an_administrator_is_logged_with_its_token_and_outcome_and_no_secret() {
    tracing_subscriber::fmt().with_env_filter("audit=info").with_ansi(false).with_writer(|| Lines).init();
    let world = World::start().await;
    let root = world.caller("auditor", &[Role::Admin]).await;
    let limits = Some(v1::AccountLimits { open_bids: Some(3), ..v1::AccountLimits::default() });
    let acme = v1::PutAccountRequest { name: "acme".to_owned(), limits };
    root.admin().put_account(acme).await.unwrap();
    let request = |description: &str| v1::CreateTokenRequest {
        account: "acme".to_owned(),
        roles: vec![Role::Tenant.into()],
        description: description.to_owned(),
    };
    let made = root.admin().create_token(request("ci")).await.unwrap().into_inner();
    let two_lines = root.admin().create_token(request("a\nb")).await;
    assert_refused(two_lines, Code::InvalidArgument, "BAD_FIELD");
    let twice = v1::OpenMarketRequest { market: crate::world::MARKET.to_owned(), rules: None };
    assert_refused(root.admin().open_market(twice).await, Code::AlreadyExists, "MARKET_EXISTS");
    root.admin().list_accounts(v1::ListAccountsRequest::default()).await.unwrap();
    root.admin().advance_time(v1::AdvanceTimeRequest { to_us: 1 }).await.unwrap();
    let id = made.token.unwrap().token_id;
    revoke(&world, &root, &id).await;

    let lines = lines_of("auditor");
    let tokens = v1::ListTokensRequest { account: "auditor".to_owned(), ..v1::ListTokensRequest::default() };
    let own = world.admin.admin().list_tokens(tokens).await.unwrap().into_inner().tokens;
    let by = format!("an administrator's command account=\"auditor\" token={}", own[0].token_id);
    let token = |text| format!(r#"{{"account":"acme","roles":["TENANT"],"description":"{text}"}}"#);
    assert_eq!(
        lines,
        [
            format!(
                r#"{by} method="PutAccount" request={{"name":"acme","limits":{{"open_bids":3}}}} outcome="OK""#
            ),
            format!(r#"{by} method="CreateToken" request={} outcome="OK""#, token("ci")),
            format!(r#"{by} method="CreateToken" request={} outcome="BAD_FIELD""#, token(r"a\nb")),
            format!(
                r#"{by} method="OpenMarket" request={{"market":"{}"}} outcome="MARKET_EXISTS""#,
                crate::world::MARKET
            ),
            format!(r#"{by} method="RevokeToken" request={{"token_id":"{id}"}} outcome="OK""#),
        ]
    );
    assert!(!lines.concat().contains(&made.secret));

    // A tenant gives no such command: it is refused before.
    let tenant = world.tenant("curious").await;
    let refusal = tenant.admin().list_tokens(v1::ListTokensRequest::default()).await;
    assert_refused(refusal, Code::PermissionDenied, "FORBIDDEN");
    assert_eq!(lines_of("curious"), Vec::<String>::new());
    world.stop().await;
}
