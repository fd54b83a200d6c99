"""Runs a job on nodes of a market: quote, place, wait until ready, raise or checkpoint on notice, bill.

    job.py MARKET NODES MOST SECONDS     MOST in dollars per node-hour, SECONDS from the bid to its end
"""
import os, sys, time, uuid
import grpc
from kubebid.auction.v1 import allocation_pb2, bid_pb2, billing_pb2, event_pb2
from kubebid.auction.v1.allocation_pb2_grpc import AllocationServiceStub
from kubebid.auction.v1.bid_pb2_grpc import BidServiceStub
from kubebid.auction.v1.billing_pb2_grpc import BillingServiceStub
from kubebid.auction.v1.event_pb2_grpc import EventServiceStub

# A call waits for a connection, and is tried five times if the engine is UNAVAILABLE. A command has a key, so it is done once.
RETRY = """{"methodConfig": [{"name": [{}], "waitForReady": true, "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1s",
    "maxBackoff": "10s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"""

market, nodes, most, seconds = sys.argv[1], int(sys.argv[2]), round(float(sys.argv[3]) * 1e6), float(sys.argv[4])
scheme, address = os.environ["KUBEBID_ENDPOINT"].split("://")
options = [("grpc.service_config", RETRY)]
if scheme == "https":
    ca = os.environ.get("KUBEBID_CA_FILE")  # absent: the authorities that grpcio has
    roots = open(ca, "rb").read() if ca else None
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(roots), options)
else:
    channel = grpc.insecure_channel(address, options)
token = [("authorization", "Bearer " + os.environ["KUBEBID_TOKEN"])]
bids, allocations = BidServiceStub(channel), AllocationServiceStub(channel)
events, billing = EventServiceStub(channel), BillingServiceStub(channel)
job = "job-" + uuid.uuid4().hex[:8]

quote = bids.QuoteBid(bid_pb2.QuoteBidRequest(markets=[market], nodes=nodes), metadata=token).quotes[0]
if not 0 < quote.entry_price_micros <= most:
    sys.exit(f"{market} has no {nodes} nodes for ${most / 1e6:.2f}")
ceiling = quote.entry_price_micros
print(f"quote: {nodes} nodes need ${ceiling / 1e6:.2f}", flush=True)

# The place from which nothing is missed that happens to the bid.
cursor = allocations.ListAllocations(allocation_pb2.ListAllocationsRequest(page_size=1), metadata=token).cursor
placed = bids.PlaceBid(bid_pb2.PlaceBidRequest(
    client_key=job, markets=[market], ceiling_micros=ceiling, min_nodes=nodes, max_nodes=nodes,
    on_preemption=bid_pb2.PlaceBidRequest.CLOSE, labels={"job": job}), metadata=token)
print(f"bid {placed.bid} placed", flush=True)

ready, ended, finish, seq = set(), set(), time.monotonic() + seconds, placed.seq


def follow(event):
    global ceiling
    kind = event.WhichOneof("kind")  # None: a kind of a newer engine
    node = getattr(getattr(event, kind), "allocation", None) if kind else None
    if kind == "ready":
        ready.add(node)
        print(f"node {node} ready: work begins", flush=True)
    elif kind == "notice_rescinded":
        print(f"node {node} stays", flush=True)
    elif kind == "ended":
        ended.add(node)
        print(f"node {node} ended", flush=True)
    elif kind == "notice_started":
        read = allocation_pb2.GetAllocationRequest(allocation=node, min_seq=event.seq)
        notice = allocations.GetAllocation(read, metadata=token).allocation.notice
        if notice.rescindable and 0 < notice.price_to_stay_micros <= most:
            ceiling = max(ceiling, notice.price_to_stay_micros)
            print(f"notice for node {node}: raise to ${ceiling / 1e6:.2f}", flush=True)
            bids.AmendBid(bid_pb2.AmendBidRequest(
                client_key=f"{job}-{event.seq}-{node}", bid=placed.bid, ceiling_micros=ceiling), metadata=token)
        elif notice.deadline_us:
            print(f"notice for node {node}: checkpoint and release", flush=True)
            allocations.ReleaseAllocation(allocation_pb2.ReleaseAllocationRequest(
                client_key=f"{job}-{node}", allocation=node), metadata=token)


while len(ended) < nodes and time.monotonic() < finish:
    try:
        request = event_pb2.WatchEventsRequest(cursor=cursor, filter=event_pb2.EventFilter(bids=[placed.bid]))
        for frame in events.WatchEvents(request, metadata=token, timeout=finish - time.monotonic()):
            for event in frame.events:
                follow(event)
            cursor, seq = frame.cursor, frame.seq
            if len(ended) == nodes:
                break
    except grpc.RpcError as error:
        # The watch goes on from the cursor, also after the engine was restarted.
        if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise

if len(ended) < nodes:
    seq = bids.CancelBid(bid_pb2.CancelBidRequest(
        client_key=f"{job}-done", bid=placed.bid, mode=bid_pb2.CancelBidRequest.RELEASE), metadata=token).seq
bill = billing.GetStatement(billing_pb2.GetStatementRequest(labels={"job": job}, min_seq=seq), metadata=token)
print(f"bill: ${bill.charged.debit_micros / 1e6:.6f}", flush=True)
if not ready:
    sys.exit("no node was ready in time")
