package measure_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/metrics"
	"github.com/nstance/nstance/pkg/metrics/metricstest"
	"github.com/nstance/nstance/pkg/metrics/prometheus"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/provider/providertest"
	"github.com/nstance/nstance/pkg/server/measure"
)

// fixture is a server's metrics.
type fixture struct {
	*measure.Server
	t        *testing.T
	registry *prometheus.Registry
	state    measure.State
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, registry: prometheus.New("v1", map[string]string{"shard": "a"})}
	f.Server = measure.New(f.registry, nil, func() measure.State { return f.state })
	return f
}

func (f *fixture) scrape() metricstest.Scrape {
	f.t.Helper()
	w := httptest.NewRecorder()
	f.registry.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got, err := metricstest.Parse(w.Body.String())
	if err != nil {
		f.t.Fatalf("%v in:\n%s", err, w.Body)
	}
	return got
}

// full is a state in which every metric has a value.
func full(groups int) measure.State {
	term := &measure.Term{
		Due: 1, Queued: 2, Creating: 3, Changes: 4, Throttled: map[string]float64{"creates and deletes": 5},
		Problems: map[string]int{"CreatesFailing": 6},
	}
	for n := range groups {
		term.Groups = append(term.Groups, measure.Group{
			Key:    fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%05d", n)},
			Wanted: 3, Actual: 2, Outdated: 1, Silent: 1, Ready: n != 7, Phases: map[fleet.Phase]int{fleet.Running: 3, fleet.Deleted: 9},
			CreatesFailing: n == groups-1, CreateFailures: 1, NextCreate: time.Duration(n) * time.Second,
		})
	}
	slices.Reverse(term.Groups)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	return measure.State{
		Ready: true, Epoch: 7, CAExpires: at, ServerExpires: at, Issued: map[string]uint64{"agent": 8},
		Audit:        []audit.Tally{{Count: audit.Count{Kind: audit.Call, Outcome: audit.Refused}, Events: 9}},
		AuditOmitted: 10, Handshaking: 11, Waiting: 12, AgentStreams: 13, Watches: 14, Term: term,
	}
}

// TestEveryMetric: each metric follows the conventions, and has a value once there is one.
func TestEveryMetric(t *testing.T) {
	f := newFixture(t)
	f.state = full(3)
	f.TookOver(time.Second)
	lost := time.Now()
	f.Replacements.Created("knd01", lost, lost)
	_, _ = f.Calls.Store(mem.New(mem.Config{})).Put(t.Context(), "leader/a.json", nil, object.IfMatch("x"))
	cloud := f.Calls.Provider(fake.New(fake.Config{}).Open(provider.Scope{ClusterID: "c", Shard: "a"}, "a"))
	_, _ = cloud.Create(t.Context(), provider.Spec{})
	cloud.Delete(t.Context(), []provider.Ref{{}})
	got := f.scrape()
	got.Lint(t)
	for _, i := range f.registry.Infos() {
		name := i.Name
		if i.Type == metrics.TypeHistogram {
			name += "_count"
		}
		series := got.Of(name)
		if len(series) == 0 {
			t.Errorf("%s has no value", i.Name)
			continue
		}
		for _, label := range i.Labels {
			if !strings.Contains(series[0], label+`="`) {
				t.Errorf("%s has no label %s", series[0], label)
			}
		}
	}
}

// TestGroupsAreBounded: whatever the number of groups, few have series, and the sums are right.
func TestGroupsAreBounded(t *testing.T) {
	sums := map[int]map[string]float64{}
	for _, groups := range []int{measure.MaxGroups, measure.MaxGroups + 1, 20 * measure.MaxGroups} {
		f := newFixture(t)
		f.state = full(groups)
		got := f.scrape()
		if n := len(got.Of("nstance_group_wanted_instances")); n > measure.MaxGroups+1 {
			t.Errorf("%d of %d groups have series", n, groups)
		}
		if len(got.Values) > 20*measure.MaxGroups {
			t.Errorf("%d series of %d groups", len(got.Values), groups)
		}
		sums[groups] = map[string]float64{}
		for _, metric := range []string{"nstance_group_wanted_instances", "nstance_group_actual_instances",
			"nstance_instances", "nstance_group_creates_failing"} {
			for _, series := range got.Of(metric) {
				sums[groups][metric] += got.Values[series]
			}
		}
		n := float64(groups)
		want := map[string]float64{
			"nstance_group_wanted_instances": 3 * n, "nstance_group_actual_instances": 2 * n,
			"nstance_instances": 3 * n, "nstance_group_creates_failing": 1,
		}
		if !maps.Equal(sums[groups], want) {
			t.Errorf("the sums of %d groups are %v, want %v", groups, sums[groups], want)
		}
		if got.Values[`nstance_groups{shard="a"}`] != n {
			t.Errorf("there are %v groups", got.Values[`nstance_groups{shard="a"}`])
		}
	}
	if err := fleet.CheckName(measure.Others); err == nil {
		t.Errorf("a group may be called %s", measure.Others)
	}
}

