package cli_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	oldOperator = "opr01jw51r7hsec0syhzdhqda0001"
	newOperator = "opr01jw51r7hsec0syhzdhqda0002"
)

// operatorState is the part of a shard for operators.
type operatorState struct {
	operators []*nstancev1.OperatorStatus
	removed   []string // the IDs of RemoveOperator calls
	revoked   bool     // the caller was removed on another shard
}

// ListOperators returns one operator per page.
func (s *shard) ListOperators(_ context.Context, req *nstancev1.ListOperatorsRequest) (*nstancev1.ListOperatorsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range s.operators {
		if o.GetId() <= req.GetPageToken() {
			continue
		}
		resp := &nstancev1.ListOperatorsResponse{}
		if o.GetRemovedAt() == nil || req.GetIncludeRemoved() {
			resp.Operators = append(resp.Operators, proto.CloneOf(o))
		}
		if i+1 < len(s.operators) {
			resp.NextPageToken = o.GetId()
		}
		return resp, nil
	}
	return &nstancev1.ListOperatorsResponse{}, nil
}

func (s *shard) RemoveOperator(_ context.Context, req *nstancev1.RemoveOperatorRequest) (*nstancev1.RemoveOperatorResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked {
		return nil, rpc.CertificateRevoked.Errorf("operator was removed")
	}
	for _, o := range s.operators {
		if o.GetId() == req.GetId() {
			o.RemovedAt = timestamppb.Now()
			s.removed = append(s.removed, o.GetId())
			return &nstancev1.RemoveOperatorResponse{Operator: o}, nil
		}
	}
	return nil, rpc.NotFound.Errorf("no such operator %s", req.GetId())
}

// setOperators sets the cluster's operators, of which one is connected to this shard.
func (s *shard) setOperators(connected string, operators ...*nstancev1.OperatorStatus) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range operators {
		o = proto.CloneOf(o)
		o.Connected = o.GetId() == connected
		s.operators = append(s.operators, o)
	}
	return s
}

func (s *shard) removals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed)
}

func twoOperators() []*nstancev1.OperatorStatus {
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return []*nstancev1.OperatorStatus{
		{Id: oldOperator, Tenant: "default", RegisteredAt: at, RemovedAt: at, RemovedBy: newOperator},
		{Id: newOperator, Tenant: "default", RegisteredAt: at},
	}
}

// TestOperatorList: each operator is listed once, with the shards that it is connected to.
func TestOperatorList(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setOperators(newOperator, twoOperators()...)
	c.shard("dev-2").setOperators(newOperator, twoOperators()...)
	list := decode[[]operator](t, c.run("operator", "list", "-o", "json").want(t, cli.ExitOK).out)
	if len(list) != 1 || list[0].Message.GetId() != newOperator || !slices.Equal(list[0].ConnectedTo, []string{"dev-1", "dev-2"}) ||
		list[0].Message.GetRegisteredAt() == nil || !list[0].Message.GetConnected() || list[0].Message.GetRemovedAt() != nil {
		t.Errorf("listed %+v", list)
	}
	all := decode[[]operator](t, c.run("operator", "list", "--removed", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 2 || all[0].Message.GetId() != oldOperator || all[0].Message.GetRemovedAt() == nil ||
		all[0].Message.GetRemovedBy() != newOperator || len(all[0].ConnectedTo) > 0 {
		t.Errorf("listed %+v", all)
	}
	table := strings.Split(strings.TrimSpace(c.run("operator", "list", "--removed", "-o", "wide").want(t, cli.ExitOK).out), "\n")
	if len(table) != 3 || !strings.HasPrefix(table[0], "ID ") ||
		strings.Join(strings.Fields(table[2]), " ") != newOperator+" default 2026-01-02T03:04:05Z dev-1, dev-2 - -" {
		t.Errorf("table %q", table)
	}
}

func TestNoOperators(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1")
	if out := c.run("operator", "list", "-o", "json").want(t, cli.ExitOK).out; strings.TrimSpace(out) != "[]" {
		t.Errorf("%q", out)
	}
}

// TestOperatorRemove: every shard is called, whatever the default shard.
func TestOperatorRemove(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.shard("dev-1").setOperators("", twoOperators()...), c.shard("dev-2").setOperators("", twoOperators()...)
	c.env["NSTANCE_ADMIN_SHARD"] = "dev-1"
	r := c.run("operator", "remove", newOperator).want(t, cli.ExitOK)
	if !strings.Contains(r.out, newOperator) || !strings.Contains(r.out, "dev-1, dev-2") {
		t.Errorf("output %q", r.out)
	}
	for _, s := range []*shard{one, two} {
		if have := s.removals(); !slices.Equal(have, []string{newOperator}) {
			t.Errorf("a shard was called to remove %v", have)
		}
	}
	v := decode[map[string]any](t, c.run("operator", "remove", oldOperator, "--shard", "dev-2", "-o", "json").want(t, cli.ExitOK).out)
	if v["id"] != oldOperator || len(v["refused_by"].([]any)) != 1 || len(one.removals()) != 1 || len(two.removals()) != 2 {
		t.Errorf("output %v; calls for %v and %v", v, one.removals(), two.removals())
	}
	c.run("operator", "remove", "opr01jw51r7hsec0syhzdhqda0003").want(t, cli.ExitFailed, "no such operator", "`nstance-admin operator list`")
	for _, args := range [][]string{{}, {"x"}, {"knd01jw51r7hsec0syhzdhqda0003"}, {oldOperator, newOperator}} {
		c.run(append([]string{"operator", "remove"}, args...)...).want(t, cli.ExitUsage)
	}
}

// TestOperatorRemoveWithUnreachableShard: the output names the unreachable shard and the
// consequence.
func TestOperatorRemoveWithUnreachableShard(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").setOperators("", twoOperators()...)
	down := c.shard("dev-2")
	down.mu.Lock()
	down.leads = false
	down.mu.Unlock()
	r := c.run("operator", "remove", newOperator, "--timeout", "1500ms").want(t, cli.ExitFailed, "shard dev-2", "is removed", "about a minute")
	if !strings.Contains(r.out, "removed and refused by dev-1\n") {
		t.Errorf("output %q", r.out)
	}
}

// TestOperatorRemovesItself: the second shard may refuse the removed operator already, which is
// no error.
func TestOperatorRemovesItself(t *testing.T) {
	c := newFixture(t)
	me := decode[map[string]string](t, c.run("cluster", "register-operator", "-o", "json").want(t, cli.ExitOK).out)["id"]
	c.shard("dev-1").setOperators("", &nstancev1.OperatorStatus{Id: me, Tenant: "default"})
	late := c.shard("dev-2")
	late.mu.Lock()
	late.revoked = true
	late.mu.Unlock()
	r := c.run("operator", "remove", me).want(t, cli.ExitOK)
	if !strings.Contains(r.out, "dev-1, dev-2") {
		t.Errorf("output %q", r.out)
	}
	c.run("operator", "remove", newOperator, "--shard", "dev-2").want(t, cli.ExitFailed, "was removed", "register-operator")
}
