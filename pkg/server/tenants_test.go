package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// crossing is one tenant that names another one's objects. Both have a group web, and each one
// that the other does not have.
type crossing struct {
	*site
	t      *testing.T
	p      *process
	a, b   string
	client nstancev1.OperatorServiceClient // of a
	runs   fleet.InstanceID                // of b
	drains fleet.InstanceID                // of b
	key    string                          // of an on-demand instance of b
	method protoreflect.MethodDescriptor
}

// tenantTable has a row for every method of the three services: what a tenant gets when it names
// another one's objects.
func tenantTable() map[string]func(*crossing) {
	return map[string]func(*crossing){
		"RegistrationService/RegisterAgent":    (*crossing).registerAgent,
		"RegistrationService/RegisterOperator": (*crossing).registerOperator,

		"AgentService/KeyGenRequests":   (*crossing).callAsAgent,
		"AgentService/SubmitPublicKeys": (*crossing).callAsAgent,
		"AgentService/ReceiveFiles":     (*crossing).callAsAgent,
		"AgentService/ReportHealth":     (*crossing).callAsAgent,
		"AgentService/RenewCertificate": (*crossing).callAsAgent,

		"OperatorService/RenewCertificate":   (*crossing).renewCertificate,
		"OperatorService/GetShardStatus":     (*crossing).shardStatus,
		"OperatorService/GetConfigStatus":    (*crossing).callForDefault,
		"OperatorService/RefreshConfig":      (*crossing).callForDefault,
		"OperatorService/PreviewConfig":      (*crossing).callForDefault,
		"OperatorService/ListGroups":         (*crossing).listGroups,
		"OperatorService/GetGroup":           (*crossing).getGroup,
		"OperatorService/UpsertGroup":        (*crossing).upsertGroup,
		"OperatorService/DeleteGroup":        (*crossing).deleteGroup,
		"OperatorService/ResetGroup":         (*crossing).resetGroup,
		"OperatorService/AbortRollout":       (*crossing).abortRollout,
		"OperatorService/RetryRollout":       (*crossing).retryRollout,
		"OperatorService/ListInstances":      (*crossing).listInstances,
		"OperatorService/CreateInstance":     (*crossing).createInstance,
		"OperatorService/DeleteInstance":     (*crossing).deleteInstance,
		"OperatorService/GetInstanceStatus":  (*crossing).instanceStatus,
		"OperatorService/AcknowledgeDrained": (*crossing).acknowledgeDrained,
		"OperatorService/WatchGroups":        (*crossing).watchesGroups,
		"OperatorService/WatchInstances":     (*crossing).watchesInstances,
		"OperatorService/WatchErrors":        (*crossing).watchesErrors,
		"OperatorService/ListEvents":         (*crossing).listEvents,
		"OperatorService/WatchEvents":        (*crossing).watchesEvents,
		"OperatorService/ListOperators":      (*crossing).listOperators,
		"OperatorService/RemoveOperator":     (*crossing).removeOperator,
	}
}

// TestTenantsNeverMeet makes every call as each of two tenants, naming the other's objects: the
// result equals that for absent objects, reveals nothing of the other, and changes nothing. A
// method without a row fails.
func TestTenantsNeverMeet(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t, with("GROUPS", `
		"default": { "web": { "template": "knd", "size": 2, "drain_timeout": "1h" }, "only-default": { "template": "knd", "size": 0 } },
		"prod": { "web": { "template": "knd", "size": 2, "drain_timeout": "1h" }, "only-prod": { "template": "knd", "size": 0 } }`))
		p := s.start()
		s.populate(p)
		tenants := []string{"default", "prod"}
		drains := map[string]fleet.InstanceID{}
		for _, tenant := range tenants {
			drains[tenant] = p.settleTenant(tenant)
		}
		table := tenantTable()
		for _, m := range methods() {
			name := string(m.Parent().Name()) + "/" + string(m.Name())
			row, ok := table[name]
			if !ok {
				t.Errorf("no row says what %s does for one tenant that names what is another's", name)
				continue
			}
			delete(table, name)
			for n, a := range tenants {
				b := tenants[1-n]
				c := &crossing{site: s, t: t, p: p, a: a, b: b, client: p.operator(a), drains: drains[b], key: keyOf(b), method: m}
				c.runs = c.running(b)
				before := c.everythingOf(b)
				t.Log(name, "by", a)
				row(c)
				if after := c.everythingOf(b); after != before {
					t.Errorf("what is %s's was\n%s\nand is\n%s", b, before, after)
				}
			}
		}
		for name := range table {
			t.Errorf("the row %s is of no method", name)
		}
		s.checkKeys(tenants)
	})
}

