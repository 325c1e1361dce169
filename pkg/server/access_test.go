package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// callers are all kinds of callers, by their credentials.
type callers struct {
	none, otherCA, agent, operator, server, expired, otherCluster, deleted, otherTenant, removed, unrecorded, undeclared *pki.Keypair
}

// answers is the expected code of one method for each caller. UNAVAILABLE means that the
// handshake fails; OK includes a stream that stays open.
type answers struct {
	none, otherCA, agent, operator, server, expired, otherCluster, deleted, otherTenant, removed, unrecorded, undeclared codes.Code
}

const noTLS = codes.Unavailable // the handshake fails

// The expected codes of the three services for each kind of caller. The request is empty, so a
// permitted call may still get INVALID_ARGUMENT.
var (
	// forAnyone is a service without client certificates: a certificate is never requested.
	forAnyone = func(c codes.Code) answers { return answers{c, c, c, c, c, c, c, c, c, c, c, c} }
	forAgents = func(c codes.Code) answers {
		return answers{
			none: noTLS, otherCA: noTLS, agent: c, operator: codes.PermissionDenied, server: codes.PermissionDenied,
			expired: noTLS, otherCluster: noTLS, deleted: codes.Unauthenticated,
			otherTenant: codes.Unauthenticated, // an agent's certificate for the same instance, of another tenant
			removed:     codes.PermissionDenied, unrecorded: codes.PermissionDenied, undeclared: codes.PermissionDenied,
		}
	}
	forOperators = func(c, otherTenant codes.Code) answers {
		return answers{
			none: noTLS, otherCA: noTLS, agent: codes.PermissionDenied, operator: c, server: codes.PermissionDenied,
			expired: noTLS, otherCluster: noTLS, deleted: codes.PermissionDenied, otherTenant: otherTenant,
			removed: codes.Unauthenticated, unrecorded: codes.Unauthenticated, undeclared: codes.FailedPrecondition,
		}
	}
	// forUndeclaredToo is a method that operators may still call after the config no longer
	// declares their tenant.
	forUndeclaredToo = func(a answers) answers {
		a.undeclared = a.operator
		return a
	}
)

// accessTable has a row for every method of the three services.
func accessTable() map[string]answers {
	bad := codes.InvalidArgument
	return map[string]answers{
		"RegistrationService/RegisterAgent":    forAnyone(codes.PermissionDenied), // an empty nonce
		"RegistrationService/RegisterOperator": forAnyone(codes.PermissionDenied),

		"AgentService/KeyGenRequests":   forAgents(codes.OK),
		"AgentService/SubmitPublicKeys": forAgents(codes.FailedPrecondition), // no stream asked for keys
		"AgentService/ReceiveFiles":     forAgents(codes.OK),
		"AgentService/ReportHealth":     forAgents(codes.OK),
		"AgentService/RenewCertificate": forAgents(bad),

		"OperatorService/RenewCertificate":   forUndeclaredToo(forOperators(bad, bad)),
		"OperatorService/GetShardStatus":     forOperators(codes.OK, codes.OK),
		"OperatorService/GetConfigStatus":    forOperators(codes.OK, codes.PermissionDenied),
		"OperatorService/RefreshConfig":      forOperators(codes.OK, codes.PermissionDenied),
		"OperatorService/PreviewConfig":      forOperators(codes.OK, codes.PermissionDenied),
		"OperatorService/ListGroups":         forOperators(codes.OK, codes.OK),
		"OperatorService/GetGroup":           forOperators(bad, bad),
		"OperatorService/UpsertGroup":        forOperators(bad, bad),
		"OperatorService/DeleteGroup":        forOperators(bad, bad),
		"OperatorService/ResetGroup":         forOperators(bad, bad),
		"OperatorService/AbortRollout":       forOperators(bad, bad),
		"OperatorService/RetryRollout":       forOperators(bad, bad),
		"OperatorService/ListInstances":      forOperators(codes.OK, codes.OK),
		"OperatorService/CreateInstance":     forOperators(bad, bad),
		"OperatorService/DeleteInstance":     forOperators(bad, bad),
		"OperatorService/GetInstanceStatus":  forOperators(bad, bad),
		"OperatorService/AcknowledgeDrained": forOperators(bad, bad),
		"OperatorService/WatchGroups":        forOperators(codes.OK, codes.OK),
		"OperatorService/WatchInstances":     forOperators(codes.OK, codes.OK),
		"OperatorService/WatchErrors":        forOperators(codes.OK, codes.OK),
		"OperatorService/ListEvents":         forOperators(codes.OK, codes.OK),
		"OperatorService/WatchEvents":        forOperators(codes.OK, codes.OK),
		"OperatorService/ListOperators":      forOperators(codes.OK, codes.OK),
		"OperatorService/RemoveOperator":     forUndeclaredToo(forOperators(bad, bad)),
	}
}

