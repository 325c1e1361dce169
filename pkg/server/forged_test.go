package server_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestForeignCAInTheBucket: no server trusts a CA that a write to the bucket appended to the
// bundle. A running server keeps its trusted CAs; a starting one reports the certificate, and
// starts once it is removed.
func TestForeignCAInTheBucket(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		foreign, err := pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: newKey(t), Now: time.Now(), Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		o, pair := s.operator("default")
		forged := issue(t, foreign, pki.RoleOperator, "default", o.ID, time.Hour)
		good := s.get("cluster/ca.crt")
		ours, theirs := p.as(pair), p.as(forged)
		s.put("cluster/ca.crt", good+string(pki.EncodeCertificate(foreign.Certificate())))
		list := func(client nstancev1.OperatorServiceClient) error {
			_, err := client.ListGroups(within(t), &nstancev1.ListGroupsRequest{})
			return err
		}
		if err := list(ours); err != nil {
			t.Errorf("the server that runs: %v", err)
		}
		if err := list(theirs); err == nil {
			t.Error("the server that runs lets a forged operator in")
		}
		p.ends()

		q := s.start(named("b"))
		eventually(t, "it says why it does not start", func() error {
			fingerprint := pki.Fingerprint(foreign.Certificate())
			if text := q.log.String(); !strings.Contains(text, "cluster/ca.crt") || !strings.Contains(text, fingerprint) {
				return fmt.Errorf("the log lacks cluster/ca.crt or %s", fingerprint)
			}
			return nil
		})
		s.put("cluster/ca.crt", good)
		q.awaitLeading()
		if err := list(q.as(pair)); err != nil {
			t.Errorf("once the bundle is as it was: %v", err)
		}
		if err := list(q.as(forged)); err == nil {
			t.Error("a server that starts lets a forged operator in")
		}
	})
}

// TestRemovedOperatorStaysRemoved, whatever is written to its record, or replayed: at the leader
// that removed it, and at the next one, which knows only the stored state.
func TestRemovedOperatorStaysRemoved(t *testing.T) {
	without := func(t *testing.T, body string, fields ...string) string {
		t.Helper()
		var record map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &record); err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			delete(record, f)
		}
		out, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for name, forge := range map[string]func(t *testing.T, before, after string) string{
		"edited": func(t *testing.T, _, after string) string { return without(t, after, "removed_at", "removed_by") },
		"without a seal": func(t *testing.T, _, after string) string {
			return without(t, after, "removed_at", "removed_by", "seal")
		},
		"two names alike": func(_ *testing.T, _, after string) string {
			return strings.Replace(after, `"removed_at"`, `"REMOVED_AT":null,"removed_at"`, 1)
		},
		"the name twice": func(_ *testing.T, _, after string) string {
			return strings.TrimSuffix(after, "}") + `,"removed_at":null}`
		},
		"replayed":                           func(_ *testing.T, before, _ string) string { return before },
		"replayed, and the tombstone spoilt": func(_ *testing.T, before, _ string) string { return before },
		"deleted":                            func(*testing.T, string, string) string { return "" },
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s := newSite(t)
			p := s.start().awaitLeading()
			n := p.enrol("prod")
			key := fleet.OperatorKey("prod", n.id)
			before := s.get(key)
			_, other := s.operator("prod")
			first, err := remove(t, p.as(other), n.id)
			if err != nil {
				t.Fatal(err)
			}
			s.put(key, forge(t, before, s.get(key)))
			switch name {
			case "deleted":
				if err := s.inner.Delete(context.Background(), key); err != nil {
					t.Fatal(err)
				}
			case "replayed, and the tombstone spoilt":
				s.put(fleet.OperatorTombstoneKey("prod", n.id), before)
			case "replayed":
				list, err := p.as(other).ListOperators(within(t), &nstancev1.ListOperatorsRequest{IncludeRemoved: true})
				if err != nil || !slices.ContainsFunc(list.GetOperators(), func(o *nstancev1.OperatorStatus) bool {
					return o.GetId() == string(n.id) && o.GetRemovedAt().AsTime().Equal(first.GetRemovedAt().AsTime())
				}) {
					t.Errorf("listed as %v, %v", list, err)
				}
			}
			out := func(p *process) {
				t.Helper()
				_, err := p.as(n.pair).ListGroups(within(t), &nstancev1.ListGroupsRequest{})
				if err == nil {
					t.Error("it is back")
				}
				if name == "replayed" && !rpc.Revoked(err) {
					t.Errorf("it is answered %v, want that the certificate is revoked", err)
				}
				if _, err := p.registration().RegisterOperator(within(t), n.req); err == nil {
					t.Error("its nonce is good again")
				}
			}
			out(p)
			p.ends()
			q := s.start(named("b")).awaitLeading()
			out(q)
			if name == "deleted" {
				return
			}
			again, err := remove(t, q.as(other), n.id) // writes what is missing or spoilt
			if err != nil || name == "replayed" && !again.GetRemovedAt().AsTime().Equal(first.GetRemovedAt().AsTime()) {
				t.Errorf("removed again: %v, %v; first %v", again, err, first)
			}
			q.powerless(n)
		}))
	}
}

// TestForgedOperatorRecord: a record that no server or administrator of the cluster wrote
// admits no operator, and is reported.
func TestForgedOperatorRecord(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		id := newID(t, fleet.OperatorKind)
		body, err := json.Marshal(fleet.Operator{ID: id, Tenant: "default", RegisteredAt: time.Now()}.Written(0, "somewhere"))
		if err != nil {
			t.Fatal(err)
		}
		s.put(fleet.OperatorKey("default", id), string(body))
		pair := issue(t, s.trust().CA, pki.RoleOperator, "default", id, time.Hour)
		_, err = p.as(pair).ListGroups(context.Background(), &nstancev1.ListGroupsRequest{})
		if err == nil || !strings.Contains(err.Error(), fleet.OperatorKey("default", id)) {
			t.Errorf("it is answered %v, want an error that names the record", err)
		}
		o, copied := s.operator("default") // another operator's record under this name is invalid, too
		s.put(fleet.OperatorKey("default", id), strings.ReplaceAll(s.get(o.Key()), string(o.ID), string(id)))
		_, err = p.as(pair).ListGroups(context.Background(), &nstancev1.ListGroupsRequest{})
		if err == nil || !strings.Contains(err.Error(), fleet.OperatorKey("default", id)) {
			t.Errorf("with another's record it is answered %v, want an error that names the record", err)
		}
		if _, err := p.as(copied).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
			t.Errorf("the other: %v", err)
		}
	})
}
