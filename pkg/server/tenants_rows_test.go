package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

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

// unnamed removes an ID's storage key from an error.
func unnamed(err error, key string) error {
	st := status.Convert(err)
	return status.Error(st.Code(), strings.ReplaceAll(st.Message(), key, "KEY"))
}

// registerOperator: only the nonce determines the tenant, and the same jti in another tenant is
// another operator.
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

// renewCertificate: the new certificate is the caller's, which can't name another.
func (c *crossing) renewCertificate() {
	id, key := newID(c.t, fleet.OperatorKind), newKey(c.t)
	claims := operatorClaims(id)
	claims.Tenant = c.a
	registered, err := c.p.registration().RegisterOperator(within(c.t), &nstancev1.RegisterOperatorRequest{
		Nonce: mint(c.t, c.trust(), claims), PublicKey: publicPEM(c.t, key),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := pki.ParseCertificate([]byte(registered.GetIdentity().GetCertificate()))
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		c.t.Fatal(err)
	}
	client := nstancev1.NewOperatorServiceClient(c.dial(c.p.operatorAddr(), pair))
	resp, err := client.RenewCertificate(within(c.t),
		&nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicPEM(c.t, newKey(c.t))})
	if err != nil {
		c.t.Fatal(err)
	}
	c.certificateOf(resp.GetIdentity(), c.a, id)
}

// callAsAgent: a certificate of one tenant for an instance of another identifies no instance.
func (c *crossing) callAsAgent() {
	absent := newID(c.t, "knd")
	as := func(id fleet.InstanceID) error {
		return c.call(c.p, c.method, issue(c.t, c.trust().CA, pki.RoleAgent, c.a, id, time.Hour))
	}
	c.alike(codes.Unauthenticated, string(c.runs), as(c.runs), string(absent), as(absent))
}

// callForDefault: results about the whole shard are for tenant default alone.
func (c *crossing) callForDefault() {
	_, pair := c.operator(c.a)
	want := map[bool]codes.Code{true: codes.OK, false: codes.PermissionDenied}[c.a == "default"]
	if err := c.call(c.p, c.method, pair); status.Code(err) != want {
		c.t.Errorf("answered %v, want %s", err, want)
	}
}

// shardStatus: one server leads for all tenants.
func (c *crossing) shardStatus() {
	resp, err := c.client.GetShardStatus(within(c.t), &nstancev1.GetShardStatusRequest{})
	if err != nil || resp.GetLeader() == "" || resp.GetEpoch() == 0 {
		c.t.Errorf("%v, %v", resp, err)
	}
}

// mine checks that a message is only about the caller's own objects.
func (c *crossing) mine(m proto.Message, tenant string) {
	c.t.Helper()
	text := fmt.Sprint(m)
	if tenant != c.a || strings.Contains(text, string(c.runs)) || strings.Contains(text, string(c.drains)) ||
		strings.Contains(text, "only-"+c.b) {
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
			for _, i := range g.GetInstances() {
				if slices.ContainsFunc(other.GetInstances(), func(o *nstancev1.GroupInstance) bool { return o.GetProviderId() == i.GetProviderId() }) {
					c.t.Errorf("both have %s", i.GetProviderId())
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
	// The other tenant's instance is like an unknown one: gone.
	for _, id := range []string{string(c.runs), string(c.drains), string(newID(c.t, "knd"))} {
		resp, err := c.client.UpsertGroup(within(c.t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{id}})
		if err != nil || !slices.Equal(resp.GetAlreadyGone(), []string{id}) {
			c.t.Errorf("removing %s: %v, %v", id, resp, err)
		}
	}
	// Changing the group of the same name.
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

func (c *crossing) resetGroup() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.ResetGroup(ctx, &nstancev1.ResetGroupRequest{Key: key})
		return err
	})
}

func (c *crossing) abortRollout() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.AbortRollout(ctx, &nstancev1.AbortRolloutRequest{Key: key})
		return err
	})
}

