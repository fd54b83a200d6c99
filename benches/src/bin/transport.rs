//! What gRPC alone carries on this machine: the engine's stack of HTTP/2 with nothing behind it, and a client of
//! plain tonic, in two processes with a thread each. What the engine's rates are to be seen beside.

use clap::Parser;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kubebid_proto::Encoded;
use prost::bytes::Bytes;
use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tonic::codegen::http::{self, uri::PathAndQuery};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tower::service_fn;

/// As many bytes as a bid and its answer have, about.
const MESSAGE: &[u8] = &[7; 64];
const TOKEN: &str = "Bearer 0123456789abcdef0123456789abcdef0123456789a";
const WARMUP: Duration = Duration::from_secs(1);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Unary calls that are answered with what they bring
#[derive(Debug, Parser)]
struct Arguments {
    /// Calls that are open at once
    #[arg(long, default_value_t = 256)]
    callers: u32,
    #[arg(long, default_value_t = 4)]
    connections: u32,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Answer calls here
    #[arg(long, hide = true)]
    serve: Option<SocketAddr>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let role = async move {
        match arguments.serve {
            Some(address) => serve(address).await,
            None => load(&arguments).await,
        }
    };
    runtime.block_on(async { tokio::spawn(role).await? })
}

async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http2().max_concurrent_streams(4096);
            let door = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async {
                let echo = service_fn(|request: Request<Bytes>| async {
                    Ok::<_, Status>(Response::new(request.into_inner()))
                });
                Ok::<_, Infallible>(tonic::server::Grpc::new(Encoded).unary(echo, request).await)
            });
            builder.serve_connection(TokioIo::new(stream), door).await
        });
    }
}

/// The other process, which ends with this one.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn load(arguments: &Arguments) -> Result<(), Failure> {
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let serve = ["--serve".to_owned(), address.to_string()];
    let _server = Server(Command::new(env::current_exe()?).args(serve).spawn()?);
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    let mut channels = Vec::new();
    for _ in 0..arguments.connections {
        channels.push(endpoint.connect().await?);
    }
    let calls = Arc::new(AtomicU64::new(0));
    for (_, channel) in (0..arguments.callers).zip(channels.iter().cycle()) {
        tokio::spawn(call(channel.clone(), calls.clone()));
    }
    tokio::time::sleep(WARMUP).await;
    let (before, began) = (calls.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let (done, time) = (calls.load(Ordering::Relaxed) - before, began.elapsed());
    println!("echo, gRPC, {} callers: {:.0}/s", arguments.callers, done as f64 / time.as_secs_f64());
    Ok(())
}

async fn call(channel: Channel, calls: Arc<AtomicU64>) -> Result<(), Status> {
    let mut stub = tonic::client::Grpc::new(channel);
    loop {
        stub.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let mut request = Request::new(Bytes::from_static(MESSAGE));
        request.metadata_mut().insert("authorization", TOKEN.parse().expect("it is ASCII"));
        let path = PathAndQuery::from_static("/kubebid.auction.v1.BidService/PlaceBid");
        stub.unary(request, path, Encoded).await?;
        calls.fetch_add(1, Ordering::Relaxed);
    }
}
