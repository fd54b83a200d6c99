// Command job runs a job on nodes of a market: quote, place, wait until ready, raise or checkpoint on notice, bill.
//
//	job MARKET NODES MOST SECONDS     MOST in dollars per node-hour, SECONDS from the bid to its end
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	pb "example.com/job/gen/kubebid/auction/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A call waits for a connection, and is tried five times if the engine is UNAVAILABLE. A command has a key, so it is done once.
const retry = `{"methodConfig": [{"name": [{}], "waitForReady": true, "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1s",
	"maxBackoff": "10s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}

func dollars(micros uint64) string { return fmt.Sprintf("$%.2f", float64(micros)/1e6) }

func number(text string) float64 { return must(strconv.ParseFloat(text, 64)) }

func main() {
	market, nodes, most, seconds := os.Args[1], uint32(number(os.Args[2])), uint64(number(os.Args[3])*1e6), number(os.Args[4])
	endpoint, token := os.Getenv("KUBEBID_ENDPOINT"), os.Getenv("KUBEBID_TOKEN")
	if endpoint == "" || token == "" {
		log.Fatal("KUBEBID_ENDPOINT and KUBEBID_TOKEN say where and who")
	}
	scheme, target, _ := strings.Cut(endpoint, "://")
	transport := insecure.NewCredentials()
	if scheme == "https" {
		transport = credentials.NewClientTLSFromCert(nil, "") // the system's authorities
		if file := os.Getenv("KUBEBID_CA_FILE"); file != "" {
			transport = must(credentials.NewClientTLSFromFile(file, ""))
		}
	}
	connection := must(grpc.NewClient(target, grpc.WithTransportCredentials(transport), grpc.WithDefaultServiceConfig(retry)))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+token)
	bids, allocations := pb.NewBidServiceClient(connection), pb.NewAllocationServiceClient(connection)
	events, billing := pb.NewEventServiceClient(connection), pb.NewBillingServiceClient(connection)
	job := "job-" + rand.Text()[:8]

	quote := must(bids.QuoteBid(ctx, &pb.QuoteBidRequest{Markets: []string{market}, Nodes: &nodes})).Quotes[0]
	ceiling := quote.GetEntryPriceMicros()
	if quote.EntryPriceMicros == nil || ceiling > most {
		log.Fatalf("%s has no %d nodes for %s", market, nodes, dollars(most))
	}
	fmt.Printf("quote: %d nodes need %s\n", nodes, dollars(ceiling))

	// The place from which nothing is missed that happens to the bid.
	cursor := must(allocations.ListAllocations(ctx, &pb.ListAllocationsRequest{PageSize: 1})).Cursor
	placed := must(bids.PlaceBid(ctx, &pb.PlaceBidRequest{
		ClientKey: job, Markets: []string{market}, CeilingMicros: ceiling, MinNodes: &nodes, MaxNodes: nodes,
		OnPreemption: pb.PlaceBidRequest_CLOSE, Labels: map[string]string{"job": job},
	}))
	fmt.Printf("bid %d placed\n", placed.Bid)

	seq, ready, ended := placed.Seq, 0, map[uint64]bool{}
	follow := func(event *pb.Event) {
		switch kind := event.Kind.(type) {
		case *pb.Event_Ready_:
			ready++
			fmt.Printf("node %d ready: work begins\n", kind.Ready.Allocation)
		case *pb.Event_NoticeStarted_:
			node := kind.NoticeStarted.Allocation
			read := &pb.GetAllocationRequest{Allocation: node, MinSeq: event.Seq}
			notice := must(allocations.GetAllocation(ctx, read)).Allocation.Notice
			if stay := notice.GetPriceToStayMicros(); notice.GetRescindable() && 0 < stay && stay <= most {
				ceiling = max(ceiling, stay)
				fmt.Printf("notice for node %d: raise to %s\n", node, dollars(ceiling))
				key := fmt.Sprintf("%s-%d-%d", job, event.Seq, node)
				must(bids.AmendBid(ctx, &pb.AmendBidRequest{ClientKey: key, Bid: placed.Bid, CeilingMicros: &ceiling}))
			} else if notice != nil {
				fmt.Printf("notice for node %d: checkpoint and release\n", node)
				key := fmt.Sprintf("%s-%d", job, node)
				must(allocations.ReleaseAllocation(ctx, &pb.ReleaseAllocationRequest{ClientKey: key, Allocation: node}))
			}
		case *pb.Event_NoticeRescinded_:
			fmt.Printf("node %d stays\n", kind.NoticeRescinded.Allocation)
		case *pb.Event_Ended_:
			ended[kind.Ended.Allocation] = true
			fmt.Printf("node %d ended\n", kind.Ended.Allocation)
		}
	}

	working, done := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer done()
	for working.Err() == nil && len(ended) < int(nodes) {
		filter := &pb.EventFilter{Bids: []uint64{placed.Bid}}
		watch, err := events.WatchEvents(working, &pb.WatchEventsRequest{Cursor: cursor, Filter: filter})
		for err == nil && len(ended) < int(nodes) {
			var frame *pb.WatchEventsResponse
			if frame, err = watch.Recv(); err == nil {
				for _, event := range frame.Events {
					follow(event)
				}
				cursor, seq = frame.Cursor, frame.Seq
			}
		}
		// The watch goes on from the cursor, also after the engine was restarted.
		if code := status.Code(err); code != codes.OK && code != codes.Unavailable && code != codes.DeadlineExceeded {
			log.Fatal(err)
		}
	}

	if len(ended) < int(nodes) {
		cancel := &pb.CancelBidRequest{ClientKey: job + "-done", Bid: placed.Bid, Mode: pb.CancelBidRequest_RELEASE}
		seq = must(bids.CancelBid(ctx, cancel)).Seq
	}
	bill := must(billing.GetStatement(ctx, &pb.GetStatementRequest{Labels: map[string]string{"job": job}, MinSeq: seq}))
	fmt.Printf("bill: $%.6f\n", float64(bill.Charged.DebitMicros)/1e6)
	if ready == 0 {
		log.Fatal("no node was ready in time")
	}
}