func (c *crossing) retryRollout() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.RetryRollout(ctx, &nstancev1.RetryRolloutRequest{Key: key})
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
	// After one of the other's IDs, which is accepted like any other.
	for token := string(c.runs); token != ""; {
		resp, err := c.client.ListInstances(within(c.t), &nstancev1.ListInstancesRequest{PageSize: 1, PageToken: token, IncludeDeleted: true})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, i := range resp.GetInstances() {
			c.mine(i, i.GetTenant())
		}
		token = resp.GetNextPageToken()
	}
	for _, group := range []string{"only-" + c.b, "nosuch"} {
		if resp, err := c.client.ListInstances(within(c.t), &nstancev1.ListInstancesRequest{Group: group}); err != nil ||
			len(resp.GetInstances()) > 0 {
			c.t.Errorf("of group %s: %v, %v", group, resp, err)
		}
	}
}

func (c *crossing) createInstance() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: key})
		return err
	})
	// The other's key is an unused key: it names another instance here.
	resp, err := c.client.CreateInstance(within(c.t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: c.key})
	if err != nil {
		c.t.Error(err)
	}
	c.mine(resp, resp.GetInstance().GetTenant())
	c.p.awaitCalm(c.a)
	if _, err := c.p.operator(c.b).GetInstanceStatus(within(c.t),
		&nstancev1.GetInstanceStatusRequest{Id: resp.GetInstance().GetId()}); status.Code(err) != codes.NotFound {
		c.t.Errorf("%s is shown what %s made with its key: %v", c.b, c.a, err)
	}
}

func (c *crossing) deleteInstance() {
	c.instancesAlike(func(ctx context.Context, id string) error {
		_, err := c.client.DeleteInstance(ctx, &nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_Id{Id: id}})
		return err
	})
	byKey := func(key string) error {
		_, err := c.client.DeleteInstance(within(c.t),
			&nstancev1.DeleteInstanceRequest{Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: key}})
		return err
	}
	only := keyOf("only-" + c.b)
	c.alike(codes.NotFound, only, byKey(only), "nosuch", byKey("nosuch"))
}

