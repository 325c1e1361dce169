package operators_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/proto"
)

// listGroups returns the groups that the fixture's service lists for a tenant.
func (f *fixture) listGroups(tenant string) *nstancev1.ListGroupsResponse {
	f.t.Helper()
	ctx := rpc.WithCaller(f.t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: tenant, ID: "opr"})
	resp, err := f.service.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

// TestETagIsOfWhatItStandsBeside: if a group changes while its status is made, the etag is
// that of the returned definition.
func TestETagIsOfWhatItStandsBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		key := f.group("default", "web", 3)
		f.locked(func() { f.next = &fleet.Group{Key: key, Size: 5} })
		for _, size := range []int{3, 5, 5} {
			g := f.listGroups("default").GetGroups()[0]
			if want := operators.ETag(fleet.Group{Key: key, Size: size}); g.GetSize() != int32(size) || g.GetEtag() != want {
				t.Errorf("told size %d with %s, want %d with %s", g.GetSize(), g.GetEtag(), size, want)
			}
		}
	})
}

// TestUndefinedGroupHasNoETag: a group without definition that still has instances is listed,
// without an etag for conditional changes.
func TestUndefinedGroupHasNoETag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.left = fleet.GroupKey{Tenant: "default", Name: "old"}
		f.put(record(1, "default", "old", fleet.Running))
		g := f.listGroups("default").GetGroups()
		if len(g) != 1 || g[0].GetKey() != "old" || g[0].GetEtag() != "" || g[0].GetPendingSize() != 1 {
			t.Errorf("told %v", g)
		}
	})
}

// TestGroupsMachines: a group lists its machines, how many are of its current definition, and
// their capacity.
func TestGroupsMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := fleet.GroupKey{Tenant: "default", Name: "web"}
		f.locked(func() {
			f.groups[web] = fleet.Group{
				Key: web, Size: 5, Static: true, StaticSize: 3, InstanceType: "large", Hashes: fleet.Hashes{Infra: "new"},
				DrainTimeout: 90 * time.Second,
			}
		})
		f.group("prod", "web", 1)
		put := func(n int, phase fleet.Phase, infra string, tweak func(*fleet.Instance)) {
			i := record(n, "default", "web", phase)
			i.Provider.ID, i.Hashes.Infra = "i-"+string(rune('z'-n)), infra
			if tweak != nil {
				tweak(&i)
			}
			f.put(i)
			f.locked(func() { f.health[i.ID] = operators.Health{LastReportAt: time.Now()} })
		}
		put(1, fleet.Running, "new", nil)
		put(2, fleet.Running, "old", nil)
		put(3, fleet.Running, "", nil) // of an unknown definition
		put(4, fleet.Pending, "new", func(i *fleet.Instance) { i.Provider.ID = "" })
		put(5, fleet.Draining, "new", nil)
		put(6, fleet.Deleting, "new", nil)
		put(7, fleet.Deleted, "new", nil)
		put(8, fleet.Running, "new", func(i *fleet.Instance) { i.OnDemand = true })
		put(9, fleet.Running, "new", func(i *fleet.Instance) { i.Tenant = "prod" })
		f.locked(func() {
			f.behind = map[fleet.InstanceID]bool{record(2, "", "", "").ID: true, record(3, "", "", "").ID: true}
		})
		resp := f.listGroups("default")
		if len(resp.GetGroups()) != 1 || resp.GetProviderKind() != "aws" ||
			resp.GetRegion() != "eu-central-1" || resp.GetZone() != "eu-central-1a" {
			t.Fatalf("listed %v", resp)
		}
		g := resp.GetGroups()[0]
		if g.GetActualSize() != 3 || g.GetUpToDateSize() != 2 || g.GetFilesUpToDateSize() != 1 || g.GetSize() != 5 ||
			g.GetStaticSize() != 3 || g.GetCapacity() != nil ||
			g.GetDrainTimeout().AsDuration() != 90*time.Second {
			t.Errorf("the group is %v", g)
		}
		var names []string
		for n, i := range g.GetInstances() {
			names = append(names, i.GetProviderId())
			id := record([]int{1, 2, 3, 5}[n], "", "", "").ID
			if i.GetId() != string(id) || i.GetZone() != "eu-central-1a" || i.GetNodeProviderId() != "aws:///eu-central-1a/"+i.GetProviderId() {
				t.Errorf("instance %d is %v", n, i)
			}
		}
		want := []string{"i-y", "i-x", "i-w", "i-u"}
		if !slices.Equal(names, want) {
			t.Errorf("machines %q, want %q", names, want)
		}
		f.locked(func() { f.capacity["large"] = operators.Capacity{CPUMillis: 4000, MemoryBytes: 1 << 34, Arch: "arm64"} })
		have := f.listGroups("default").GetGroups()[0].GetCapacity()
		if !proto.Equal(have, &nstancev1.MachineCapacity{CpuMillis: 4000, MemoryBytes: 1 << 34, Arch: "arm64"}) {
			t.Errorf("the group's capacity is %v", have)
		}
	})
}

