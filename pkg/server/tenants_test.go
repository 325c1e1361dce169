package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// crossing is one tenant that names what is another's. Both have a group web, and
// each one that the other has not.
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

// tenantTable has a row for every method of the three services: what a tenant
// gets that names what is another's.
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
		"OperatorService/GetConfigStatus":    (*crossing).callForDefault,
		"OperatorService/RefreshConfig":      (*crossing).callForDefault,
		"OperatorService/ListGroups":         (*crossing).listGroups,
		"OperatorService/UpsertGroup":        (*crossing).upsertGroup,
		"OperatorService/DeleteGroup":        (*crossing).deleteGroup,
		"OperatorService/ListInstances":      (*crossing).listInstances,
		"OperatorService/CreateInstance":     (*crossing).createInstance,
		"OperatorService/DeleteInstance":     (*crossing).deleteInstance,
		"OperatorService/GetInstanceStatus":  (*crossing).instanceStatus,
		"OperatorService/AcknowledgeDrained": (*crossing).acknowledgeDrained,
		"OperatorService/WatchGroups":        (*crossing).watchesGroups,
		"OperatorService/WatchInstances":     (*crossing).watchesInstances,
		"OperatorService/WatchErrors":        (*crossing).watchesErrors,
	}
}

// TestTenantsNeverMeet makes every call of the protocol as each of two tenants,
// naming what is the other's: it answers like for what is not there, shows
// nothing of the other's, and changes nothing of it. A method without a row fails.
func TestTenantsNeverMeet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.config["GROUPS"] = `
		"default": { "web": { "template": "knd", "size": 2, "drain_timeout": "1h" }, "only-default": { "template": "knd", "size": 0 } },
		"prod": { "web": { "template": "knd", "size": 2, "drain_timeout": "1h" }, "only-prod": { "template": "knd", "size": 0 } }`
	s.putConfig(shardID)
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
			t.Run(name+" by "+a, func(t *testing.T) {
				c := &crossing{site: s, t: t, p: p, a: a, b: b, client: p.operator(a), drains: drains[b], key: keyOf(b), method: m}
				c.runs = c.running(b)
				before := c.everythingOf(b)
				row(c)
				if after := c.everythingOf(b); after != before {
					t.Errorf("what is %s's was\n%s\nand is\n%s", b, before, after)
				}
			})
		}
	}
	for name := range table {
		t.Errorf("the row %s is of no method", name)
	}
	s.checkKeys(tenants)
}

