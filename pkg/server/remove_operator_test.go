package server_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// newcomer is an operator that registered with a nonce, as a program does.
type newcomer struct {
	id   fleet.InstanceID
	req  *nstancev1.RegisterOperatorRequest
	pair *pki.Keypair
}

func (p *process) enrol(tenant string) newcomer {
	p.t.Helper()
	id, key := newID(p.t, fleet.OperatorKind), newKey(p.t)
	claims := operatorClaims(id)
	claims.Tenant = tenant
	n := newcomer{id: id, req: &nstancev1.RegisterOperatorRequest{Nonce: mint(p.t, p.site.trust(), claims), PublicKey: publicPEM(p.t, key)}}
	resp, err := p.registration().RegisterOperator(within(p.t), n.req)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, err := pki.ParseCertificate([]byte(resp.GetIdentity().GetCertificate()))
	if err != nil {
		p.t.Fatal(err)
	}
	if n.pair, err = pki.NewKeypair(cert, key); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func remove(t *testing.T, client nstancev1.OperatorServiceClient, id fleet.InstanceID) (*nstancev1.OperatorStatus, error) {
	t.Helper()
	resp, err := client.RemoveOperator(within(t), &nstancev1.RemoveOperatorRequest{Id: string(id)})
	return resp.GetOperator(), err
}

// powerless checks that a server refuses every call of an operator.
func (p *process) powerless(n newcomer) {
	p.t.Helper()
	client := p.as(n.pair)
	_, list := client.ListGroups(within(p.t), &nstancev1.ListGroupsRequest{})
	_, renew := client.RenewCertificate(within(p.t), &nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicPEM(p.t, newKey(p.t))})
	stream, watch := client.WatchGroups(within(p.t), &nstancev1.WatchGroupsRequest{})
	if watch == nil {
		_, watch = stream.Recv()
	}
	for call, err := range map[string]error{"a call": list, "a renewal": renew, "a watch": watch} {
		if !rpc.Revoked(err) {
			p.t.Errorf("%s is answered %v, want that the certificate is revoked", call, err)
		}
	}
	_, err := p.registration().RegisterOperator(within(p.t), n.req)
	refused(p.t, err, codes.PermissionDenied, "was removed")
}

// TestRemoveOperator: its calls, streams, renewals and nonce end at once on informed servers,
// and on every later leader.
func TestRemoveOperator(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.putConfig("dev-2")
		p := s.start().awaitLeading()
		q := s.start(named("b"), func(c *server.Config) { c.Shard = "dev-2" }).awaitLeading()
		n := p.enrol("prod")
		other, otherPair := s.operator("prod")
		onQ := func(pair *pki.Keypair) nstancev1.OperatorServiceClient {
			return nstancev1.NewOperatorServiceClient(s.dialShard("dev-2", q.operatorAddr(), pair))
		}
		if _, err := onQ(n.pair).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
			t.Fatal(err)
		}
		client := p.as(n.pair)
		groups, gErr := client.WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
		instances, iErr := client.WatchInstances(t.Context(), &nstancev1.WatchInstancesRequest{})
		errs, eErr := client.WatchErrors(t.Context(), &nstancev1.WatchErrorsRequest{})
		g, i, e := follow(t, groups, gErr), follow(t, instances, iErr), follow(t, errs, eErr)
		stays, sErr := p.as(otherPair).WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
		stay := follow(t, stays, sErr)

		first, err := remove(t, p.as(otherPair), n.id)
		if err != nil || first.GetRemovedAt() == nil || first.GetRemovedBy() != string(other.ID) || first.GetTenant() != "prod" ||
			first.GetConnected() {
			t.Fatalf("removed as %v, %v", first, err)
		}
		for stream, err := range map[string]error{"groups": g.ended(), "instances": i.ended(), "errors": e.ended()} {
			if !rpc.Revoked(err) {
				t.Errorf("the watch of %s ended with %v, want that the certificate is revoked", stream, err)
			}
		}
		p.powerless(n)
		again, err := remove(t, p.as(otherPair), n.id)
		if err != nil || !again.GetRemovedAt().AsTime().Equal(first.GetRemovedAt().AsTime()) {
			t.Errorf("removed again: %v, %v", again, err)
		}

		if _, err := remove(t, onQ(otherPair), n.id); err != nil {
			t.Errorf("at another shard: %v", err)
		}
		if _, err := onQ(n.pair).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); !rpc.Revoked(err) {
			t.Errorf("another shard that was told answers %v", err)
		}
		stay.quiet()
		p.ends()
		s.start(named("c")).awaitLeading().powerless(n)
	})
}

