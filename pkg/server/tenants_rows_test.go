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

// renewCertificate: the new certificate is of the caller, who has no way to name
// another.
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
	_, pair := c.operator(c.a)
	want := map[bool]codes.Code{true: codes.OK, false: codes.PermissionDenied}[c.a == "default"]
	if err := c.call(c.p, c.method, pair); status.Code(err) != want {
		c.t.Errorf("answered %v, want %s", err, want)
	}
}

// mine checks that a message speaks of the caller's own things alone.
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
	// The other's instance is like one that never was: gone.
	for _, id := range []string{string(c.runs), string(c.drains), string(newID(c.t, "knd"))} {
		resp, err := c.client.UpsertGroup(within(c.t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(1)), Remove: []string{id}})
		if err != nil || !slices.Equal(resp.GetAlreadyGone(), []string{id}) {
			c.t.Errorf("removing %s: %v, %v", id, resp, err)
		}
	}
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

func (c *crossing) resetGroup() {
	c.groupsAlike(func(ctx context.Context, key string) error {
		_, err := c.client.ResetGroup(ctx, &nstancev1.ResetGroupRequest{Key: key})
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
	// After an id of the other's, which may be given like any other.
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
	// The other's key is any key: it names another instance here.
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
// of the other's has been told to the other by then.
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
	for _, token := range []string{end.GetResumeToken(), theirs.GetResumeToken()} { // the other's place is any place
		_, since := c.p.watchAll(c.a, token).next("the snapshot's end", endOfInstances)
		all = append(all, since...)
	}
	for _, m := range append(events, all...) {
		c.mine(m, m.GetInstance().GetTenant())
	}
}

// watchesErrors is about what TestWatchErrors brings about; here nothing is wrong.
func (c *crossing) watchesErrors() {
	for _, m := range c.p.watchErrors(c.a).quiet() {
		c.t.Errorf("told %v", m)
	}
}

// listOperators: page by page, the caller's own alone.
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

// removeOperator: the other's operator answers like none, and has its power still.
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
