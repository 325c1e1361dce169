package server_test

import (
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

func (p *process) watchAll(tenant, token string) *watched[nstancev1.WatchInstancesResponse] {
	p.t.Helper()
	req := &nstancev1.WatchInstancesRequest{All: true, ResumeToken: token}
	stream, err := p.operator(tenant).WatchInstances(p.t.Context(), req)
	return follow(p.t, stream, err)
}

// TestWhatGroupsHave: the status of a group has its machines by node name, how many have its
// current definition, and the resources of its instance type, which are queried in the
// background.
func TestWhatGroupsHave(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		s.world = fake.New(fake.Config{InstanceTypes: map[string]provider.InstanceType{
			"large": {CPUMillis: 8000, MemoryBytes: 1 << 35, Arch: "arm64"},
		}})
		s.config["GROUPS"] = `"default": { "web": { "template": "knd", "size": 2, "instance_type": "large" } }`
		s.putConfig(shardID)
		p := s.start()
		s.populate(p)
		p.awaitSize("web", 2)
		knows := func(cpu int64, upToDate int32) func(*nstancev1.WatchGroupsResponse) bool {
			return func(m *nstancev1.WatchGroupsResponse) bool {
				g := m.GetGroup()
				return g.GetKey() == "web" && g.GetCapacity().GetCpuMillis() == cpu && g.GetActualSize() == 2 && g.GetUpToDateSize() == upToDate
			}
		}
		w := p.watchGroups("default")
		m, _ := w.next("web is complete", knows(8000, 2))
		g := m.GetGroup()
		if g.GetCapacity().GetMemoryBytes() != 1<<35 || g.GetCapacity().GetArch() != "arm64" || g.GetStaticSize() != 2 {
			t.Errorf("web is %v", g)
		}
		for n, id := range s.living() {
			vm := g.GetInstances()[n]
			if vm.GetId() != string(id) || vm.GetZone() != "z" || vm.GetNodeProviderId() != "fake:///"+vm.GetProviderId() {
				t.Errorf("instance %d is %v", n, vm)
			}
		}
		resp, err := p.operator("default").ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		if err != nil || resp.GetProviderKind() != "fake" || resp.GetRegion() != "r" || resp.GetZone() != "z" {
			t.Errorf("listed %v, %v", resp, err)
		}
		// With another type its machines are replaced one by one; at first all have the old one.
		change := &nstancev1.UpsertGroupRequest{Key: "web", InstanceType: ptr("unheard-of")}
		if changed, err := p.upsert(change); err != nil || changed.GetUpToDateSize() != 0 || changed.GetCapacity() != nil {
			t.Errorf("changed to %v, %v", changed, err)
		}
		w.next("all are replaced", knows(0, 2))
	})
}

// TestFollowAll: a watch of all groups sees an instance come and go, resumes after a break, and
// gets a full snapshot from the next leader.
func TestFollowAll(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		w := p.watchAll("default", "")
		end, before := w.next("the snapshot's end", endOfInstances)
		if len(before) != 2 || end.GetResumed() {
			t.Fatalf("the snapshot has %v, and ends with %v", before, end)
		}
		resp, err := p.operator("default").CreateInstance(within(t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "pod-1"})
		if err != nil {
			t.Fatal(err)
		}
		id := fleet.InstanceID(resp.GetInstance().GetId())
		runs, _ := w.next("it runs", instanceIs(id, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING))
		if i := runs.GetInstance(); i.GetIdempotencyKey() != "pod-1" || i.GetRegisteredAt() == nil || i.GetZone() != "z" {
			t.Errorf("told %v", i)
		}
		again := p.watchAll("default", end.GetResumeToken())
		end, before = again.next("the snapshot's end", endOfInstances)
		if !end.GetResumed() || !slices.ContainsFunc(before, instanceIs(id, nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING)) {
			t.Errorf("since the first snapshot: %v, then %v", before, end)
		}

		if err := p.shutdown(); err != nil {
			t.Fatal(err)
		}
		q := s.start(named("b")).awaitLeading()
		next := q.watchAll("default", end.GetResumeToken())
		if end, before = next.next("the snapshot's end", endOfInstances); end.GetResumed() || len(before) != 3 {
			t.Errorf("the next leader tells %v, then %v", before, end)
		}
		s.world.Kill(id)
		next.next("it is deleted", instanceIs(id, nstancev1.InstancePhase_INSTANCE_PHASE_DELETED))
	})
}
