package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// newerField is a field of a later version in every object.
const newerField = `"newer":{"by":["x",2.50]}`

// modernize makes every object of the shard look as if a later version had written it, including
// the static config.
func (s *site) modernize() {
	s.t.Helper()
	for _, prefix := range []string{"config/", "applied/", "groups/", "leader/", "instance/", "request/", fleet.OperatorPrefix} {
		keys := s.keys(prefix)
		if len(keys) == 0 {
			s.t.Fatalf("there is nothing under %s", prefix)
		}
		for _, key := range keys {
			text := strings.Replace(s.get(key), "{", "{"+newerField+",", 1)
			if header, config, ok := strings.Cut(text, "\n"); ok && prefix == "applied/" { // whose header is that of one write
				text = header + "\n" + strings.Replace(config, "{", "{"+newerField+",", 1)
			}
			if prefix == fleet.OperatorPrefix {
				s.putSealed(key, text)
				continue
			}
			s.put(key, text)
		}
	}
}

// TestRollback: a later version led and released, and this one takes over. It leads at once,
// keeps all machines, can change all objects, and loses no unknown fields.
func TestRollback(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "1s"`)
		p.refreshes(updated)
		if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(3))}); err != nil {
			t.Fatal(err)
		}
		p.awaitSize("web", 3)
		operator, key := newID(t, fleet.OperatorKind), newKey(t)
		register := &nstancev1.RegisterOperatorRequest{Nonce: mint(t, s.trust(), operatorClaims(operator)), PublicKey: publicPEM(t, key)}
		if _, err := p.registration().RegisterOperator(within(t), register); err != nil {
			t.Fatal(err)
		}
		ask := &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k"}
		asked, err := p.operator("default").CreateInstance(within(t), ask)
		if err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(fleet.InstanceID(asked.GetInstance().GetId()), isRunning)
		before := s.living()
		p.ends()
		s.modernize()
		s.world.ForgetCalls()

		q := s.successor()
		q.awaitSize("web", 3)
		if after := s.living(); !slices.Equal(before, after) || len(s.world.Calls(fake.OpCreate)) > 0 {
			t.Errorf("%v live, were %v", after, before)
		}
		status := q.configStatus()
		if v := status.GetViolations(); !status.GetRunningApplied() || len(v) != 1 || v[0].GetField() != "newer" {
			t.Errorf("config status: %v", status)
		}
		if _, err := q.upsert(&nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1))}); err != nil {
			t.Fatal(err)
		}
		q.awaitSize("web", 1)
		again, err := q.operator("default").CreateInstance(within(t), ask)
		if err != nil || again.GetInstance().GetId() != asked.GetInstance().GetId() {
			t.Errorf("the key names %v, %v, want %v", again, err, asked)
		}
		if _, err := q.registration().RegisterOperator(within(t), register); err != nil {
			t.Errorf("the operator comes again: %v", err)
		}
		for _, prefix := range []string{"applied/", "groups/", "instance/", "request/", fleet.OperatorKey("default", operator)} {
			for _, key := range s.keys(prefix) {
				text := strings.Join(strings.Fields(s.get(key)), "")
				if strings.Count(text, newerField) != 1 {
					t.Errorf("%s is without what the newer version said:\n%s", key, s.get(key))
				}
			}
		}
		if strings.Contains(s.get("leader/"+shardID+".json"), "newer") {
			t.Error("the record of the new leader says what another one meant")
		}
	})
}