// TestReadyOnlyWithFiles: an instance that lacks files of its group is pending, and the group says so, unless
// they are optional, or the group has none.
func TestReadyOnlyWithFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := fleet.GroupKey{Tenant: "default", Name: "web"}
		for n := range 3 {
			i := record(n, "default", "web", fleet.Running)
			f.put(i)
			f.locked(func() { f.health[i.ID] = operators.Health{LastReportAt: time.Now(), WithoutFiles: n == 0} })
		}
		files := map[string]fleet.File{"app.conf": {Kind: "string"}}
		for _, c := range []struct {
			group                   fleet.Group
			actual, pending         int32
			status, reason, message string
		}{
			{fleet.Group{Key: web, Size: 3, Files: files}, 2, 1, "False", "AwaitingFiles",
				"2 of 3 instances run, 1 are pending; 1 of them without their files"},
			{fleet.Group{Key: web, Size: 3, Files: files, FilesOptional: true}, 3, 0, "True", "", ""},
			{fleet.Group{Key: web, Size: 3}, 3, 0, "True", "", ""},
			{fleet.Group{Key: web, Size: 2, Files: files}, 2, 1, "False", "AwaitingFiles",
				"2 of 2 instances run, 1 are pending; 1 of them without their files"},
		} {
			f.locked(func() { f.groups[web] = c.group })
			g := f.listGroups("default").GetGroups()[0]
			ready := g.GetConditions()[0]
			if g.GetActualSize() != c.actual || g.GetUpToDateSize() != c.actual || g.GetPendingSize() != c.pending ||
				ready.GetStatus() != c.status || ready.GetReason() != c.reason || ready.GetMessage() != c.message {
				t.Errorf("told %v, want %+v", g, c)
			}
		}
	})
}

// TestInstanceStatus: a status shows the instance's request, and where its machine is.
func TestInstanceStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		i := fleet.Instance{ID: "knd01h455vb4pex5vsknk084sn02q", Tenant: "default", Group: "web", Phase: fleet.Pending, RequestKey: "pod-1"}
		status := func() *nstancev1.InstanceStatus {
			f.put(i)
			ctx := rpc.WithCaller(t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
			resp, err := f.service.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: string(i.ID)})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetInstance()
		}
		if st := status(); st.GetIdempotencyKey() != "pod-1" || st.GetNodeProviderId() != "" || st.GetProviderKind() != "aws" ||
			st.GetRegion() != "eu-central-1" || st.GetZone() != "eu-central-1a" {
			t.Errorf("before there is a machine: %v", st)
		}
		i.Provider.ID = "i-1"
		if st := status(); st.GetNodeProviderId() != "aws:///eu-central-1a/i-1" {
			t.Errorf("with a machine: %v", st)
		}
	})
}