// TestRemovedOperatorsRecord has the time and the remover, has no key, and keeps unknown fields.
func TestRemovedOperatorsRecord(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		n := p.enrol("default")
		key := fleet.OperatorKey("default", n.id)
		s.putSealed(key, strings.Replace(s.get(key), "{", `{"later":{"a":1},`, 1))
		me, pair := s.operator("default")
		if _, err := remove(t, p.as(pair), n.id); err != nil {
			t.Fatal(err)
		}
		var record struct {
			ID        fleet.InstanceID `json:"id"`
			Key       string           `json:"public_key_sha256"`
			RemovedAt string           `json:"removed_at"`
			RemovedBy fleet.InstanceID `json:"removed_by"`
			Epoch     uint64           `json:"epoch"`
			Rev       uint64           `json:"rev"`
			Writer    string           `json:"writer"`
			Later     map[string]int   `json:"later"`
		}
		if err := json.Unmarshal([]byte(s.get(key)), &record); err != nil {
			t.Fatal(err)
		}
		if record.ID != n.id || record.Key != "" || record.RemovedAt == "" || record.RemovedBy != me.ID || record.Epoch != 1 || record.Rev != 2 ||
			!strings.HasPrefix(record.Writer, "a.") || record.Later["a"] != 1 {
			t.Errorf("the record is %s", s.get(key))
		}
	})
}

// TestOperatorRemovesItself: even the last operator gets its response.
func TestOperatorRemovesItself(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		n := p.enrol("default")
		stream, err := p.as(n.pair).WatchErrors(t.Context(), &nstancev1.WatchErrorsRequest{})
		w := follow(t, stream, err)
		if o, err := remove(t, p.as(n.pair), n.id); err != nil || o.GetRemovedBy() != string(n.id) {
			t.Fatalf("%v, %v", o, err)
		}
		if err := w.ended(); !rpc.Revoked(err) {
			t.Errorf("its watch ended with %v", err)
		}
		p.powerless(n)
	})
}

// TestListOperators: removed operators are listed on request, and damaged records, too, so that
// they can be removed.
func TestListOperators(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		me, pair := s.operator("default")
		gone, _ := s.operator("default")
		damaged, damagedPair := s.operator("default")
		s.put(damaged.Key(), "{")
		s.put("cluster/operator/default.notes.txt", "not an operator")
		client := p.as(pair)
		if _, err := remove(t, client, gone.ID); err != nil {
			t.Fatal(err)
		}
		list := func(removed bool) map[string]*nstancev1.OperatorStatus {
			t.Helper()
			resp, err := client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{IncludeRemoved: removed})
			if err != nil || resp.GetNextPageToken() != "" {
				t.Fatalf("%v, %v", resp, err)
			}
			found := map[string]*nstancev1.OperatorStatus{}
			for _, o := range resp.GetOperators() {
				found[o.GetId()] = o
			}
			return found
		}
		found := list(false)
		if o := found[string(me.ID)]; len(found) != 2 || o == nil || !o.GetConnected() || o.GetRegisteredAt() == nil || o.GetRemovedAt() != nil ||
			o.GetTenant() != "default" {
			t.Errorf("listed %v", found)
		}
		if o := found[string(damaged.ID)]; o == nil || o.GetConnected() || o.GetRegisteredAt() != nil {
			t.Errorf("the damaged one is listed as %v", o)
		}
		if o := list(true)[string(gone.ID)]; o.GetRemovedAt() == nil || o.GetRemovedBy() != string(me.ID) {
			t.Errorf("the one that was removed is listed as %v", o)
		}

		_, err := p.as(damagedPair).ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		refused(t, err, codes.Unavailable, damaged.Key())
		if _, err := remove(t, client, damaged.ID); err != nil {
			t.Error(err)
		}
		if _, err := p.as(damagedPair).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); !rpc.Revoked(err) {
			t.Errorf("answered %v", err)
		}
	})
}

