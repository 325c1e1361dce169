package main

import "context"

// row is one thing to measure, which may yield several figures.
type row struct {
	name string
	what string
	run  func(context.Context, *bench) ([]figure, error)
	// background starts, before any row runs, what needs long to be measured and
	// disturbs nothing; run collects it. Rare.
	background func(context.Context, *bench) error
}

// rows lists everything there is to measure, in the order of measuring. Idle is
// last, because it watches in the background for as long as the others take.
func rows() []row {
	return []row{
		{name: "planner", what: "decide about one group", run: measurePlanner},
		{name: "replacement", what: "from a death to the provider's create call, 200 agents", run: measureReplacement},
		{name: "scaleup", what: "0 to 1,000 and 0 to 10,000 instances", run: measureScaleUp},
		{name: "failing", what: "0 to 50 beside groups whose creates fail, provider takes 50 ms", run: measureFailing},
		{name: "edits", what: "UpsertGroup at 1,000 and 5,000 groups; 1,000 at once", run: measureEdits},
		{name: "throttled", what: "0 to 200 instances, the provider takes 2 a second", run: measureThrottled},
		{name: "slowlist", what: "20 deaths, and 300 to 0, beside lists that take 6 s", run: measureSlowList},
		{name: "registrations", what: "TLS handshake, nonce, durable record, certificate", run: measureRegistrations},
		{name: "certificates", what: "leaf certificates for instances", run: measureCertificates},
		{name: "push", what: "a changed file to 1,000 agents, until all have confirmed it", run: measurePush},
		{name: "coldstart", what: "10,000 instance objects on dev-s3 until /health answers 200", run: measureColdStart},
		{name: "failover", what: "handover and kill, 200 instances on dev-s3", run: measureFailover},
		{name: "frozen", what: "the leader stopped and continued, 200 instances on dev-s3", run: measureFrozen},
		{name: "connected", what: "agents over mutual TLS, three streams each", run: measureConnected},
		{name: "siege", what: "1,000 agents while strangers attack from four addresses", run: measureSiege},
		{name: "kubernetes", what: "the operator on a real control plane, with shards in memory", run: measureKubernetes},
		{name: "stack", what: "the development stack with Kubernetes", run: measureStack},
		{name: "footprint", what: "real binaries: idle RSS, compressed size", run: measureFootprint},
		{name: "idle", what: "object-storage requests of an idle shard", run: measureIdle, background: startIdle},
	}
}
