package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Explanation says why a group of a shard is not at size, or that it is.
type Explanation struct {
	Shard  string   `json:"shard"`
	Key    string   `json:"key"`
	AtSize bool     `json:"at_size"`
	Lines  []string `json:"lines"`
}

// maxExplained bounds the instances, and the events, of an explanation.
const maxExplained = 5

// ExplainGroup explains the group with that key of every shard given that has it. On an error it
// also returns the explanations of the shards that answered.
func (c *Client) ExplainGroup(ctx context.Context, shards []client.Shard, key string, now time.Time) ([]Explanation, error) {
	out, err := client.Gather(ctx, c.api, shards, func(ctx context.Context, shard string, s client.Service) ([]Explanation, error) {
		found, err := s.GetGroup(ctx, &nstancev1.GetGroupRequest{Key: key})
		switch {
		case status.Code(err) == codes.NotFound:
			return []Explanation{}, nil
		case err != nil:
			return nil, err
		}
		instances, err := client.Instances(ctx, s, key, false)
		events, errEvents := client.Events(ctx, s, &nstancev1.ListEventsRequest{Group: key})
		if err == nil {
			err = errEvents
		}
		return []Explanation{Explain(Group{Shard: shard, GroupStatus: found.GetGroup()}, instances, events.GetEvents(), now)}, err
	})
	if len(out) == 0 && err == nil {
		return out, noGroup(ctx, c, shards, key)
	}
	return out, err
}

// Explain explains the state of a group by its conditions, its instances, and its events, oldest first.
func Explain(g Group, instances []*nstancev1.InstanceStatus, events []*nstancev1.Event, now time.Time) Explanation {
	x := Explanation{Shard: g.Shard, Key: g.GetKey(), AtSize: g.GetActualSize() == g.GetSize() && g.GetPendingSize() == 0}
	x.Lines = append(x.Lines, sizes(g, x.AtSize))
	known := len(x.Lines)
	for _, c := range g.GetConditions() {
		if text := condition(c); text != "" {
			x.Lines = append(x.Lines, text)
		}
	}
	awaitsFiles := slices.ContainsFunc(g.GetConditions(), func(c *nstancev1.Condition) bool { return c.GetReason() == "AwaitingFiles" })
	unready := 0
	for _, i := range instances {
		text := notReady(i, awaitsFiles, now)
		if text == "" {
			continue
		}
		if unready++; unready <= maxExplained {
			x.Lines = append(x.Lines, text)
		}
	}
	if unready > maxExplained {
		x.Lines = append(x.Lines, fmt.Sprintf("%d more instances are not ready, or leave.", unready-maxExplained))
	}
	if !x.AtSize && len(x.Lines) == known {
		x.Lines = append(x.Lines, "Nothing is known that holds it up: ask again in a moment, and see the events.")
	}
	if len(events) == 0 {
		return x
	}
	x.Lines = append(x.Lines, "Its latest events:")
	for _, e := range events[max(0, len(events)-maxExplained):] {
		x.Lines = append(x.Lines, fmt.Sprintf("  %s %s: %s", e.GetAt().AsTime().Format(time.RFC3339), e.GetKind(), what(e)))
	}
	return x
}

// sizes says what the group has of what it should have.
func sizes(g Group, atSize bool) string {
	is := "is not at size"
	if atSize {
		is = "is at size"
	}
	text := fmt.Sprintf("Group %s of shard %s %s: %d of %d instances run", g.GetKey(), g.Shard, is, g.GetActualSize(), g.GetSize())
	if n := g.GetPendingSize(); n > 0 {
		text += fmt.Sprintf(", %d are pending", n)
	}
	if n := g.GetDrainingSize(); n > 0 {
		text += fmt.Sprintf(", %d drain", n)
	}
	if old := g.GetActualSize() - g.GetUpToDateSize(); old > 0 {
		text += fmt.Sprintf(", %d were made from another definition", old)
	}
	if behind := g.GetActualSize() - g.GetFilesUpToDateSize(); behind > 0 {
		text += fmt.Sprintf(", %d are not known to have the newest version of their files", behind)
	}
	return text + "."
}

// condition returns a sentence about a condition that says more than the sizes; empty otherwise.
func condition(c *nstancev1.Condition) string {
	if isOfSizes(c) {
		return ""
	}
	text := c.GetType()
	if c.GetReason() != "" {
		text += " (" + c.GetReason() + ")"
	}
	if at := c.GetLastTransitionTime(); at != nil {
		text += " since " + at.AsTime().Format(time.RFC3339)
	}
	if c.GetMessage() != "" {
		text += ": " + strings.TrimSuffix(c.GetMessage(), ".")
	}
	return text + "."
}

// notReady returns a sentence about an instance that is not ready, or leaves; empty for others.
// awaitsFiles: instances of its group lack their files.
func notReady(i *nstancev1.InstanceStatus, awaitsFiles bool, now time.Time) string {
	if i.GetOnDemand() {
		return ""
	}
	var text string
	switch i.GetPhase() {
	case nstancev1.InstancePhase_INSTANCE_PHASE_PENDING:
		text = fmt.Sprintf("is pending for %s", now.Sub(i.GetCreatedAt().AsTime()).Round(time.Second))
		if i.GetProviderId() != "" {
			text += ": it has a machine, whose agent has not registered"
		}
	case nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING:
		switch {
		case i.GetUnhealthyReason() != "":
			text = "is " + i.GetUnhealthyReason()
		case i.GetLastReportAt() == nil:
			text = "has not reported to this leader"
		case awaitsFiles && i.GetConnected() && i.GetConfigHash() == "":
			text = "has no files yet"
		default:
			return ""
		}
	case nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING:
		text = fmt.Sprintf("drains (%s) until %s at the latest", i.GetReason(), i.GetDrain().GetDeleteAt().AsTime().Format(time.RFC3339))
	case nstancev1.InstancePhase_INSTANCE_PHASE_DELETING:
		text = fmt.Sprintf("is being deleted (%s)", i.GetReason())
	default:
		return ""
	}
	if i.GetLastError() != "" {
		text += "; its last error: " + strings.TrimSuffix(i.GetLastError(), ".")
	}
	return fmt.Sprintf("Instance %s %s.", i.GetId(), text)
}

// what returns an event's message, with its caller.
func what(e *nstancev1.Event) string {
	if e.GetKind() == "change" {
		return e.GetMessage() + ", by " + Happened{Event: e}.By()
	}
	if e.GetInstanceId() != "" {
		return e.GetInstanceId() + ": " + e.GetMessage()
	}
	return e.GetMessage()
}