// methods are all methods of the three services, as the protocol declares them.
func methods() (all []protoreflect.MethodDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{
		nstancev1.File_nstance_v1_registration_proto, nstancev1.File_nstance_v1_agent_proto, nstancev1.File_nstance_v1_operator_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				all = append(all, service.Methods().Get(j))
			}
		}
	}
	return all
}

// TestAccess calls every method as each kind of caller, over the server's own listeners, and
// fails for a method that has no row.
func TestAccess(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		who := s.callers(p)
		table := accessTable()
		for _, m := range methods() {
			name := string(m.Parent().Name()) + "/" + string(m.Name())
			want, ok := table[name]
			if !ok {
				t.Errorf("no row says what %s answers to whom", name)
				continue
			}
			delete(table, name)
			other := who.otherTenant
			if m.Parent().Name() == "AgentService" {
				other = issue(t, s.trust().CA, pki.RoleAgent, "prod", s.living()[1], time.Hour)
			}
			for _, c := range []struct {
				who  string
				pair *pki.Keypair
				want codes.Code
			}{
				{"no certificate", who.none, want.none},
				{"a certificate of another CA", who.otherCA, want.otherCA},
				{"an agent", who.agent, want.agent},
				{"an operator", who.operator, want.operator},
				{"a server", who.server, want.server},
				{"an expired certificate", who.expired, want.expired},
				{"another cluster's certificate", who.otherCluster, want.otherCluster},
				{"the agent of a deleted instance", who.deleted, want.deleted},
				{"another tenant", other, want.otherTenant},
				{"an operator that was removed", who.removed, want.removed},
				{"an operator without a record", who.unrecorded, want.unrecorded},
				{"an operator of a tenant that the config does not declare", who.undeclared, want.undeclared},
			} {
				if got := s.call(p, m, c.pair); status.Code(got) != c.want {
					t.Errorf("%s, called with %s, answers %v, want %s", name, c.who, got, c.want)
				}
			}
		}
		for name := range table {
			t.Errorf("the row %s is of no method", name)
		}
	})
}

// callers creates one of each kind. The agent's instance lives; another one has been deleted.
func (s *site) callers(p *process) callers {
	t := s.t
	trust := s.trust()
	ids := s.living()
	deleted := s.agents.of(ids[0])
	s.world.Kill(ids[0])
	deleted.conn.Close()
	p.awaitPhase(ids[0], nstancev1.InstancePhase_INSTANCE_PHASE_DELETED)
	p.awaitSize("web", 2)

	own := trust.CA
	stale, err := pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: newKey(t), Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := pki.NewCA(pki.CAConfig{Cluster: "other", Key: newKey(t), Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := s.operator("default")
	id := o.ID
	s.putOperator(fleet.Operator{ID: id, Tenant: "prod"})
	s.putOperator(fleet.Operator{ID: id, Tenant: "ghost"})
	gone, removed := s.operator("default")
	s.putOperator(gone.Remove(id, time.Now()))
	return callers{
		otherCA:  issue(t, stale, pki.RoleOperator, "default", id, time.Hour),
		agent:    issue(t, own, pki.RoleAgent, "default", s.living()[0], time.Hour),
		operator: issue(t, own, pki.RoleOperator, "default", id, time.Hour),
		server:   s.serverOf(shardID), expired: s.expired(id), otherCluster: issue(t, foreign, pki.RoleOperator, "default", id, time.Hour),
		deleted: deleted.pair, otherTenant: issue(t, own, pki.RoleOperator, "prod", id, time.Hour),
		removed: removed, unrecorded: issue(t, own, pki.RoleOperator, "default", newID(t, fleet.OperatorKind), time.Hour),
		undeclared: issue(t, own, pki.RoleOperator, "ghost", id, time.Hour),
	}
}

// expired returns a certificate of the right CA that expired a minute ago.
func (s *site) expired(id fleet.InstanceID) *pki.Keypair {
	s.t.Helper()
	key := newKey(s.t)
	cert, err := s.trust().CA.IssueOperator(pki.ClientRequest{
		Tenant: "default", ID: string(id), PublicKey: pki.PublicKey(key), Now: time.Now().Add(-2 * time.Minute), TTL: time.Minute,
	}, rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return pair
}

// call makes one call with an empty request. It returns nil for a stream that is still open
// after its first message, or after a while without one.
func (s *site) call(p *process, m protoreflect.MethodDescriptor, pair *pki.Keypair) error {
	addr := map[protoreflect.Name]func() string{
		"RegistrationService": p.registrationAddr, "AgentService": p.agentAddr, "OperatorService": p.operatorAddr,
	}[m.Parent().Name()]()
	e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, pair), Now: time.Now}
	conn := s.dialTLS(addr, e.Client("127.0.0.1", shardID))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	method := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		return conn.Invoke(ctx, method, dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output()))
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, method)
	if err != nil {
		return err
	}
	// RecvMsg returns the error of a closed stream.
	_ = stream.SendMsg(dynamicpb.NewMessage(m.Input()))
	if m.IsStreamingClient() {
		_ = stream.CloseSend()
		return stream.RecvMsg(dynamicpb.NewMessage(m.Output()))
	}
	_ = stream.CloseSend()
	ended := make(chan error, 1)
	go func() { ended <- stream.RecvMsg(dynamicpb.NewMessage(m.Output())) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Second): // errors arrive within milliseconds
		return nil
	}
}

