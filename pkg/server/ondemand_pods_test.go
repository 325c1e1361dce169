package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/objecttest"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// forPods sets the on_demand policy of group web.
func forPods(policy string) func(*site) {
	return with("GROUPS", `"default": { "web": { "template": "knd", "size": 2, "instance_type": "small"`+policy+` } }`)
}

// ask modifies a request.
type ask = func(*nstancev1.CreateInstanceRequest)

// of is for a pod of a Namespace.
func of(namespace string) func(*nstancev1.CreateInstanceRequest) {
	return func(r *nstancev1.CreateInstanceRequest) { r.Namespace = namespace }
}

func ofType(name string) func(*nstancev1.CreateInstanceRequest) {
	return func(r *nstancev1.CreateInstanceRequest) { r.InstanceType = &name }
}

// TestPodsGetNothingUnlessAllowed: the server refuses what a group does not allow, whatever an
// operator requests, and leaves no record.
func TestPodsGetNothingUnlessAllowed(t *testing.T) {
	const policy = `, "on_demand": { "namespaces": ["ci"], "instance_types": ["large"], "max": 9 }`
	for name, c := range map[string]struct {
		policy string
		ask    []ask
		code   codes.Code
		want   string
	}{
		"no policy":             {"", []ask{of("ci")}, codes.FailedPrecondition, "set its on_demand"},
		"no policy and no pod":  {"", nil, codes.OK, ""},
		"another Namespace":     {policy, []ask{of("web")}, codes.FailedPrecondition, "on_demand.namespaces are ci"},
		"no Namespace's name":   {policy, []ask{of("C I")}, codes.InvalidArgument, "namespace: \"C I\" is not"},
		"its Namespace":         {policy, []ask{of("ci")}, codes.OK, ""},
		"another type":          {policy, []ask{of("ci"), ofType("huge")}, codes.InvalidArgument, "(have: small, large)"},
		"another type, no pod":  {policy, []ask{ofType("huge")}, codes.InvalidArgument, "instance_type: \"huge\": want "},
		"a type that is listed": {policy, []ask{of("ci"), ofType("large")}, codes.OK, ""},
		"the group's own type":  {policy, []ask{of("ci"), ofType("small")}, codes.OK, ""},
		"judged by labels, which the operator knows": {
			`, "on_demand": { "namespace_labels": { "a": "b" }, "max": 9 }`, []ask{of("any")}, codes.OK, "",
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t, forPods(c.policy))
			i, err := p.create("", c.ask...)
			if status.Code(err) != c.code || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("answered %v, %v; want %s with %q", i, err, c.code, c.want)
			}
			if all := s.onDemand(); (len(all) == 1) != (c.code == codes.OK) {
				t.Errorf("the records are %+v", all)
			}
		}))
	}
}

// TestNamespaceIsKept: the Namespace is returned with the instance, and is part of the key's
// meaning.
func TestNamespaceIsKept(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, forPods(`, "on_demand": { "namespaces": ["*"], "max": 9 }`))
		i, err := p.create("k", of("ci"))
		if err != nil || i.GetNamespace() != "ci" {
			t.Fatalf("answered %v, %v", i, err)
		}
		if all := s.onDemand(); len(all) != 1 || all[0].Namespace != "ci" {
			t.Errorf("the records are %+v", all)
		}
		if again, err := p.create("k", of("ci")); err != nil || again.GetId() != i.GetId() {
			t.Errorf("again: %v, %v", again, err)
		}
		if _, err := p.create("k", of("web")); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "namespace: ") {
			t.Errorf("for another Namespace: %v", err)
		}
	})
}

