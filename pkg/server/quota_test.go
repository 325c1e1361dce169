package server_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// bounded is a shard in which tenant prod has a quota, and these groups.
func bounded(t *testing.T, quota, groups string) (*site, *process) {
	t.Helper()
	s := newSite(t, with("GROUPS", groups), replaced(`"tenants": { "prod": {} },`, `"tenants": { "prod": { "quota": { `+quota+` } } },`))
	return s, s.start().awaitLeading()
}

// TestQuotas: exceeding the quota of a tenant is RESOURCE_EXHAUSTED and names the field; tenant
// default, which has none, is unaffected.
func TestQuotas(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := bounded(t, `"groups": 2, "instances": 5, "on_demand": 1, "config_bytes": 400`,
			`"prod": { "web": { "template": "knd", "size": 2 } }`)
		ask := func(tenant, key string, size int32) error {
			_, err := p.operator(tenant).UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: key, Template: ptr("knd"), Size: &size})
			return err
		}
		refused(t, ask("prod", "jobs", 4), codes.ResourceExhausted,
			`the quota of tenant "prod" is exceeded: instances: at most 5 are allowed, there are 2, and with this 6`)
		if err := ask("prod", "jobs", 3); err != nil {
			t.Fatal(err)
		}
		refused(t, ask("prod", "more", 0), codes.ResourceExhausted, "groups: at most 2 are allowed, there are 2, and with this 3")
		for _, key := range []string{"jobs", "more", "others"} {
			if err := ask("default", key, 10); err != nil {
				t.Error(err)
			}
		}
		create := func(key string) error {
			_, err := p.operator("prod").CreateInstance(within(t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key})
			return err
		}
		if err := errors.Join(create("a"), create("a")); err != nil { // the same one
			t.Error(err)
		}
		refused(t, create("b"), codes.ResourceExhausted, "on_demand: at most 1 are allowed, there are 1, and with this 2")

		eventually(t, "prod is at size", func() error {
			if n := len(s.belonging("prod", "jobs")); n != 3 {
				return fmt.Errorf("%d machines", n)
			}
			return nil
		})
		machines := s.belonging("prod", "jobs")
		s.put(configAt, s.text()) // with the defaults, and then below the current usage
		p.refreshes(updated)
		s.replace(`"tenants": { "prod": {} },`, `"tenants": { "prod": { "quota": { "groups": 1, "instances": 2, "on_demand": 0 } } },`)
		p.refreshes(updated)
		time.Sleep(2 * time.Minute) // simulated: any removal would have begun
		if now := s.belonging("prod", "jobs"); len(now) != len(machines) {
			t.Errorf("of %v there are %v", machines, now)
		}
		refused(t, ask("prod", "jobs", 4), codes.ResourceExhausted, "instances: at most 2 are allowed, there are 5, and with this 6")
		if err := ask("prod", "jobs", 1); err != nil {
			t.Errorf("fewer, above the limit: %v", err)
		}
	})
}

// TestCallsOfATenant: all operators of a tenant share its call rate; other tenants have their
// own.
func TestCallsOfATenant(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := bounded(t, `"calls_per_second": 2`, `"default": {}`)
		one, two := p.operator("prod"), p.operator("prod")
		list := func(c nstancev1.OperatorServiceClient) error {
			_, err := c.ListGroups(within(t), &nstancev1.ListGroupsRequest{})
			return err
		}
		done, last := 0, error(nil)
		for last == nil && done < 50 {
			if last = list(one); last == nil {
				done++
			}
			one, two = two, one
		}
		refused(t, last, codes.ResourceExhausted, `calls_per_second: at most 2 a second are allowed, and 20 at once`)
		if done < 20 || done > 25 {
			t.Errorf("%d calls at once went through, want 20", done)
		}
		stream, err := one.WatchGroups(within(t), &nstancev1.WatchGroupsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, codes.ResourceExhausted, "calls_per_second")
		if err := list(p.operator("default")); err != nil {
			t.Errorf("of tenant default: %v", err)
		}
		flood, pair := s.operator("prod") // can be removed, and can renew, all the same
		if _, err := p.renewOperator(pair, newKey(t)); err != nil {
			t.Errorf("renew: %v", err)
		}
		if _, err := remove(t, two, flood.ID); err != nil {
			t.Errorf("remove: %v", err)
		}
		time.Sleep(time.Second)
		if err := list(two); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// TestTenantThatIsNotDeclared: its operators get an error, not an empty result, that does not
// name other tenants.
func TestTenantThatIsNotDeclared(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := bounded(t, ``, `"prod": { "web": { "template": "knd", "size": 1 } }`)
		s.populate(p)
		typo := p.operator("prd")
		const words = `tenant "prd" is not declared in the config of this shard`
		_, err := typo.ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		refused(t, err, codes.FailedPrecondition, words)
		_, err = typo.ListInstances(within(t), &nstancev1.ListInstancesRequest{})
		refused(t, err, codes.FailedPrecondition, words)
		_, err = typo.ListOperators(within(t), &nstancev1.ListOperatorsRequest{})
		refused(t, err, codes.FailedPrecondition, words)
		_, err = typo.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web", Template: ptr("knd")})
		refused(t, err, codes.FailedPrecondition, words)
		stream, err := typo.WatchErrors(within(t), &nstancev1.WatchErrorsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, codes.FailedPrecondition, words)
		eventually(t, "a line of the audit for each", func() error {
			if n := p.log.count("refused a call"); n != 5 {
				return fmt.Errorf("%d calls were audited as refused", n)
			}
			return nil
		})

		id := newID(t, "opr")
		claims := operatorClaims(id)
		claims.Tenant = "prd"
		_, err = p.registration().RegisterOperator(within(t), &nstancev1.RegisterOperatorRequest{
			Nonce: mint(t, s.trust(), claims), PublicKey: publicPEM(t, newKey(t)),
		})
		refused(t, err, codes.FailedPrecondition, words)
		if keys := s.keys("cluster/operator/prd." + id.StorageKey()); len(keys) > 0 {
			t.Errorf("its nonce is spent: %v", keys)
		}

		// A tenant that is removed from the config is served until its machines are gone, and
		// its operators can still renew.
		p.awaitCalm("prod")
		_, pair := s.operator("prod")
		prod := p.as(pair)
		s.replace(`"default_drain_timeout": "0s"`, `"default_drain_timeout": "5s"`, `"tenants": { "prod": {} },`, ``,
			`"prod": { "web": { "template": "knd", "size": 1 } }`, ``)
		p.refreshes(updated, "prod/web")
		if _, err := prod.ListInstances(within(t), &nstancev1.ListInstancesRequest{}); err != nil {
			t.Errorf("while it has instances: %v", err)
		}
		eventually(t, "it has nothing", func() error {
			_, err := prod.ListInstances(within(t), &nstancev1.ListInstancesRequest{})
			if status.Code(err) != codes.FailedPrecondition {
				return fmt.Errorf("it answers %w", err)
			}
			return nil
		})
		if _, err := p.renewOperator(pair, newKey(t)); err != nil {
			t.Errorf("renew without a tenant: %v", err)
		}
	})
}