// settleTenant waits for a tenant's two instances, drains one, and returns it.
func (p *process) settleTenant(tenant string) fleet.InstanceID {
	p.t.Helper()
	client := p.operator(tenant)
	var ids []string
	eventually(p.t, tenant+"'s instances run", func() error {
		resp, err := client.ListInstances(within(p.t), &nstancev1.ListInstancesRequest{})
		ids = nil
		for _, i := range resp.GetInstances() {
			if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING && i.GetLastReportAt() != nil {
				ids = append(ids, i.GetId())
			}
		}
		if err != nil || len(ids) != 2 {
			return fmt.Errorf("%v run, %w", ids, err)
		}
		return nil
	})
	if _, err := client.UpsertGroup(within(p.t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: ids[:1]}); err != nil {
		p.t.Fatal(err)
	}
	for _, key := range []string{keyOf(tenant), keyOf("only-" + tenant)} {
		if _, err := client.CreateInstance(within(p.t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key}); err != nil {
			p.t.Fatal(err)
		}
	}
	eventually(p.t, "one drains", func() error {
		resp, err := client.GetInstanceStatus(within(p.t), &nstancev1.GetInstanceStatusRequest{Id: ids[0]})
		if resp.GetInstance().GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING {
			return fmt.Errorf("%v, %w", resp, err)
		}
		return nil
	})
	p.awaitCalm(tenant)
	return fleet.InstanceID(ids[0])
}

// keyOf returns the idempotency key of a tenant's on-demand instance.
func keyOf(tenant string) string { return "key-of-" + tenant }

// awaitCalm waits until no instance of a tenant is pending.
func (p *process) awaitCalm(tenant string) {
	p.t.Helper()
	client := p.operator(tenant)
	eventually(p.t, tenant+" is calm", func() error {
		groups, err := client.ListGroups(within(p.t), &nstancev1.ListGroupsRequest{})
		if err != nil {
			return err
		}
		for _, g := range groups.GetGroups() {
			if g.GetActualSize() != g.GetSize() || g.GetPendingSize() > 0 {
				return fmt.Errorf("group %v", g)
			}
		}
		instances, err := client.ListInstances(within(p.t), &nstancev1.ListInstancesRequest{})
		for _, i := range instances.GetInstances() {
			if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_PENDING || i.GetLastReportAt() == nil {
				return fmt.Errorf("instance %v", i)
			}
		}
		return err
	})
}

// everythingOf returns all that a tenant sees of its objects, without health reports.
func (c *crossing) everythingOf(tenant string) string {
	c.t.Helper()
	client := c.p.operator(tenant)
	groups, err := client.ListGroups(within(c.t), &nstancev1.ListGroupsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	instances, err := client.ListInstances(within(c.t), &nstancev1.ListInstancesRequest{IncludeDeleted: true})
	if err != nil {
		c.t.Fatal(err)
	}
	var b strings.Builder
	for _, g := range groups.GetGroups() {
		if g.GetKey() == "only-"+tenant {
			g.Etag = "" // the tenant itself changes it, and back
		}
		fmt.Fprintln(&b, g)
	}
	for _, i := range instances.GetInstances() {
		i.LastReportAt = nil
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// running returns a running instance of a tenant.
func (c *crossing) running(tenant string) fleet.InstanceID {
	c.t.Helper()
	resp, err := c.p.operator(tenant).ListInstances(within(c.t), &nstancev1.ListInstancesRequest{Group: "web"})
	for _, i := range resp.GetInstances() {
		if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			return fleet.InstanceID(i.GetId())
		}
	}
	c.t.Fatalf("%s has none: %v, %v", tenant, resp, err)
	return ""
}

// alike checks that another tenant's object gets the same result as an absent one.
func (c *crossing) alike(code codes.Code, other string, errOther error, absent string, errAbsent error) {
	c.t.Helper()
	have := strings.ReplaceAll(status.Convert(errOther).Message(), other, "X")
	want := strings.ReplaceAll(status.Convert(errAbsent).Message(), absent, "X")
	if status.Code(errOther) != code || status.Code(errAbsent) != code || have != want {
		c.t.Errorf("what is %s's answers %v, what is not there %v; want %s, and the same text", c.b, errOther, errAbsent, code)
	}
	if strings.Contains(have, c.b) {
		c.t.Errorf("it answers %q, which names %s", have, c.b)
	}
}

// instancesAlike checks a call for an instance.
func (c *crossing) instancesAlike(call func(context.Context, string) error) {
	c.t.Helper()
	for _, id := range []fleet.InstanceID{c.runs, c.drains} {
		absent := string(newID(c.t, "knd"))
		c.alike(codes.NotFound, string(id), call(within(c.t), string(id)), absent, call(within(c.t), absent))
	}
}

// groupsAlike checks a call for a group.
func (c *crossing) groupsAlike(call func(context.Context, string) error) {
	c.t.Helper()
	only := "only-" + c.b
	c.alike(codes.NotFound, only, call(within(c.t), only), "nosuch", call(within(c.t), "nosuch"))
}

// checkKeys checks that the key of every object of a tenant has its name.
func (s *site) checkKeys(tenants []string) {
	for _, prefix := range []string{"instance/" + shardID + "/", "request/" + shardID + "/", "certlog/" + shardID + "/", "cluster/operator/"} {
		for _, key := range s.keys(prefix) {
			if !slices.ContainsFunc(tenants, func(tenant string) bool { return strings.HasPrefix(key, prefix+tenant+".") }) {
				s.t.Errorf("the key %s names no tenant", key)
			}
		}
	}
	if len(s.keys("instance/"+shardID+"/prod.")) == 0 || len(s.keys("instance/"+shardID+"/default.")) == 0 {
		s.t.Error(errors.New("no instances are recorded"))
	}
}