func (c *crossing) getGroup() {
	only := "only-" + c.b
	_, err := c.client.GetGroup(within(c.t), &nstancev1.GetGroupRequest{Key: only})
	_, ghostly := c.client.GetGroup(within(c.t), &nstancev1.GetGroupRequest{Key: ghost})
	c.alike(codes.NotFound, only, err, ghost, ghostly)
	mine, err := c.client.GetGroup(within(c.t), &nstancev1.GetGroupRequest{Key: "only-" + c.a})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mine(mine, mine.GetGroup().GetTenant())
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

// watchesGroups: the snapshot and later events are only the caller's. A change of the other's
// has been delivered to the other by then.
func (c *crossing) watchesGroups() {
	streams := map[string]*watched[nstancev1.WatchGroupsResponse]{c.a: c.p.watchGroups(c.a), c.b: c.p.watchGroups(c.b)}
	_, events := streams[c.a].next("the snapshot's end", endOfGroups)
	streams[c.b].next("the snapshot's end", endOfGroups)
	for _, kind := range []string{"other", ""} { // and back again
		for _, tenant := range []string{c.b, c.a} {
			resp, err := c.p.operator(tenant).UpsertGroup(within(c.t), &nstancev1.UpsertGroupRequest{Key: "only-" + tenant, InstanceType: &kind})
			if err != nil {
				c.t.Fatal(err)
			}
			last, before := streams[tenant].next("the change", func(m *nstancev1.WatchGroupsResponse) bool {
				return m.GetGroup().GetEtag() == resp.GetGroup().GetEtag()
			})
			if tenant == c.a {
				events = append(append(events, before...), last)
			}
		}
	}
	for _, m := range events {
		c.mine(m, m.GetGroup().GetTenant())
	}
}

func (c *crossing) watchesInstances() {
	_, events := c.p.watchInstances(c.a).next("the snapshot's end", endOfInstances)
	if len(events) == 0 {
		c.t.Error("the caller's own instance drains, and is not shown")
	}
	end, all := c.p.watchAll(c.a, "").next("the snapshot's end", endOfInstances)
	if len(all) < 2 {
		c.t.Errorf("of all the caller's own there is %v", all)
	}
	theirs, _ := c.p.watchAll(c.b, "").next("the snapshot's end", endOfInstances)
	for _, token := range []string{end.GetResumeToken(), theirs.GetResumeToken()} { // the other's token is like any other
		_, since := c.p.watchAll(c.a, token).next("the snapshot's end", endOfInstances)
		all = append(all, since...)
	}
	for _, m := range append(events, all...) {
		c.mine(m, m.GetInstance().GetTenant())
	}
}

// watchesErrors is covered by TestWatchErrors; there are no problems here.
func (c *crossing) watchesErrors() {
	for _, m := range c.p.watchErrors(c.a).quiet() {
		c.t.Errorf("told %v", m)
	}
}

// listEvents: only the caller's own and, for tenant default, those of the shard; also if it names
// what is the other's.
func (c *crossing) listEvents() {
	for _, req := range []*nstancev1.ListEventsRequest{
		{}, {Group: "web"}, {Group: "only-" + c.b}, {InstanceId: string(c.drains)}, {InstanceId: string(c.runs)},
	} {
		resp, err := c.client.ListEvents(within(c.t), req)
		if err != nil || req.GetGroup() == "" && req.GetInstanceId() == "" && len(resp.GetEvents()) < 3 {
			c.t.Fatalf("%v, %v", resp, err)
		}
		for _, e := range resp.GetEvents() {
			c.myEvent(e)
		}
	}
}

func (c *crossing) watchesEvents() {
	for _, id := range []fleet.InstanceID{"", c.drains} {
		for _, m := range c.p.watchEvents(c.a, &nstancev1.WatchEventsRequest{InstanceId: string(id)}).quiet() {
			if m.GetEvent() != nil {
				c.myEvent(m.GetEvent())
			}
		}
	}
}

// myEvent checks that an event is the caller's, or of the shard if that is tenant default. The
// caller's own changes have the names that it gave.
func (c *crossing) myEvent(e *nstancev1.Event) {
	c.t.Helper()
	tenant := e.GetTenant()
	if tenant == "" && c.a == fleet.DefaultTenant {
		tenant = c.a
	}
	if e.GetKind() == "change" && tenant == c.a {
		return
	}
	c.mine(e, tenant)
}

// listOperators: page by page, only the caller's own.
func (c *crossing) listOperators() {
	own, _ := c.operator(c.a)
	other, _ := c.operator(c.b)
	found := map[string]bool{}
	for token := ""; ; {
		resp, err := c.client.ListOperators(within(c.t), &nstancev1.ListOperatorsRequest{PageSize: 3, PageToken: token, IncludeRemoved: true})
		if err != nil || len(resp.GetOperators()) > 3 {
			c.t.Fatalf("%v, %v", resp, err)
		}
		for _, o := range resp.GetOperators() {
			c.mine(o, o.GetTenant())
			found[o.GetId()] = true
		}
		if token = resp.GetNextPageToken(); token == "" {
			break
		}
	}
	if !found[string(own.ID)] || found[string(other.ID)] {
		c.t.Errorf("%s's own is found: %t, %s's: %t", c.a, found[string(own.ID)], c.b, found[string(other.ID)])
	}
}

// removeOperator: the other's operator is not found, and keeps its access.
func (c *crossing) removeOperator() {
	other, pair := c.operator(c.b)
	absent := newID(c.t, fleet.OperatorKind)
	remove := func(id fleet.InstanceID) error {
		_, err := c.client.RemoveOperator(within(c.t), &nstancev1.RemoveOperatorRequest{Id: string(id)})
		return err
	}
	c.alike(codes.NotFound, string(other.ID), remove(other.ID), string(absent), remove(absent))
	if _, err := c.p.as(pair).ListGroups(within(c.t), &nstancev1.ListGroupsRequest{}); err != nil {
		c.t.Errorf("%s's operator is answered %v", c.b, err)
	}
}
