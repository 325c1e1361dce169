package dashboard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const running = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING

// shards are two shards that keep groups at size at once. The methods that the page does not use are
// those of a nil Service.
type shards struct {
	httpapi.Service

	mu        sync.Mutex
	groups    map[string]*admin.Group // by shard and key
	instances map[string]*admin.Instance
	events    []*admin.Happened
	lost      map[string]bool
	watchers  map[chan admin.Event]bool
	made      int
}

func newShards() *shards {
	return &shards{
		groups: map[string]*admin.Group{}, instances: map[string]*admin.Instance{}, lost: map[string]bool{},
		watchers: map[chan admin.Event]bool{},
	}
}

// tell sends an event to all watchers. s.mu is held.
func (s *shards) tell(e admin.Event) {
	for w := range s.watchers {
		w <- e
	}
}

// scale sets a group's size, and makes or removes instances until it has it.
func (s *shards) scale(shard, key string, size int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := shard + "/" + key
	g := &nstancev1.GroupStatus{Key: key, Tenant: "default", Template: "knd", InstanceType: "t3.small"}
	if known := s.groups[id]; known != nil {
		g = proto.CloneOf(known.GroupStatus)
	}
	s.happened(shard, &nstancev1.Event{
		Kind: "change", Group: key, Actor: "spiffe://example/default/operator/opr1", Reason: "upsert-group",
		Message: fmt.Sprintf("size %d -> %d", g.GetSize(), size),
	})
	for g.Size = size; g.GetActualSize() < size; g.ActualSize++ {
		s.create(shard, key)
	}
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		if i := s.instances[name]; g.GetActualSize() > size && i.Shard == shard && i.GetGroup() == key {
			g.ActualSize--
			delete(s.instances, name)
			gone := proto.CloneOf(i.InstanceStatus)
			gone.Phase = nstancev1.InstancePhase_INSTANCE_PHASE_DELETED
			s.tell(admin.Event{Kind: admin.EventInstance, Shard: shard, Instance: &admin.Instance{Shard: shard, InstanceStatus: gone}})
		}
	}
	g.UpToDateSize = g.GetActualSize()
	s.put(shard, g)
}

// manage makes something the manager of a group.
func (s *shards) manage(shard, key, manager string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := proto.CloneOf(s.groups[shard+"/"+key].GroupStatus)
	g.Manager = manager
	s.happened(shard, &nstancev1.Event{Kind: "change", Group: key, Reason: "upsert-group", Message: "manager " + manager})
	s.put(shard, g)
}

// put shows a group. s.mu is held.
func (s *shards) put(shard string, g *nstancev1.GroupStatus) {
	g.Etag = "etag-" + strconv.Itoa(len(s.events))
	g.Conditions = []*nstancev1.Condition{{Type: "Ready", Status: "True", Reason: "AtSize", Message: "all instances run"}}
	if left := g.GetActualSize() - g.GetUpToDateSize(); left > 0 {
		g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "Rotating", Status: "True", Reason: "AwaitsReplacement",
			Message: fmt.Sprintf("%d instances are to be replaced, and the next one waits for another to be ready", left)})
	}
	s.groups[shard+"/"+g.GetKey()] = &admin.Group{Shard: shard, GroupStatus: g}
	s.tell(admin.Event{Kind: admin.EventGroup, Shard: shard, Group: s.groups[shard+"/"+g.GetKey()]})
}

// rollout gives a group another definition, from which some of its instances are made.
func (s *shards) rollout(shard, key string, upToDate int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := proto.CloneOf(s.groups[shard+"/"+key].GroupStatus)
	g.UpToDateSize = upToDate
	s.put(shard, g)
}