// serverOf issues the certificate of a shard's server.
func (s *site) serverOf(shard string) *pki.Keypair { return s.serverAt(shard, "127.0.0.1") }

// serverAt returns a certificate of a server of a shard with an address and names.
func (s *site) serverAt(shard, addr string, names ...string) *pki.Keypair {
	s.t.Helper()
	key := newKey(s.t)
	certificate, err := s.trust().CA.IssueServer(pki.ServerRequest{
		Shard: shard, DNS: names, IPs: []netip.Addr{netip.MustParseAddr(addr)}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(certificate, key)
	if err != nil {
		s.t.Fatal(err)
	}
	return pair
}

// TestAnotherTenantSeesNothing: another tenant's objects look like absent ones.
func TestAnotherTenantSeesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		prod := p.operator("prod")
		ctx := within(t)

		if resp, err := prod.ListGroups(ctx, &nstancev1.ListGroupsRequest{}); err != nil || len(resp.GetGroups()) != 0 {
			t.Errorf("groups: %v, %v", resp, err)
		}
		if resp, err := prod.ListInstances(ctx, &nstancev1.ListInstancesRequest{IncludeDeleted: true}); err != nil ||
			len(resp.GetInstances()) != 0 {
			t.Errorf("instances: %v, %v", resp, err)
		}
		if resp, err := prod.ListInstances(ctx, &nstancev1.ListInstancesRequest{Group: "web"}); err != nil || len(resp.GetInstances()) != 0 {
			t.Errorf("instances of web: %v, %v", resp, err)
		}
		size := int32(0)
		_, err := prod.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Size: &size})
		refused(t, err, codes.NotFound, "no such group")
		_, err = prod.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: "web"})
		refused(t, err, codes.NotFound, "no such group")
		_, err = prod.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: string(s.living()[0])})
		refused(t, err, codes.NotFound, "no such instance")
		absent := newID(t, "knd")
		_, errAbsent := prod.GetInstanceStatus(ctx, &nstancev1.GetInstanceStatusRequest{Id: string(absent)})
		have, want := status.Convert(err).Message(), status.Convert(errAbsent).Message()
		if strings.ReplaceAll(have, string(s.living()[0]), "X") != strings.ReplaceAll(want, string(absent), "X") {
			t.Errorf("another's instance answers %q, an absent one %q", have, want)
		}

		// A group of the same name in the other tenant is another group, and takes
		// no instance of this one.
		template := "knd"
		size = 1
		living := s.living()
		others := []string{string(living[0]), string(absent)}
		made, err := prod.UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: "web", Template: &template, Size: &size, Remove: others})
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(others); !slices.Equal(slices.Sorted(slices.Values(made.GetAlreadyGone())), others) {
			t.Errorf("another's instance and an absent one, to be removed: %v count as gone, want both", made.GetAlreadyGone())
		}
		eventually(t, "the other tenant's own group", func() error {
			resp, err := prod.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
			if err != nil || len(resp.GetGroups()) != 1 || resp.GetGroups()[0].GetActualSize() != 1 {
				return status.Errorf(codes.Unknown, "%v, %v", resp, err)
			}
			return nil
		})
		if g, err := p.group("web"); err != nil || g.GetSize() != 2 {
			t.Errorf("this tenant's group: %v, %v", g, err)
		}
		if have := s.living(); len(have) != 3 || !slices.Contains(have, living[0]) || !slices.Contains(have, living[1]) {
			t.Errorf("%v live, want %v and one of the other tenant", have, living)
		}
		_, err = prod.GetConfigStatus(ctx, &nstancev1.GetConfigStatusRequest{})
		refused(t, err, codes.PermissionDenied, "default", "prod")
	})
}

// TestTLS12IsRefused: every listener speaks TLS 1.3 only.
func TestTLS12IsRefused(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		addrs := []string{p.registrationAddr(), p.operatorAddr(), p.agentAddr(), s.leader().Addrs.Election}
		for _, addr := range slices.Compact(addrs) {
			if _, err := s.handshake(loopback, addr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
				t.Errorf("%s speaks TLS 1.2", addr)
			}
		}
	})
}
