package operators_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// pages are the keys of a tenant's groups, page by page.
func (f *fixture) pages(tenant string, size int32) (pages []string) {
	f.t.Helper()
	ctx := rpc.WithCaller(f.t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: tenant, ID: "opr"})
	for token := ""; ; {
		resp, err := f.service.ListGroups(ctx, &nstancev1.ListGroupsRequest{PageSize: size, PageToken: token})
		if err != nil {
			f.t.Fatal(err)
		}
		var keys []string
		for _, g := range resp.GetGroups() {
			keys = append(keys, g.GetKey())
		}
		pages = append(pages, strings.Join(keys, " "))
		if token = resp.GetNextPageToken(); token == "" {
			return pages
		}
	}
}

// TestGroupsComeInPages: each group of the tenant is on one page, by key, and no other
// tenant's is.
func TestGroupsComeInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, name := range []string{"d", "a", "c", "b", "e"} {
			f.group("default", name, 1)
		}
		f.group("prod", "bb", 1)
		for size, want := range map[int32][]string{
			0: {"a b c d e"}, 2: {"a b", "c d", "e"}, 5: {"a b c d e"}, 1: {"a", "b", "c", "d", "e"}, 9999: {"a b c d e"},
		} {
			if have := f.pages("default", size); !slices.Equal(have, want) {
				t.Errorf("pages of %d: %q, want %q", size, have, want)
			}
		}
		if have := f.pages("prod", 0); !slices.Equal(have, []string{"bb"}) {
			t.Errorf("pages of prod: %q", have)
		}
		ctx := rpc.WithCaller(t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
		for _, req := range []*nstancev1.ListGroupsRequest{{PageSize: -1}, {PageToken: "No Name"}} {
			if _, err := f.service.ListGroups(ctx, req); status.Code(rpc.Status(err)) != codes.InvalidArgument {
				t.Errorf("%v: %v, want an invalid argument", req, err)
			}
		}
	})
}

// TestPageOfGroupsFitsAMessage: groups of many instances make a page shorter than asked for.
func TestPageOfGroupsFitsAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		large := fleet.Group{Vars: map[string]any{"text": strings.Repeat("x", 900<<10)}}
		var want []string
		for n := range 5 {
			large.Key = fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%d", n)}
			f.locked(func() { f.groups[large.Key] = large })
		}
		want = []string{"g0 g1", "g2 g3", "g4"}
		if have := f.pages("default", 0); !slices.Equal(have, want) {
			t.Errorf("pages %q, want %q", have, want)
		}
	})
}

// TestPartsAreOmitted: lists and answers leave out what the request says, and nothing else.
func TestPartsAreOmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		web := fleet.GroupKey{Tenant: "default", Name: "web"}
		f.locked(func() { f.groups[web] = fleet.Group{Key: web, Size: 1, Vars: map[string]any{"text": "a"}} })
		i := record(1, "default", "web", fleet.Running)
		i.Provider.ID = "i-a"
		f.put(i)
		ctx := rpc.WithCaller(t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
		for n, req := range []*nstancev1.ListGroupsRequest{{}, {OmitInstances: true}, {OmitVars: true}, {OmitInstances: true, OmitVars: true}} {
			resp, err := f.service.ListGroups(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			g := resp.GetGroups()[0]
			if (len(g.GetInstances()) == 0) != req.GetOmitInstances() || (g.GetVars() == nil) != req.GetOmitVars() || g.GetSize() != 1 {
				t.Errorf("%d: %v", n, g)
			}
		}
		for omit, want := range map[bool]int{false: 1, true: 0} {
			resp, err := f.service.GetGroup(ctx, &nstancev1.GetGroupRequest{Key: "web", OmitInstances: omit})
			if g := resp.GetGroup(); err != nil || len(g.GetInstances()) != want || len(g.GetVars().GetFields()) != 1 {
				t.Errorf("omit %t: %v, %v", omit, g, err)
			}
		}
	})
}

// TestManyLargeVarsAreListed: a thousand groups that share vars of 70 kB, a config of 108 kB, are
// listed in messages that every client takes, and in one if vars are not asked for.
func TestManyLargeVarsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		vars := map[string]any{"text": strings.Repeat("x", 70<<10)}
		for n := range 1000 {
			key := fleet.GroupKey{Tenant: "default", Name: fmt.Sprintf("g%03d", n)}
			f.locked(func() { f.groups[key] = fleet.Group{Key: key, Vars: vars} })
		}
		ctx := rpc.WithCaller(t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
		for omit, most := range map[bool]int{false: 2 << 20, true: 200 << 10} {
			listed := 0
			for token := ""; ; {
				resp, err := f.service.ListGroups(ctx, &nstancev1.ListGroupsRequest{PageToken: token, OmitVars: omit})
				if err != nil {
					t.Fatal(err)
				}
				if n := proto.Size(resp); n > most+1<<10 {
					t.Fatalf("without vars %t: a page of %d bytes", omit, n)
				}
				listed += len(resp.GetGroups())
				if token = resp.GetNextPageToken(); token == "" {
					break
				}
			}
			if listed != 1000 {
				t.Errorf("without vars %t: %d groups", omit, listed)
			}
		}
	})
}