// TestReplacements: each stage counts once, whatever is reported again, and an instance that
// comes to nothing counts no further.
func TestReplacements(t *testing.T) {
	f, lost := newFixture(t), time.Now()
	after := func(s int) time.Time { return lost.Add(time.Duration(s) * time.Second) }
	r := f.Replacements
	r.Created("a1", lost, after(1))
	r.Created("a1", lost, after(2))
	r.Created("a2", lost, after(1))
	r.Created("a3", time.Time{}, after(1)) // it is not known when it was lost
	r.Changed("a1", fleet.Pending, false, after(3))
	r.Changed("a1", fleet.Running, false, after(4))
	r.Changed("a1", fleet.Running, false, after(5))
	r.Changed("a2", fleet.Deleting, false, after(6))
	r.Changed("a2", fleet.Running, true, after(6))
	if !r.Follows("a1") || r.Follows("a2") || r.Follows("a3") {
		t.Error("not those are followed that are under way")
	}
	r.Changed("a1", fleet.Running, true, after(7))
	r.Changed("a1", fleet.Running, true, after(8))
	for n := range 20_000 {
		r.Created(fleet.InstanceID(fmt.Sprintf("b%d", n)), lost, after(0))
	}
	r.End()
	got := f.scrape()
	for series, want := range map[string]float64{
		`nstance_replacement_duration_seconds_count{shard="a",stage="created"}`:    10_002,
		`nstance_replacement_duration_seconds_sum{shard="a",stage="created"}`:      2,
		`nstance_replacement_duration_seconds_count{shard="a",stage="registered"}`: 1,
		`nstance_replacement_duration_seconds_sum{shard="a",stage="registered"}`:   4,
		`nstance_replacement_duration_seconds_sum{shard="a",stage="ready"}`:        7,
	} {
		if got.Values[series] != want {
			t.Errorf("%s is %v, want %v", series, got.Values[series], want)
		}
	}
	var none *measure.Replacements
	none.Created("a1", lost, lost)
	none.Changed("a1", fleet.Running, true, lost)
	none.End()
	if r.Follows("b1") || none.Follows("a1") {
		t.Error("a replacement of a term that is over is followed")
	}
}

// TestMeasuredStore: a measured store keeps the contract, and its errors are counted by kind.
func TestMeasuredStore(t *testing.T) {
	objecttest.Run(t, func(t *testing.T) object.Store {
		return newFixture(t).Calls.Store(mem.New(mem.Config{}))
	})
	f := newFixture(t)
	s := f.Calls.Store(mem.New(mem.Config{}))
	_, _ = s.Get(t.Context(), "instance/a/none.json")
	_, _ = s.Put(t.Context(), "leader/a.json", []byte("x"), object.IfMatch("none"))
	_, _ = s.Get(t.Context(), strings.Repeat("some/other", 9)+"thing")
	got := f.scrape()
	for series, want := range map[string]float64{
		`nstance_store_call_duration_seconds_count{area="instance",call="get",shard="a"}`: 1,
		`nstance_store_call_duration_seconds_count{area="other",call="get",shard="a"}`:    1,
		`nstance_store_errors_total{area="leader",call="put",kind="conflict",shard="a"}`:  1,
	} {
		if got.Values[series] != want {
			t.Errorf("%s is %v, want %v", series, got.Values[series], want)
		}
	}
	if n := len(got.Of("nstance_store_errors_total")); n != 1 {
		t.Errorf("%d kinds of errors", n)
	}
}