// settleTenant waits for a tenant's two instances and begins to drain one. It
// returns that one.
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
		_, err := client.CreateInstance(within(p.t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key})
		if err != nil && status.Code(err) != codes.Unimplemented {
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

// keyOf is the idempotency key of an on-demand instance of a tenant's.
func keyOf(tenant string) string { return "key-of-" + tenant }

// awaitCalm waits until nothing of a tenant is on its way up.
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

// everythingOf is all that a tenant is shown of what it has, but for the reports
// that go on coming.
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
		fmt.Fprintln(&b, g)
	}
	for _, i := range instances.GetInstances() {
		i.LastReportAt = nil
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// running is an instance of a tenant that runs.
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

// alike checks that what is another's answers exactly like what is not there.
func (c *crossing) alike(code codes.Code, other string, errOther error, absent string, errAbsent error) {
	c.t.Helper()
	if status.Code(errOther) == codes.Unimplemented && status.Code(errAbsent) == codes.Unimplemented {
		c.t.Skip("not served yet")
	}
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

func (c *crossing) registerAgent() {
	absent := newID(c.t, "knd")
	register := func(id fleet.InstanceID) error {
		claims := claimsOf(id)
		claims.Tenant = c.a
		_, err := c.p.registerWith(mint(c.t, c.trust(), claims), newKey(c.t))
		return err
	}
	for _, id := range []fleet.InstanceID{c.runs, c.drains} {
		a, b := id.StorageKey(), absent.StorageKey()
		errOther, errAbsent := register(id), register(absent)
		c.alike(codes.NotFound, string(id), unnamed(errOther, a), string(absent), unnamed(errAbsent, b))
	}
}

// unnamed takes an id's storage key out of an answer.
func unnamed(err error, key string) error {
	st := status.Convert(err)
	return status.Error(st.Code(), strings.ReplaceAll(st.Message(), key, "KEY"))
}

// registerOperator: the nonce alone says for which tenant, and the same jti in
// another tenant is another operator.
func (c *crossing) registerOperator() {
	id := newID(c.t, fleet.OperatorKind)
	for _, tenant := range []string{c.a, c.b} {
		claims := operatorClaims(id)
		claims.Tenant = tenant
		resp, err := c.p.registration().RegisterOperator(within(c.t), &nstancev1.RegisterOperatorRequest{
			Nonce: mint(c.t, c.trust(), claims), PublicKey: publicPEM(c.t, newKey(c.t)),
		})
		if err != nil {
			c.t.Fatal(err)
		}
		c.certificateOf(resp.GetIdentity(), tenant, id)
	}
	for _, tenant := range []string{c.a, c.b} {
		if keys := c.keys("cluster/operator/" + tenant + "." + id.StorageKey()); len(keys) != 1 {
			c.t.Errorf("the records of %s are %v", tenant, keys)
		}
	}
}

func (c *crossing) certificateOf(identity *nstancev1.Identity, tenant string, id fleet.InstanceID) {
	c.t.Helper()
	cert, err := pki.ParseCertificate([]byte(identity.GetCertificate()))
	if err != nil {
		c.t.Fatal(err)
	}
	caller, err := pki.ParseCaller(cert, clusterID)
	if err != nil || caller.Tenant != tenant || caller.ID != string(id) || caller.Role != pki.RoleOperator {
		c.t.Errorf("the certificate is of %+v, %v", caller, err)
	}
}

// renewCertificate: the new certificate is of the caller, whatever it asks.
func (c *crossing) renewCertificate() {
	id := newID(c.t, fleet.OperatorKind)
	pair := issue(c.t, c.trust().CA, pki.RoleOperator, c.a, id, time.Hour)
	client := nstancev1.NewOperatorServiceClient(c.dial(c.p.operatorAddr(), pair))
	resp, err := client.RenewCertificate(within(c.t), &nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicPEM(c.t, newKey(c.t))})
	switch {
	case status.Code(err) == codes.OK:
		c.certificateOf(resp.GetIdentity(), c.a, id)
	case resp != nil:
		c.t.Errorf("%v, %v", resp, err)
	}
}

// callAsAgent: a certificate of one tenant for an instance of another is one for
// no instance.
func (c *crossing) callAsAgent() {
	absent := newID(c.t, "knd")
	as := func(id fleet.InstanceID) error {
		return c.call(c.p, c.method, issue(c.t, c.trust().CA, pki.RoleAgent, c.a, id, time.Hour))
	}
	c.alike(codes.Unauthenticated, string(c.runs), as(c.runs), string(absent), as(absent))
}

// callForDefault: what shows the whole shard is for tenant default alone.
func (c *crossing) callForDefault() {
	pair := issue(c.t, c.trust().CA, pki.RoleOperator, c.a, newID(c.t, fleet.OperatorKind), time.Hour)
	err := c.call(c.p, c.method, pair)
	if want := map[bool]codes.Code{true: codes.OK, false: codes.PermissionDenied}[c.a == "default"]; status.Code(err) != want {
		c.t.Errorf("answered %v, want %s", err, want)
	}
}

// mine checks that a message speaks of the caller's own things alone.
func (c *crossing) mine(m proto.Message, tenant string) {
	c.t.Helper()
	text := fmt.Sprint(m)
	if tenant != c.a || strings.Contains(text, string(c.runs)) || strings.Contains(text, string(c.drains)) || strings.Contains(text, "only-"+c.b) {
		c.t.Errorf("%s is shown %s", c.a, text)
	}
}

func (c *crossing) listGroups() {
	resp, err := c.client.ListGroups(within(c.t), &nstancev1.ListGroupsRequest{})
	if err != nil || len(resp.GetGroups()) != 2 {
		c.t.Fatalf("%v, %v", resp, err)
	}
	theirs, err := c.p.operator(c.b).ListGroups(within(c.t), &nstancev1.ListGroupsRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, g := range resp.GetGroups() {
		c.mine(g, g.GetTenant())
		for _, other := range theirs.GetGroups() {
			for _, id := range g.GetProviderIds() {
				if slices.Contains(other.GetProviderIds(), id) {
					c.t.Errorf("both have %s", id)
				}
			}
			if g.GetEtag() == other.GetEtag() {
				c.t.Errorf("the etag of %s is that of the other tenant's %s", g.GetKey(), other.GetKey())
			}
		}
	}
}

func (c *crossing) upsertGroup() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: key, Size: ptr(int32(1))})
		return err
	})
	c.instancesAlike(func(ctx context.Context, id string) error {
		_, err := c.client.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(0)), Remove: []string{id}})
		return err
	})
	// A change of the group of the same name.
	if _, err := c.client.UpsertGroup(within(c.t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2))}); err != nil {
		c.t.Error(err)
	}
	c.p.awaitCalm(c.a)
}