// TestGetGroup returns what the list has, and nothing of another tenant.
func TestGetGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.group("default", "web", 3)
		f.group("prod", "job", 3)
		f.left = fleet.GroupKey{Tenant: "default", Name: "old"}
		f.put(record(1, "default", "old", fleet.Running))
		ctx := rpc.WithCaller(t.Context(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
		for key, want := range map[string]codes.Code{
			"web": codes.OK, "old": codes.OK, "job": codes.NotFound, "none": codes.NotFound,
			"": codes.InvalidArgument, "No Name": codes.InvalidArgument,
		} {
			resp, err := f.service.GetGroup(ctx, &nstancev1.GetGroupRequest{Key: key})
			if code := status.Code(rpc.Status(err)); code != want || err == nil && resp.GetGroup().GetKey() != key {
				t.Errorf("%q: %v, %v, want %s", key, resp, err, want)
			}
		}
	})
}

// TestTransitions: a condition keeps its time while its status stays, also when its words
// change, and begins anew with each change of its status.
func TestTransitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		key := f.group("default", "web", 1)
		begin := time.Now()
		expect := func(what, ready string, since time.Time) {
			t.Helper()
			c := f.listGroups("default").GetGroups()[0].GetConditions()[0]
			if c.GetType() != "Ready" || c.GetStatus() != ready || !c.GetLastTransitionTime().AsTime().Equal(since) {
				t.Errorf("%s: %v, want %s since %s", what, c, ready, since)
			}
			time.Sleep(time.Minute)
		}
		expect("none runs", "False", begin)
		expect("still none", "False", begin)
		f.put(record(1, "default", "web", fleet.Pending))
		expect("other words", "False", begin)
		f.put(record(1, "default", "web", fleet.Running))
		silent := time.Now()
		expect("it has not reported", "Unknown", silent)
		expect("it has not reported yet", "Unknown", silent)
		f.locked(func() { f.health[record(1, "", "", "").ID] = operators.Health{LastReportAt: time.Now()} })
		ready := time.Now()
		expect("it has reported", "True", ready)
		expect("it runs", "True", ready)
		f.locked(func() { f.groups[key] = fleet.Group{Key: key, Size: 2} })
		expect("one more is wanted", "False", time.Now())
		f.locked(func() { f.groups[key] = fleet.Group{Key: key, Size: 1} })
		expect("and is not any more", "True", time.Now())
	})
}

// TestETag: an etag tells versions of a definition apart, and is the same for what is the same.
func TestETag(t *testing.T) {
	key := fleet.GroupKey{Tenant: "default", Name: "web"}
	seen := map[string]string{}
	for name, g := range map[string]fleet.Group{
		"plain": {Key: key}, "size": {Key: key, Size: 1}, "revision": {Key: key, Revision: 1}, "vars": {Key: key, Vars: map[string]any{"a": 1}},
		"type": {Key: key, InstanceType: "a"}, "template": {Key: key, Template: "a"}, "pool": {Key: key, SubnetPool: "a"},
		"surge": {Key: key, MaxSurge: fleet.Surge{Percent: 5}}, "pods": {Key: key, OnDemand: &fleet.OnDemand{Max: 1}},
		"static": {Key: key, Static: true}, "static size": {Key: key, Static: true, StaticSize: 1}, "disabled": {Key: key, Disabled: "no"},
		"optional": {Key: key, FilesOptional: true},
		"machines": {Key: key, Hashes: fleet.Hashes{Infra: "a"}}, "files": {Key: key, Hashes: fleet.Hashes{Runtime: "a"}},
		"another": {Key: fleet.GroupKey{Tenant: "default", Name: "job"}},
	} {
		etag := operators.ETag(g)
		if other, ok := seen[etag]; ok || etag != operators.ETag(g) || etag == "" {
			t.Errorf("%s has etag %q, and so has %q", name, etag, other)
		}
		seen[etag] = name
	}
}

// TestTransitionsOfGroupsThatAreGone are dropped: a group that is made anew begins anew, and the
// others keep their times.
func TestTransitionsOfGroupsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.group("default", "db", 1)
		web := f.group("default", "web", 1)
		begin := time.Now()
		f.listGroups("default")
		time.Sleep(time.Minute)
		f.transitions.Tidy(func(key fleet.GroupKey) bool { return key == web })
		for n, want := range []time.Time{begin, time.Now()} {
			g := f.listGroups("default").GetGroups()[n]
			if since := g.GetConditions()[0].GetLastTransitionTime().AsTime(); !since.Equal(want) {
				t.Errorf("%s is so since %s, want %s", g.GetKey(), since, want)
			}
		}
	})
}