// TestMeasuredProvider: a measured provider keeps the contract, with all optional features.
func TestMeasuredProvider(t *testing.T) {
	types := map[string]provider.InstanceType{"small": {CPUMillis: 1000, MemoryBytes: 1 << 30, Arch: "amd64"}}
	providertest.Run(t, providertest.Harness{
		Around: synctest.Test,
		New: func(t *testing.T) providertest.World {
			w := fake.New(fake.Config{
				Capacity: map[string]int{"subnet-a": 100, "subnet-b": 5}, Targets: []string{}, InstanceTypes: types,
				Images: []fake.Image{{ID: "ami-1", Owner: "debian", Name: "debian-13"}},
				CheckArgs: func(spec provider.Spec) error {
					var wrong provider.FieldErrors
					if spec.Args["size"] == "huge" {
						wrong.Addf("args.size", "there is no huge machine: want small")
					}
					return wrong.Err()
				},
			})
			calls := newFixture(t).Calls
			return providertest.World{
				Open:     func(_ *testing.T, s provider.Scope) provider.Provider { return calls.Provider(w.Open(s, "server")) },
				Kill:     func(_ *testing.T, vm provider.VM) { w.Explain(vm.ID, "the plug was pulled"); w.Kill(vm.ID) },
				Killed:   "the plug was pulled",
				Plant:    func(_ *testing.T, tags map[string]string) { w.Plant(tags) },
				Patience: time.Minute, Subnet: "subnet-b", InstanceTypes: types,
				Images: []providertest.ImageCase{{Query: provider.ImageQuery{
					Owners: []string{"debian"}, Sort: "name", Order: "asc", Filters: []provider.ImageFilter{{Name: "name", Values: []string{"*"}}},
				}, Want: "ami-1"}},
				BadArgs:       []map[string]any{{"size": "huge"}},
				Short:         func(*testing.T) func() { w.Outage(provider.ErrQuota); return w.Mend },
				Target:        func(t *testing.T) string { w.AddTarget(t.Name()); return t.Name() },
				MissingTarget: "nowhere",
			}
		},
	})
}

// TestProviderWithout: a provider without optional features has none when it is measured.
func TestProviderWithout(t *testing.T) {
	p := newFixture(t).Calls.Provider(struct{ provider.Provider }{})
	watcher, a := provider.WatcherOf(p)
	network, b := provider.LeaderNetworkOf(p)
	capacity, c := provider.SubnetCapacityOf(p)
	images, d := provider.ImageResolverOf(p)
	types, e := provider.InstanceTypesOf(p)
	balancer, f := provider.LoadBalancerOf(p)
	args, g := provider.ArgsCheckerOf(p)
	if watcher != nil || network != nil || capacity != nil || images != nil || types != nil || balancer != nil || args != nil {
		t.Error("a feature that is not there is not nil")
	}
	if a || b || c || d || e || f || g || provider.Consistent(p) {
		t.Error("it says that it has a feature")
	}
}

// TestProviderErrors: errors are counted by kind, and creates and deletes by outcome.
func TestProviderErrors(t *testing.T) {
	f := newFixture(t)
	w := fake.New(fake.Config{})
	scope := provider.Scope{ClusterID: "c", Shard: "a"}
	id, err := fleet.NewID("knd", time.Unix(1_700_000_000, 0), strings.NewReader(strings.Repeat("x", 100)))
	if err != nil {
		t.Fatal(err)
	}
	p := f.Calls.Provider(w.Open(scope, "a"))
	for _, kind := range []error{provider.ErrThrottled, provider.ErrQuota, provider.ErrQuota, fake.ErrLost} {
		w.FailNext(fake.OpCreate, 1, fake.Fault{Err: kind})
		tags := scope.Tags(fleet.Instance{ID: id, Tenant: "default", Group: "web"})
		if _, err := p.Create(t.Context(), provider.Spec{ID: id, Subnet: "a", Tags: tags}); !errors.Is(err, kind) {
			t.Errorf("create answers %v, want %v", err, kind)
		}
	}
	p.Get(t.Context(), []provider.Ref{{ProviderID: "none"}})
	p.Delete(t.Context(), []provider.Ref{{ProviderID: "none"}, {}})
	got := f.scrape()
	for series, want := range map[string]float64{
		`nstance_creates_total{outcome="throttled",shard="a"}`:                  1,
		`nstance_creates_total{outcome="quota",shard="a"}`:                      2,
		`nstance_creates_total{outcome="unknown",shard="a"}`:                    1,
		`nstance_provider_errors_total{call="create",kind="quota",shard="a"}`:   2,
		`nstance_deletes_total{outcome="accepted",shard="a"}`:                   1,
		`nstance_deletes_total{outcome="invalid",shard="a"}`:                    1,
		`nstance_provider_errors_total{call="delete",kind="invalid",shard="a"}`: 1,
	} {
		if got.Values[series] != want {
			t.Errorf("%s is %v, want %v", series, got.Values[series], want)
		}
	}
	if kinds := got.Of("nstance_provider_errors_total"); len(kinds) != 4 {
		t.Errorf("errors are %v", kinds)
	}
}