func (c *crossing) deleteGroup() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: key})
		return err
	})
}

func (c *crossing) listInstances() {
	for _, group := range []string{"", "web"} {
		resp, err := c.client.ListInstances(within(c.t), &nstancev1.ListInstancesRequest{Group: group, IncludeDeleted: true})
		if err != nil || len(resp.GetInstances()) == 0 {
			c.t.Errorf("%v, %v", resp, err)
		}
		for _, i := range resp.GetInstances() {
			c.mine(i, i.GetTenant())
		}
	}
	for _, group := range []string{"only-" + c.b, "nosuch"} {
		if resp, err := c.client.ListInstances(within(c.t), &nstancev1.ListInstancesRequest{Group: group}); err != nil || len(resp.GetInstances()) > 0 {
			c.t.Errorf("of group %s: %v, %v", group, resp, err)
		}
	}
}

func (c *crossing) createInstance() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: key})
		return err
	})
	// The other's key is any key: it names another instance here.
	resp, err := c.client.CreateInstance(within(c.t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: c.key})
	if err != nil {
		c.t.Error(err)
	}
	c.mine(resp, resp.GetInstance().GetTenant())
	c.p.awaitCalm(c.a)
	if _, err := c.p.operator(c.b).GetInstanceStatus(within(c.t), &nstancev1.GetInstanceStatusRequest{Id: resp.GetInstance().GetId()}); status.Code(err) != codes.NotFound {
		c.t.Errorf("%s is shown what %s made with its key: %v", c.b, c.a, err)
	}
}

func (c *crossing) deleteInstance() {
	c.instancesAlike(func(ctx context.Context, id string) error {
		_, err := c.client.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: id}})
		return err
	})
	byKey := func(key string) error {
		_, err := c.client.DeleteInstance(within(c.t), &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}})
		return err
	}
	only := keyOf("only-" + c.b)
	c.alike(codes.NotFound, only, byKey(only), "nosuch", byKey("nosuch"))
}

func (c *crossing) instanceStatus() {
	c.instancesAlike(func(ctx context.Context, id string) error {
		_, err := c.client.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: id})
		return err
	})
}

func (c *crossing) acknowledgeDrained() {
	c.instancesAlike(func(ctx context.Context, id string) error {
		_, err := c.client.AcknowledgeDrained(ctx, &nstancev1.AcknowledgeDrainedRequest{Id: id})
		return err
	})
}

// watchesGroups: the snapshot and what follows are the caller's alone. A change
// of the other's comes before one of the caller's, so it would have been told.
func (c *crossing) watchesGroups() {
	w := c.p.watchGroups(c.a)
	_, events := w.next("the snapshot's end", endOfGroups)
	c.bump(c.b)
	want := c.bump(c.a)
	last, more := w.next("the caller's own change", func(m *nstancev1.WatchGroupsResponse) bool { return m.GetGroup().GetEtag() == want })
	for _, m := range append(append(events, more...), last) {
		c.mine(m, m.GetGroup().GetTenant())
	}
}

// bump changes a group of a tenant and changes it back. It returns the etag in
// between.
func (c *crossing) bump(tenant string) string {
	c.t.Helper()
	client, etag := c.p.operator(tenant), ""
	for _, kind := range []string{"other", ""} {
		resp, err := client.UpsertGroup(within(c.t), &nstancev1.UpsertGroupRequest{Key: "only-" + tenant, InstanceType: &kind})
		if err != nil {
			c.t.Fatal(err)
		}
		if kind != "" {
			etag = resp.GetGroup().GetEtag()
			time.Sleep(300 * time.Millisecond) // states in between may be left out
		}
	}
	return etag
}

func (c *crossing) watchesInstances() {
	_, events := c.p.watchInstances(c.a).next("the snapshot's end", endOfInstances)
	if len(events) == 0 {
		c.t.Error("the caller's own instance drains, and is not shown")
	}
	for _, m := range events {
		c.mine(m, m.GetInstance().GetTenant())
	}
}

// watchesErrors is about what TestWatchErrors brings about; here nothing is wrong.
func (c *crossing) watchesErrors() {
	for _, m := range c.p.watchErrors(c.a).quiet() {
		c.t.Errorf("told %v", m)
	}
}

// checkKeys: the key of every object of a tenant carries its name.
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
