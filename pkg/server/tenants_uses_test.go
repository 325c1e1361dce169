package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// TestTenantsUseWhatIsTheirs: a tenant can't use another one's template or pool, and does not
// learn that it exists. Groups that a new config withdraws them from are held: no machine is
// removed.
func TestTenantsUseWhatIsTheirs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"default": { "web": { "template": "knd", "size": 1 } }`))
		p := s.start()
		p.awaitLeading()
		prod := p.operator("prod")
		ask := func(template string, edit func(*nstancev1.UpsertGroupRequest)) error {
			req := &nstancev1.UpsertGroupRequest{Key: "jobs", Template: &template, Size: ptr(int32(2)), Create: true}
			edit(req)
			_, err := prod.UpsertGroup(within(t), req)
			return err
		}
		as := func(*nstancev1.UpsertGroupRequest) {}
		refused(t, ask("big", as), codes.InvalidArgument, `template: no such template "big" (have: knd)`)
		refused(t, ask("nosuch", as), codes.InvalidArgument, `template: no such template "nosuch" (have: knd)`)
		refused(t, ask("knd", func(r *nstancev1.UpsertGroupRequest) { r.SubnetPool = ptr("closed") }), codes.InvalidArgument,
			`subnet_pool: no such subnet pool "closed" (have: workers)`)
		if err := ask("knd", as); err != nil {
			t.Fatal(err)
		}
		size := func() (*nstancev1.GroupStatus, error) {
			resp, err := prod.ListGroups(within(t), &nstancev1.ListGroupsRequest{})
			if err != nil || len(resp.GetGroups()) != 1 {
				return nil, fmt.Errorf("%v, %w", resp, err)
			}
			return resp.GetGroups()[0], nil
		}
		eventually(t, "prod's group is at size", func() error {
			if n := len(s.belonging("prod", "jobs")); n != 2 {
				return fmt.Errorf("%d machines", n)
			}
			return nil
		})
		machines := s.belonging("prod", "jobs")

		s.replace(`"knd": { "tenants": ["*"],`, `"knd": {`)
		p.refreshes(updated)
		time.Sleep(2 * time.Minute) // simulated: any removal would have begun
		if now := s.belonging("prod", "jobs"); !slices.Equal(now, machines) {
			t.Errorf("prod's machines were %v and are %v", machines, now)
		}
		g, err := size()
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, c := range g.GetConditions() {
			told = told || strings.Contains(c.GetMessage(), `no such template "knd"`)
		}
		if !told || g.GetSize() != 2 {
			t.Errorf("the group is %v, want it held with its size, and why", g)
		}
		refused(t, ask("knd", func(r *nstancev1.UpsertGroupRequest) { r.Create, r.Size = false, ptr(int32(3)) }), codes.InvalidArgument,
			`template: no such template "knd" (there are none)`)
	})
}

// TestConfigThatTakesAway: a config that withdraws what a tenant's groups in it use is
// invalid, and the previous one stays active.
func TestConfigThatTakesAway(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `"prod": { "web": { "template": "knd", "size": 2 } }`))
		p := s.start()
		p.awaitLeading()
		eventually(t, "the group is at size", func() error {
			if n := len(s.belonging("prod", "web")); n != 2 {
				return fmt.Errorf("%d machines", n)
			}
			return nil
		})
		machines := s.belonging("prod", "web")
		s.replace(`"knd": { "tenants": ["*"],`, `"knd": {`)
		_, err := p.refresh()
		refused(t, err, codes.InvalidArgument,
			`groups.prod.web.template: the template "knd" is not for tenant "prod": want templates.knd.tenants: ["default", "prod"]`)
		time.Sleep(2 * time.Minute) // simulated
		if now := s.belonging("prod", "web"); !slices.Equal(now, machines) {
			t.Errorf("prod's machines were %v and are %v", machines, now)
		}
	})
}
