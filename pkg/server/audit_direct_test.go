package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// lines returns the lines of the log with a text.
func (p *process) lines(text string) (found []string) {
	for line := range strings.Lines(fmt.Sprint(p.log)) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestAuditOfOperatorsWithoutAServer: an operator whose record was written straight into the bucket
// has one line in a term, with its first call, even a read; one that registered with a server has
// none.
func TestAuditOfOperatorsWithoutAServer(t *testing.T) {
	const message = "admitted an operator that no server registered"
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		o, pair := s.operator("default")
		list := func(p *process, pair *pki.Keypair) {
			t.Helper()
			if _, err := p.as(pair).ListGroups(within(t), &nstancev1.ListGroupsRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		said := func(p *process, want int) {
			t.Helper()
			if found := p.lines(message); len(found) != want {
				t.Errorf("%d lines, want %d: %s", len(found), want, found)
			}
		}
		for range 3 {
			list(p, pair)
		}
		p.audited("ListGroups", message, "level=INFO", "audit=registration", "from=127.0.0.1:",
			"caller=spiffe://"+clusterID+"/default/operator/"+string(o.ID), `object="operator default/`+string(o.ID)+`"`,
			"claims.registered_at="+o.RegisteredAt.UTC().Format("2006-01-02T15:04:05Z"))

		id, key := newID(t, fleet.OperatorKind), newKey(t)
		_, err := p.registration().RegisterOperator(within(t),
			&nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), operatorClaims(id)), PublicKey: publicPEM(t, key)})
		if err != nil {
			t.Fatal(err)
		}
		list(p, issue(t, s.trust().CA, pki.RoleOperator, "default", id, time.Hour))
		said(p, 1)

		p.ends()
		q := s.start(named("b")).awaitLeading()
		list(q, pair)
		list(q, pair)
		said(q, 1)
	})
}

// TestTakeoverTellsOfChangedConfig: a takeover that accepts another text than the last leader did
// says so, once, with the etags; one that accepts the same text does not.
func TestTakeoverTellsOfChangedConfig(t *testing.T) {
	const message = "takeover accepted a changed config"
	simulated(t, func(t *testing.T) {
		s, p := running(t, with("MORE", `"request_timeout": "300ms",`))
		if first := p.lines(message); len(first) != 1 || !strings.Contains(first[0], `applied_etag_before=""`) {
			t.Errorf("the first config of the shard: %v, want one line", first)
		}
		applied := "applied/" + shardID + ".jsonc"
		etag := func(key string) string {
			t.Helper()
			o, err := s.inner.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return string(o.ETag)
		}
		p.ends()
		before := etag(applied)
		s.config["VARS"] = `{ "n": 2 }`
		s.putConfig(shardID)
		q := s.successor()
		q.awaitSize("web", 2)
		said := q.lines(message)
		texts := []string{"level=INFO", " etag=" + etag(configAt), "applied_etag_before=" + before, "applied_etag=" + etag(applied)}
		for _, text := range texts {
			if len(said) != 1 || !strings.Contains(said[0], text) {
				t.Errorf("%v, want one line with %s", said, text)
			}
		}
		// A refresh is no takeover, nor is the repetition of writes that got lost.
		s.config["VARS"] = `{ "n": 3 }`
		s.putConfig(shardID)
		s.store.Set(func(r objecttest.Request) objecttest.Outcome {
			if r.Verb == object.VerbPut && r.Key == applied {
				return objecttest.Outcome{Fault: objecttest.Dropped}
			}
			return objecttest.Outcome{}
		})
		if _, err := q.refresh(); err == nil {
			t.Error("a refresh whose writes got lost succeeded")
		}
		s.store.Set(nil)
		time.Sleep(5 * time.Minute)
		if _, err := q.refresh(); err != nil {
			t.Errorf("the next refresh: %v", err)
		}
		if said := q.lines(message); len(said) != 1 {
			t.Errorf("after refreshes: %v, want one line", said)
		}
		q.ends()
		r := s.start(named("c")).awaitLeading()
		r.takesAgents()
		r.awaitSize("web", 2)
		if said := r.lines(message); len(said) != 0 {
			t.Errorf("of an unchanged config: %v", said)
		}
	})
}
