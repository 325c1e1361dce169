package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/server/fair"
	"github.com/nstance/nstance/pkg/server/plan"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

var (
	web   = fleet.GroupKey{Tenant: "default", Name: "web"}
	db    = fleet.GroupKey{Tenant: "default", Name: "db"}
	scope = provider.Scope{ClusterID: "test", Shard: "one"}
)

// wanted is the desired state.
type wanted struct {
	mu       sync.Mutex
	groups   map[fleet.GroupKey]fleet.Group
	settings plan.Settings
	forgot   []fleet.GroupKey
	fail     error
}

func (w *wanted) Keys() []fleet.GroupKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []fleet.GroupKey
	for k := range w.groups {
		keys = append(keys, k)
	}
	return keys
}

func (w *wanted) Group(key fleet.GroupKey) (fleet.Group, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ok := w.groups[key]
	if !ok {
		return fleet.Group{Key: key, Removed: true}, false
	}
	return g, true
}

func (w *wanted) Settings() plan.Settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settings
}

func (w *wanted) Forget(_ context.Context, key fleet.GroupKey) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail
	}
	delete(w.groups, key)
	w.forgot = append(w.forgot, key)
	return nil
}

func (w *wanted) ForgetAbort(context.Context, fleet.GroupKey, string) error { return nil }

func (w *wanted) ClearLeaving(_ context.Context, key fleet.GroupKey, ids []fleet.InstanceID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return w.fail
	}
	g := w.groups[key]
	g.Leaving = slices.DeleteFunc(slices.Clone(g.Leaving), func(id fleet.InstanceID) bool { return slices.Contains(ids, id) })
	w.groups[key] = g
	return nil
}

// edit changes a group without notifying the loop.
func (w *wanted) edit(key fleet.GroupKey, change func(*fleet.Group)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g, ok := w.groups[key]
	if !ok {
		g = fleet.Group{
			Key: key, Kind: "knd", Arch: "amd64", InstanceType: "small",
			Subnets: []string{"subnet-a", "subnet-b"}, Hashes: fleet.Hashes{Infra: "i1"},
		}
	}
	change(&g)
	w.groups[key] = g
}

// shard is a provider, a bucket, the desired state and one server at a time.
type shard struct {
	t      *testing.T
	world  *fake.World
	bucket *bucket
	wanted *wanted
	random *rand.ChaCha8
	agents agents

	mu       sync.Mutex
	problems []fleet.Problem
	logs     bytes.Buffer
	build    func(fleet.Instance) error
	built    map[fleet.InstanceID]fleet.GroupKey
	adjust   func(*reconcile.Config)
	targets  []string                    // of the load balancer www
	cleared  map[string][]fleet.GroupKey // by reason
	settled  []string                    // the reasons of the shard's problems that were over
	callers  map[fleet.InstanceID]bool   // agents that call all the time, though they have no record

	term *term
}

// term is one server's term as the leader.
type term struct {
	*reconcile.Loop
	ledger   *ledger
	problems *problems.Set
	end      context.CancelFunc
	done     chan error
}

func newShard(t *testing.T, cfg fake.Config) *shard {
	s := &shard{
		cleared: map[string][]fleet.GroupKey{}, callers: map[fleet.InstanceID]bool{},
		t: t, bucket: newBucket(), world: fake.New(cfg), built: map[fleet.InstanceID]fleet.GroupKey{},
		random: rand.NewChaCha8([32]byte{byte(cfg.Seed), byte(cfg.Seed >> 8)}),
		wanted: &wanted{groups: map[fleet.GroupKey]fleet.Group{}, settings: plan.Settings{
			ReportInterval: 10 * time.Second, MissedReports: 3, ShutdownGrace: 30 * time.Second,
			RegistrationTimeout: 5 * time.Minute, DeletedRetention: 30 * time.Minute, CreateTimeout: 10 * time.Minute,
		}},
	}
	s.agents = agents{s: s, boot: time.Second, open: map[fleet.InstanceID]bool{}}
	return s
}

func (s *shard) size(key fleet.GroupKey, n int) {
	s.wanted.edit(key, func(g *fleet.Group) { g.Size = n })
	if s.term != nil {
		s.term.Enqueue(key)
	}
}

// Build implements reconcile.Builder.
func (s *shard) Build(_ context.Context, i fleet.Instance, g fleet.Group) (provider.Spec, error) {
	s.mu.Lock()
	build := s.build
	s.built[i.ID] = g.Key
	s.mu.Unlock()
	if build != nil {
		if err := build(i); err != nil {
			return provider.Spec{}, err
		}
	}
	return provider.Spec{ID: i.ID, Hostname: string(i.ID), Arch: g.Arch, InstanceType: g.InstanceType, Tags: scope.Tags(i)}, nil
}

func (s *shard) newID(kind string, now time.Time) (fleet.InstanceID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fleet.NewID(kind, now, s.random)
}

func (s *shard) uniform() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return rand.New(s.random).Float64()
}

// quiet is how long an agent does not call at most.
const quiet = 5 * time.Minute