func TestOperatorRequestsAreChecked(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		client := p.operator("default")
		for _, id := range []string{"", "x", string(newID(t, "knd")), strings.Repeat("opr", 1000)} {
			_, err := remove(t, client, fleet.InstanceID(id))
			refused(t, err, codes.InvalidArgument, "operator")
			if got := fields(err); len(got) != 1 || got[0] != "id" {
				t.Errorf("the answer names %v", got)
			}
			if id == "" {
				continue
			}
			_, err = client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{PageToken: id})
			refused(t, err, codes.InvalidArgument, "page_token")
		}
		_, err := client.ListOperators(within(t), &nstancev1.ListOperatorsRequest{PageSize: -1})
		refused(t, err, codes.InvalidArgument, "page_size")
		_, err = remove(t, client, newID(t, fleet.OperatorKind))
		refused(t, err, codes.NotFound, "no such operator")
	})
}

// TestRemovalWhoseReplyIsLost: it is done once, and acknowledged.
func TestRemovalWhoseReplyIsLost(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.putConfig("dev-2")
		p := s.start().awaitLeading()
		q := s.start(named("b"), func(c *server.Config) { c.Shard = "dev-2" }).awaitLeading()
		_, pair := s.operator("default")
		n := p.enrol("default")
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "cluster/operator/") {
				return objecttest.Outcome{Fault: objecttest.ReplyLost}
			}
			return objecttest.Outcome{}
		})
		clients := []nstancev1.OperatorServiceClient{p.as(pair), p.as(pair),
			nstancev1.NewOperatorServiceClient(s.dialShard("dev-2", q.operatorAddr(), pair))}
		answers, errs := make([]*nstancev1.OperatorStatus, len(clients)), make([]error, len(clients))
		var all sync.WaitGroup
		for i, client := range clients {
			all.Go(func() { answers[i], errs[i] = remove(t, client, n.id) })
		}
		all.Wait()
		for i, o := range answers {
			if errs[i] != nil || !o.GetRemovedAt().AsTime().Equal(answers[0].GetRemovedAt().AsTime()) {
				t.Errorf("removed as %v, %v, and as %v", o, errs[i], answers[0])
			}
		}
		var record fleet.Operator
		if err := json.Unmarshal([]byte(s.get(fleet.OperatorKey("default", n.id))), &record); err != nil || record.Rev != 2 {
			t.Errorf("written %d times, %v", record.Rev, err)
		}
		s.store.Set(nil)
		p.powerless(n)
	})
}

// TestRemovalThatTheStoreDoesNotTake: it is not acknowledged, and the operator keeps its access.
func TestRemovalThatTheStoreDoesNotTake(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("MORE", `"request_timeout": "1s",`))
		p := s.start().awaitLeading()
		_, pair := s.operator("default")
		n := p.enrol("default")
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "cluster/operator/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		_, err := remove(t, p.as(pair), n.id)
		refused(t, err, codes.Unavailable)
		if _, err := p.as(n.pair).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
			t.Errorf("it is answered %v", err)
		}
	})
}

// TestRemovalWithoutAFence: it is not acknowledged, because this server may no longer lead.
// But the record has it, permanently, and it is effective.
func TestRemovalWithoutAFence(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("MORE", `"request_timeout": "1s",`))
		p := s.start().awaitLeading()
		_, pair := s.operator("default")
		n := p.enrol("default")
		client := p.as(n.pair)
		stream, err := client.WatchGroups(t.Context(), &nstancev1.WatchGroupsRequest{})
		w := follow(t, stream, err)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && strings.HasPrefix(r.Key, "leader/") {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		time.Sleep(200 * time.Millisecond) // the window of the last renewal is 100 ms
		if _, err = remove(t, p.as(pair), n.id); err == nil {
			t.Error("it was acknowledged without a fence")
		}
		if err := w.ended(); !rpc.Revoked(err) {
			t.Errorf("its watch ended with %v", err)
		}
		if _, err := client.ListGroups(within(t), &nstancev1.ListGroupsRequest{}); !rpc.Revoked(err) {
			t.Errorf("it is answered %v", err)
		}
	})
}
