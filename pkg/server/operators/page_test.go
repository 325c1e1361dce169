package operators_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/operators"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// lister lists instances as an operator of tenant default.
type lister struct {
	*shard
	t       *testing.T
	service *operators.Service
}

func newLister(t *testing.T) *lister {
	s := &shard{instances: map[fleet.InstanceID]fleet.Instance{}}
	admit := func(string) error { return nil }
	parts := operators.Shard{
		Admit: admit, Groups: desired{shard: s}, Instances: s, Health: s.Health, FilesUpToDate: s.filesUpToDate,
		Provider: config.Provider{Kind: "fake"},
	}
	return &lister{shard: s, t: t, service: operators.New(operators.Config{
		Shard: func() (operators.Shard, error) { return parts, nil },
	})}
}

// id returns the n-th valid ID.
func id(n int) fleet.InstanceID { return fleet.InstanceID(fmt.Sprintf("knd01h455vb4pex5vsknk%08d", n)) }

func (l *lister) add(n int, tenant string, phase fleet.Phase) {
	l.put(fleet.Instance{ID: id(n), Tenant: tenant, Group: "web", Phase: phase})
}

func (l *lister) list(req *nstancev1.ListInstancesRequest) (*nstancev1.ListInstancesResponse, error) {
	ctx := rpc.WithCaller(context.Background(), pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr"})
	return l.service.ListInstances(ctx, req)
}

// page checks one page, given as numbers, and returns the token of the next.
func (l *lister) page(req *nstancev1.ListInstancesRequest) (numbers []int, next string) {
	l.t.Helper()
	resp, err := l.list(req)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, i := range resp.GetInstances() {
		var n int
		if _, err := fmt.Sscanf(i.GetId(), "knd01h455vb4pex5vsknk%08d", &n); err != nil {
			l.t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return numbers, resp.GetNextPageToken()
}

// TestPages: each of the caller's instances is on one page, whatever is added or removed
// between two pages.
func TestPages(t *testing.T) {
	l := newLister(t)
	for n := 1; n <= 20; n++ {
		l.add(n, []string{"default", "prod"}[n%2], fleet.Running) // even ones are the caller's
	}
	l.add(6, "default", fleet.Deleted)
	check := func(req *nstancev1.ListInstancesRequest, last bool, want ...int) string {
		t.Helper()
		got, next := l.page(req)
		if !slices.Equal(got, want) || (next == "") != last {
			t.Errorf("a page has %v, next %q; want %v, the last one: %t", got, next, want, last)
		}
		return next
	}
	next := check(&nstancev1.ListInstancesRequest{PageSize: 3}, false, 2, 4, 8)
	l.locked(func() { delete(l.instances, id(8)); delete(l.instances, id(2)) })
	l.add(9, "default", fleet.Pending)
	next = check(&nstancev1.ListInstancesRequest{PageSize: 3, PageToken: next}, false, 9, 10, 12)
	next = check(&nstancev1.ListInstancesRequest{PageSize: 3, PageToken: next, Group: "web"}, false, 14, 16, 18)
	check(&nstancev1.ListInstancesRequest{PageSize: 3, PageToken: next}, true, 20)
	check(&nstancev1.ListInstancesRequest{PageSize: 3, PageToken: string(id(99))}, true)
	check(&nstancev1.ListInstancesRequest{PageSize: 8}, true, 4, 9, 10, 12, 14, 16, 18, 20) // full, and the last one
	check(&nstancev1.ListInstancesRequest{IncludeDeleted: true}, true, 4, 6, 9, 10, 12, 14, 16, 18, 20)
}

// TestPageSizes: a page has a maximum size, whatever is requested.
func TestPageSizes(t *testing.T) {
	l := newLister(t)
	for n := range operators.MaxInstancePage + 10 {
		l.add(n, "default", fleet.Running)
	}
	for _, size := range []int32{0, operators.MaxInstancePage, operators.MaxInstancePage + 1, 1 << 30} {
		got, next := l.page(&nstancev1.ListInstancesRequest{PageSize: size})
		rest, end := l.page(&nstancev1.ListInstancesRequest{PageSize: size, PageToken: next})
		if len(got) != operators.MaxInstancePage || len(rest) != 10 || end != "" {
			t.Errorf("of size %d: %d, then %d, and then %q", size, len(got), len(rest), end)
		}
	}
	for field, req := range map[string]*nstancev1.ListInstancesRequest{
		"page_size": {PageSize: -1}, "page_token": {PageToken: "knd"},
	} {
		_, err := l.list(req)
		var wrong *rpc.ViolationsError
		if !errors.As(err, &wrong) || len(wrong.Violations) != 1 || wrong.Violations[0].Field != field {
			t.Errorf("%v: %v, want a violation of %s", req, err, field)
		}
	}
}