func (s *shards) create(shard, group string) {
	s.made++
	i := &nstancev1.InstanceStatus{
		Id: fmt.Sprintf("knd%026d", s.made), Tenant: "default", Group: group, Phase: running, InstanceType: "t3.small", ProviderKind: "aws",
		Zone: "eu-central-1a", Connected: true, CreatedAt: timestamppb.New(time.Unix(1700000000, 0)), Ips: []string{"10.0.0.1"},
		CertificateExpiresAt: timestamppb.New(time.Now().Add(50 * time.Hour)), FilesUpToDate: proto.Bool(s.made%2 == 1),
	}
	s.instances[i.GetId()] = &admin.Instance{Shard: shard, InstanceStatus: i}
	s.tell(admin.Event{Kind: admin.EventInstance, Shard: shard, Instance: s.instances[i.GetId()]})
}

func (s *shards) happened(shard string, e *nstancev1.Event) {
	e.Id, e.At, e.Tenant = fmt.Sprintf("7.%d", len(s.events)+1), timestamppb.Now(), "default"
	s.events = append(s.events, &admin.Happened{Shard: shard, Event: e})
	s.tell(admin.Event{Kind: admin.EventHappened, Shard: shard, Happened: s.events[len(s.events)-1]})
}

// touch has all instances say that something failed.
func (s *shards) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, known := range s.instances {
		next := proto.CloneOf(known.InstanceStatus)
		next.LastError = "not now"
		s.instances[id] = &admin.Instance{Shard: known.Shard, InstanceStatus: next}
		s.tell(admin.Event{Kind: admin.EventInstance, Shard: known.Shard, Instance: s.instances[id]})
	}
}

// touchOne has one instance say how often that was asked for.
func (s *shards) touchOne(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := slices.Min(slices.Collect(maps.Keys(s.instances)))
	next := proto.CloneOf(s.instances[id].InstanceStatus)
	next.LastError = fmt.Sprintf("not now, the time %d", n)
	s.instances[id] = &admin.Instance{Shard: s.instances[id].Shard, InstanceStatus: next}
	s.tell(admin.Event{Kind: admin.EventInstance, Shard: s.instances[id].Shard, Instance: s.instances[id]})
}

// lose makes a shard unreachable, or reachable again.
func (s *shards) lose(shard string, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[shard] = lost
	for _, of := range []string{client.WatchGroups, client.WatchAllInstances, client.WatchProblems, client.WatchEvents} {
		e := admin.Event{Kind: admin.EventSnapshot, Shard: shard, Of: of, Resumed: true}
		if lost {
			e = admin.Event{Kind: admin.EventLost, Shard: shard, Of: of, Error: "shard " + shard + ": no leader answers at 10.0.0.9:8443"}
		}
		s.tell(e)
	}
}

// WatchState implements httpapi.Feed.
func (s *shards) WatchState(ctx context.Context, all []client.Shard, of []string, see func(admin.Event) error) error {
	w := make(chan admin.Event, 100000)
	s.mu.Lock()
	for _, g := range s.groups {
		w <- admin.Event{Kind: admin.EventGroup, Shard: g.Shard, Group: g}
	}
	for _, i := range s.instances {
		w <- admin.Event{Kind: admin.EventInstance, Shard: i.Shard, Instance: i}
	}
	for _, e := range s.events {
		w <- admin.Event{Kind: admin.EventHappened, Shard: e.Shard, Happened: e}
	}
	for _, shard := range all {
		for _, what := range of {
			w <- admin.Event{Kind: admin.EventSnapshot, Shard: shard.ID, Of: what}
		}
	}
	s.watchers[w] = true
	s.mu.Unlock()
	for {
		select {
		case e := <-w:
			if err := see(e); err != nil {
				return err
			}
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watchers, w)
			return nil
		}
	}
}