func (s *shard) called(id fleet.InstanceID) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers[id] {
		return time.Now()
	}
	return time.Time{}
}

// setCalls says whether the agent of an instance without a record calls.
func (s *shard) setCalls(id fleet.InstanceID, calls bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers[id] = calls
}

// lead starts the next server.
func (s *shard) lead() {
	l := s.bucket.lead()
	logger := slog.New(slog.NewJSONHandler(&locked{s: s}, nil))
	set := problems.New(problems.Config{
		Now: time.Now, Logger: slog.New(slog.DiscardHandler), Changed: func(fleet.GroupKey) {},
	})
	cfg := reconcile.Config{
		Ledger: l, Fence: l, Groups: s.wanted, Builder: s, NewID: s.newID,
		Provider:       s.world.Open(scope, fmt.Sprintf("server-%d", l.epoch)),
		CreateRate:     fair.Rate{Concurrency: 16},
		CreateBackoff:  5 * time.Minute,
		Uniform:        s.uniform,
		MaxSurge:       fleet.Surge{Percent: 100},
		RequestTimeout: 30 * time.Second, SweepInterval: 2 * time.Minute, FirstSweep: 30 * time.Second,
		Quiet: quiet, Called: s.called,
		NotLeader: func(err error) bool { return strings.Contains(err.Error(), errNotLeader.Error()) },
		Problems:  recordedProblems{set, s},
		Logger:    logger,
	}
	if s.adjust != nil {
		s.adjust(&cfg)
	}
	loop, err := reconcile.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	m := &term{Loop: loop, ledger: l, problems: set, end: cancel, done: make(chan error, 1)}
	s.agents.reset()
	s.term = m
	s.agents.start(m)
	synctest.Wait() // the agents watch
	go func() { m.done <- loop.Run(ctx) }()
}

// soon waits for a condition, at most an hour of simulated time, since periodic timers would make
// an unlimited wait last for ever.
func soon[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(time.Hour):
		t.Fatalf("not within an hour: %s", what)
	}
	return v
}

// stop ends the server that leads, as a crash would: nothing more of it lands.
func (s *shard) stop() error {
	s.term.end()
	err := soon(s.t, s.term.done, "the end of the loop")
	s.term = nil
	s.agents.wait()
	return err
}

type locked struct{ s *shard }

func (w *locked) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.logs.Write(p)
}

// logged returns the log lines with this message.
func (s *shard) logged(message string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(s.logs.Bytes()) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil && m["msg"] == message {
			out = append(out, m)
		}
	}
	return out
}

func (s *shard) reported(reason string) []fleet.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.problems), func(p fleet.Problem) bool { return p.Reason != reason })
}

// ended returns the reasons of the shard's resolved problems.
func (s *shard) ended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.settled)
}

// records returns the ids of the group's records in these phases.
func (s *shard) records(key fleet.GroupKey, phases ...fleet.Phase) []fleet.InstanceID {
	var ids []fleet.InstanceID
	for _, r := range s.bucket.all() {
		if r.GroupKey() == key && slices.Contains(phases, r.Phase) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

func (s *shard) running(key fleet.GroupKey) []fleet.InstanceID { return s.records(key, fleet.Running) }

// alive returns the provider ids of the VMs that run or will.
func (s *shard) alive() []string {
	var ids []string
	for _, vm := range s.world.VMs() {
		if vm.State.Alive() {
			ids = append(ids, vm.ProviderID)
		}
	}
	return ids
}

func (s *shard) isAlive(id fleet.InstanceID) bool {
	return slices.ContainsFunc(s.world.VMs(), func(vm provider.VM) bool { return vm.ID == id && vm.State.Alive() })
}

// expectRunning fails unless exactly n instances of the group run, with a VM each.
func (s *shard) expectRunning(key fleet.GroupKey, n int) []fleet.InstanceID {
	s.t.Helper()
	ids := s.running(key)
	if len(ids) != n {
		s.t.Fatalf("%s: %d running, want %d: %s", key, len(ids), n, s.dump())
	}
	for _, id := range ids {
		if !s.isAlive(id) {
			s.t.Fatalf("%s is running without a VM: %s", id, s.dump())
		}
	}
	return ids
}

func (s *shard) dump() string {
	var b strings.Builder
	for _, r := range s.bucket.all() {
		fmt.Fprintf(&b, "\n  record %s %s %s %q vm=%q", r.GroupKey(), r.ID, r.Phase, r.Reason, r.Provider.ID)
	}
	for _, vm := range s.world.VMs() {
		fmt.Fprintf(&b, "\n  vm %s %s %s", vm.ProviderID, vm.ID, vm.State)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.problems {
		fmt.Fprintf(&b, "\n  problem %s %s %s", p.At.Format("15:04:05.000"), p.Reason, p.Message)
	}
	return b.String()
}

// bubble runs a test on fake time.
func bubble(t *testing.T, cfg fake.Config, f func(t *testing.T, s *shard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t, cfg)
		f(t, s)
		if s.term != nil {
			if err := s.stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
	})
}

// pass lets d pass, and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