// TestOnDemandMax: of concurrent calls as many succeed as the limit allows, and a restarted
// server counts existing instances.
func TestOnDemandMax(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, forPods(`, "on_demand": { "namespaces": ["*"], "max": 5, "max_per_namespace": 3 }`))
		at := func(p *process, namespace string, n int) (made []string) {
			var mu sync.Mutex
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					i, err := p.create("", of(namespace))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						made = append(made, i.GetId())
					case status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "on_demand.max"):
						t.Errorf("refused with %v", err)
					}
				})
			}
			all.Wait()
			return made
		}
		ci := at(p, "ci", 20)
		if len(ci) != 3 {
			t.Fatalf("one Namespace got %d, want 3", len(ci))
		}
		if web := at(p, "web", 20); len(web) != 2 {
			t.Errorf("another one got %d, want the other 2", len(web))
		}
		if i, err := p.create(""); status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "5 on-demand instances, and its on_demand.max is 5") {
			t.Errorf("for no pod: %v, %v", i, err)
		}
		p.ends()
		p = s.start()
		p.awaitLeading()
		if more := at(p, "web", 5); len(more) > 0 || len(s.onDemand()) != 5 {
			t.Errorf("the next server made %v", more)
		}
		if err := p.delete(fleet.InstanceID(ci[0])); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(fleet.InstanceID(ci[0]), isDeleted)
		if more := at(p, "web", 5); len(more) != 1 {
			t.Errorf("one was deleted, and %d were made", len(more))
		}
	})
}

// TestARefusedKeyIsFree: a key whose creation was over the limit names nothing, and one with a
// request but no record is counted once.
func TestARefusedKeyIsFree(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, forPods(`, "on_demand": { "namespaces": ["*"], "max": 1 }`))
		s.failFirst("instance/", objecttest.Dropped)
		_, _ = p.create("first", of("ci")) // its outcome is the fault's
		first := p.created("first", of("ci"))
		for n := range 3 {
			if _, err := p.create(fmt.Sprintf("k%d", n), of("ci")); status.Code(err) != codes.ResourceExhausted {
				t.Fatalf("beyond max: %v", err)
			}
		}
		if again := p.created("first", of("ci")); again != first {
			t.Errorf("the first again is %s, not %s", again, first)
		}
		if err := p.delete(first); err != nil {
			t.Fatal(err)
		}
		p.awaitPhase(first, isDeleted)
		p.created("k2", of("ci"))
	})
}

// TestOnDemandThroughTheAPI: a dynamic group's on_demand is set, shown, and removed; its
// instances stay.
func TestOnDemandThroughTheAPI(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		policy := &nstancev1.OnDemand{
			Namespaces: []string{"ci"}, NamespaceLabels: map[string]string{"a": "b"}, InstanceTypes: []string{"large"}, Max: 3, MaxPerNamespace: 2,
		}
		g, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(0)), OnDemand: policy})
		if err != nil || g.GetOnDemand().String() != policy.String() {
			t.Fatalf("the group is %v, %v", g, err)
		}
		id := p.created("k", of("ci"), func(r *nstancev1.CreateInstanceRequest) { r.Group = "batch" })
		p.awaitPhase(id, isRunning)
		none, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", OnDemand: &nstancev1.OnDemand{}})
		if err != nil || none.GetOnDemand() != nil || none.GetEtag() == g.GetEtag() {
			t.Errorf("taken back, the group is %v, %v", none, err)
		}
		if again := p.created("k", of("ci"), func(r *nstancev1.CreateInstanceRequest) { r.Group = "batch" }); again != id {
			t.Errorf("it is %s now, not %s", again, id)
		}
		if all := s.onDemand(); len(all) != 1 || all[0].Phase != fleet.Running {
			t.Errorf("the records are %+v", all)
		}
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", OnDemand: &nstancev1.OnDemand{Namespaces: []string{"ci"}, Max: -1}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "on_demand.max: -1: want ") {
			t.Errorf("with a bad max: %v", err)
		}
		_, err = p.upsert(&nstancev1.UpsertGroupRequest{Key: "web", OnDemand: policy})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "on_demand: set by static config") {
			t.Errorf("of a static group: %v", err)
		}
	})
}