// ShardStatus implements httpapi.Service. Only shards that are not lost answer.
func (s *shards) ShardStatus(_ context.Context, picked []client.Shard) (all []admin.ShardStatus, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, shard := range picked {
		if s.lost[shard.ID] {
			err = errors.Join(err, &client.ShardError{Shard: shard.ID, Err: errors.New("no leader answers")})
			continue
		}
		all = append(all, admin.ShardStatus{Shard: shard.ID, GetShardStatusResponse: &nstancev1.GetShardStatusResponse{
			Leader: "server-of-" + shard.ID, Epoch: 7, Version: "v0-test", Standbys: 1, LeadingSince: timestamppb.New(now.Add(-time.Hour)),
			LeaseRenewedAt: timestamppb.New(now.Add(-3 * time.Second)), LeaseEndsAt: timestamppb.New(now.Add(27 * time.Second)),
		}})
	}
	return all, err
}

// Counted implements httpapi.Service.
func (s *shards) Counted(_ context.Context, picked []client.Shard, group string, _ bool) (map[string][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(s.instances)) {
		i := s.instances[id]
		if i.GetGroup() == group && slices.ContainsFunc(picked, func(p client.Shard) bool { return p.ID == i.Shard }) {
			counted[i.Shard] = append(counted[i.Shard], id)
		}
	}
	return counted, nil
}

// UpsertGroup implements httpapi.Service.
func (s *shards) UpsertGroup(_ context.Context, picked []client.Shard, req *nstancev1.UpsertGroupRequest) ([]admin.Group, error) {
	if len(picked) != 1 {
		return nil, errors.New("the page changes a group of one shard")
	}
	id := picked[0].ID + "/" + req.GetKey()
	s.mu.Lock()
	etag, manager := s.groups[id].GetEtag(), s.groups[id].GetManager()
	s.mu.Unlock()
	if manager != "" && req.Size != nil && !req.GetForce() {
		return nil, fmt.Errorf("managed by %s", manager)
	}
	if manager != "" && req.GetForce() {
		s.manage(picked[0].ID, req.GetKey(), "")
	}
	if req.IfEtag == nil || req.GetIfEtag() != etag {
		return nil, fmt.Errorf("if_etag: %q, but the group has etag %q", req.GetIfEtag(), etag)
	}
	if req.Size != nil {
		s.scale(picked[0].ID, req.GetKey(), req.GetSize())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.RolloutPaused != nil {
		g := proto.CloneOf(s.groups[id].GroupStatus)
		g.RolloutPaused = req.GetRolloutPaused()
		s.happened(picked[0].ID, &nstancev1.Event{Kind: "change", Group: req.GetKey(), Message: fmt.Sprintf("paused: %t", g.RolloutPaused)})
		s.put(picked[0].ID, g)
	}
	return []admin.Group{*s.groups[id]}, nil
}

func (s *shards) paused(shard, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[shard+"/"+key].GetRolloutPaused()
}

func (s *shards) size(shard, key string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[shard+"/"+key].GetSize()
}

// served is the API at one address, across restarts.
type served struct {
	t      *testing.T
	shards *shards
	access httpapi.Access
	addr   string
	boots  int
	stop   func()
}

func serve(t *testing.T, s *shards, access httpapi.Access) *served {
	t.Helper()
	v := &served{t: t, shards: s, access: access, addr: "127.0.0.1:0"}
	v.start()
	t.Cleanup(func() { v.stop() })
	return v
}

func (v *served) url() string { return "http://" + v.addr + "/" }

func (v *served) start() {
	v.t.Helper()
	v.boots++
	api, err := httpapi.New(httpapi.Config{
		Service: v.shards, Shards: []client.Shard{{ID: "one"}, {ID: "two"}}, Version: "v0-test", Hosts: httpapi.Hosts(v.addr), Access: v.access,
		Timeout: 10 * time.Second, Boot: fmt.Sprintf("boot%d", v.boots), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		v.t.Fatal(err)
	}
	l, err := httpapi.Listen(v.t.Context(), v.addr, httpapi.TLS{})
	if err != nil {
		v.t.Fatal(err)
	}
	v.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, l) }()
	v.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			v.t.Error(err)
		}
	})
}
