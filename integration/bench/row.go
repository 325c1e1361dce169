package main

import (
	"context"
	"time"
)

// row is one measurement, with one or more figures.
type row struct {
	name string
	what string
	// bound is its time limit: several times its duration on two cores beside other load.
	bound time.Duration
	run   func(context.Context, *bench) ([]figure, error)
}

// rows lists all rows in their order. siegeTime is the duration of each attack of the row siege.
func rows(siegeTime time.Duration) []row {
	return []row{
		{name: "planner", what: "decide about one group", bound: 5 * time.Minute, run: measurePlanner},
		{name: "replacement", what: "from a death to the provider's create call, 200 agents", bound: 5 * time.Minute, run: measureReplacement},
		{name: "scaleup", what: "0 to 1,000 and 0 to 10,000 instances", bound: 10 * time.Minute, run: measureScaleUp},
		{name: "failing", what: "0 to 50 beside groups whose creates fail, provider takes 50 ms", bound: 10 * time.Minute, run: measureFailing},
		{name: "edits", what: "UpsertGroup at 1,000 and 5,000 groups; 1,000 at once", bound: 5 * time.Minute, run: measureEdits},
		{name: "throttled", what: "0 to 200 instances, the provider takes 2 a second", bound: 15 * time.Minute, run: measureThrottled},
		{name: "slowlist", what: "20 deaths, and 300 to 0, beside lists that take 6 s", bound: 15 * time.Minute, run: measureSlowList},
		{name: "registrations", what: "TLS handshake, nonce, durable record, certificate", bound: 15 * time.Minute, run: measureRegistrations},
		{name: "certificates", what: "leaf certificates for instances", bound: 2 * time.Minute, run: measureCertificates},
		{name: "push", what: "a changed file to 1,000 agents, until all have confirmed it", bound: 10 * time.Minute, run: measurePush},
		{name: "seen", what: "an event until a client of the HTTP API has it, 1,000 agents", bound: 10 * time.Minute, run: measureSeen},
		{name: "coldstart", what: "10,000 instance objects on dev-s3 until /health answers 200", bound: 10 * time.Minute, run: measureColdStart},
		{name: "failover", what: "handover and kill, 200 instances on dev-s3", bound: 20 * time.Minute, run: measureFailover},
		{name: "takeover", what: "what follows the lead, with an outdated cache", bound: 15 * time.Minute, run: measureTakeover},
		{name: "frozen", what: "the leader stopped and continued, 200 instances on dev-s3", bound: 10 * time.Minute, run: measureFrozen},
		{name: "connected", what: "agents over mutual TLS, three streams each", bound: 20 * time.Minute, run: measureConnected},
		{name: "siege", what: "1,000 agents while strangers attack from four addresses", bound: 20*time.Minute + 12*siegeTime, run: measureSiege},
		{name: "kubernetes", what: "the operator on a real control plane, shards in memory", bound: 30 * time.Minute, run: measureKubernetes},
		{name: "stack", what: "the development stack with Kubernetes", bound: 20 * time.Minute, run: measureStack},
		{name: "footprint", what: "real binaries: idle RSS, compressed size, what AWS adds", bound: 20 * time.Minute, run: measureFootprint},
		{name: "growth", what: "an event in shards of three sizes", bound: 20 * time.Minute, run: measureGrowth},
		{name: "life", what: "object-storage writes of an instance's whole life", bound: 10 * time.Minute, run: measureLife},
		{name: "idle", what: "object-storage requests of an idle shard", bound: 10 * time.Minute, run: measureIdle},
	}
}
