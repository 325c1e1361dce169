package server_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/secrets"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicPEM(t *testing.T, key ed25519.PrivateKey) string {
	t.Helper()
	text, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func newID(t *testing.T, kind string) fleet.InstanceID {
	t.Helper()
	id, err := fleet.NewID(kind, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// dial connects to a server of the shard; pair nil: without a certificate.
func (s *site) dial(addr string, pair *pki.Keypair) *grpc.ClientConn {
	s.t.Helper()
	return s.dialShard(shardID, addr, pair)
}

func (s *site) dialShard(shard, addr string, pair *pki.Keypair) *grpc.ClientConn {
	s.t.Helper()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		s.t.Fatal(err)
	}
	e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, pair), Now: time.Now}
	return s.dialTLS(addr, e.Client(host, shard))
}

func (s *site) dialTLS(addr string, c *tls.Config) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(credentials.NewTLS(c)), grpc.WithNoProxy(), grpc.WithContextDialer(s.connect))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// handshake connects from an address and closes the connection. It returns the server's state.
func (s *site) handshake(source, addr string, c *tls.Config) (shown tls.ConnectionState, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	conn, err := s.connectFrom(ctx, source, addr)
	if err != nil {
		return shown, err
	}
	defer conn.Close()
	client := tls.Client(conn, c)
	err = client.HandshakeContext(ctx)
	return client.ConnectionState(), err
}

// issue issues a certificate without any checks.
func issue(t *testing.T, ca *pki.CA, role pki.Role, tenant string, id fleet.InstanceID, ttl time.Duration) *pki.Keypair {
	t.Helper()
	key := newKey(t)
	sign := ca.IssueOperator
	if role == pki.RoleAgent {
		sign = ca.IssueAgent
	}
	cert, err := sign(pki.ClientRequest{Tenant: tenant, ID: string(id), PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: ttl}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// operator returns a client of a tenant.
func (p *process) operator(tenant string) nstancev1.OperatorServiceClient {
	p.t.Helper()
	_, pair := p.site.operator(tenant)
	return p.as(pair)
}

// viewer returns a client of tenant default with a connection that is reused.
func (p *process) viewer() nstancev1.OperatorServiceClient {
	p.t.Helper()
	p.await("serving")
	p.look.Do(func() { p.looks = p.operator("default") })
	return p.looks
}

// as returns a client with an operator's certificate.
func (p *process) as(pair *pki.Keypair) nstancev1.OperatorServiceClient {
	p.t.Helper()
	return nstancev1.NewOperatorServiceClient(p.site.dial(p.operatorAddr(), pair))
}

// operator creates an operator of a tenant, with its record.
func (s *site) operator(tenant string) (fleet.Operator, *pki.Keypair) {
	s.t.Helper()
	o := fleet.Operator{ID: newID(s.t, fleet.OperatorKind), Tenant: tenant, RegisteredAt: time.Now()}
	s.putOperator(o)
	return o, issue(s.t, s.trust().CA, pki.RoleOperator, tenant, o.ID, time.Hour)
}

func (s *site) putOperator(o fleet.Operator) {
	s.t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.putSealed(o.Key(), string(body))
}

// putSealed writes a record of an operator as servers and administrators do.
func (s *site) putSealed(key, body string) {
	s.t.Helper()
	sealed, err := record.NewSeal(s.trust().CA.DeriveKey(fleet.OperatorSeal)).Close(key, []byte(body))
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(key, string(sealed))
}

func (p *process) registration() nstancev1.RegistrationServiceClient {
	p.t.Helper()
	return nstancev1.NewRegistrationServiceClient(p.site.dial(p.registrationAddr(), nil))
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// refused checks an error's code and that its text has the texts.
func refused(t *testing.T, err error, code codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("answered %v, want %s", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(status.Convert(err).Message(), text) {
			t.Errorf("answered %q, want it to say %q", status.Convert(err).Message(), text)
		}
	}
}

// fields returns the names of an error's field violations.
func fields(err error) (names []string) {
	for _, v := range rpc.Violations(err) {
		names = append(names, v.Field)
	}
	return names
}

// claimsOf returns the claims of a nonce that is valid for an instance.
func claimsOf(id fleet.InstanceID) nonce.Claims {
	now := time.Now()
	return nonce.Claims{
		Kind: nonce.KindAgent, Subject: string(id), ClusterID: clusterID, Tenant: "default", Shard: shardID,
		ID: string(id), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Minute),
	}
}

func operatorClaims(id fleet.InstanceID) nonce.Claims {
	now := time.Now()
	return nonce.Claims{
		Kind: nonce.KindOperator, Subject: clusterID, ClusterID: clusterID, Tenant: "default",
		ID: string(id), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Minute),
	}
}

func mint(t *testing.T, trust secrets.Trust, c nonce.Claims) string {
	t.Helper()
	token, err := nonce.Mint(trust.NonceKey, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// machine is one instance's agent, which a VM runs once it is up.
type machine struct {
	site   *site
	id     fleet.InstanceID
	key    ed25519.PrivateKey
	pair   *pki.Keypair
	stream nstancev1.AgentService_ReportHealthClient
	conn   *grpc.ClientConn
}

// register registers the agent of an instance with the nonce that it was created with.
func (p *process) register(id fleet.InstanceID) (*machine, error) {
	spec, ok := p.site.world.Spec(id)
	if !ok {
		return nil, fmt.Errorf("no VM %s", id)
	}
	m := &machine{site: p.site, id: id, key: newKey(p.t)}
	resp, err := p.registration().RegisterAgent(within(p.t), &nstancev1.RegisterAgentRequest{
		Nonce: spec.Bootstrap.Nonce, PublicKey: publicPEM(p.t, m.key), Hostname: spec.Hostname,
	})
	if err != nil {
		return nil, err
	}
	cert, err := pki.ParseCertificate([]byte(resp.GetIdentity().GetCertificate()))
	if err != nil {
		return nil, err
	}
	m.pair, err = pki.NewKeypair(cert, m.key)
	return m, err
}

// report opens the health stream and sends a first report.
func (m *machine) report(p *process) error {
	m.conn = p.site.dial(p.agentAddr(), m.pair)
	stream, err := nstancev1.NewAgentServiceClient(m.conn).ReportHealth(context.Background())
	if err != nil {
		return err
	}
	m.stream = stream
	return stream.Send(&nstancev1.ReportHealthRequest{Sequence: 1, Version: "test"})
}

// ended waits for the end of the health stream.
func (m *machine) ended(t *testing.T) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- m.stream.RecvMsg(&nstancev1.ReportHealthResponse{}) }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("the stream does not end")
		return nil
	}
}

// fleetOfAgents runs the agent of every machine that comes up, against one
// server, until the test ends.
type fleetOfAgents struct {
	turn     chan struct{} // a mutex that does not stop simulated time
	server   *process
	machines map[fleet.InstanceID]*machine
}

// populate makes every machine run an agent that reports to p.
func (s *site) populate(p *process) {
	s.t.Helper()
	s.agents = &fleetOfAgents{turn: make(chan struct{}, 1), server: p, machines: map[fleet.InstanceID]*machine{}}
	p.awaitLeading()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		s.whenever(ctx, func() bool { return s.agents.boot(s) })
	}()
}

func (f *fleetOfAgents) lock() (unlock func()) {
	f.turn <- struct{}{}
	return func() { <-f.turn }
}

// boot starts the agents of machines that have none, and reports whether all have one.
func (f *fleetOfAgents) boot(s *site) (all bool) {
	defer f.lock()()
	all = true
	for _, vm := range s.world.VMs() {
		if f.machines[vm.ID] != nil || vm.State != provider.StateRunning || vm.Tags[provider.TagShard] != shardID {
			continue
		}
		m, err := f.server.register(vm.ID)
		if err == nil {
			err = m.report(f.server)
		}
		if err != nil {
			all = false // it is being removed already; the group's numbers would show that
			continue
		}
		f.machines[vm.ID] = m
	}
	return all
}

// move makes all agents report to another server.
func (f *fleetOfAgents) move(p *process) error {
	defer f.lock()()
	f.server = p
	for _, m := range f.machines {
		m.conn.Close()
		if err := m.report(p); err != nil {
			return err
		}
	}
	return nil
}

// takesAgents makes all agents report to this server.
func (p *process) takesAgents() {
	p.t.Helper()
	if err := p.site.agents.move(p); err != nil {
		p.t.Fatal(err)
	}
}

// successor starts another server and waits until it leads, with all agents.
func (s *site) successor() *process {
	s.t.Helper()
	q := s.start(named("b")).awaitLeading()
	q.takesAgents()
	return q
}

func (f *fleetOfAgents) of(id fleet.InstanceID) *machine {
	defer f.lock()()
	return f.machines[id]
}

// group returns the status of a group of tenant default.
func (p *process) group(key string) (*nstancev1.GroupStatus, error) {
	resp, err := p.viewer().GetGroup(within(p.t), &nstancev1.GetGroupRequest{Key: key})
	return resp.GetGroup(), err
}

// awaitSize waits until a group is complete at size n.
func (p *process) awaitSize(key string, n int32) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("group %s has %d", key, n), func() error {
		g, err := p.group(key)
		if err != nil {
			return err
		}
		if g.GetActualSize() != n || g.GetSize() != n || g.GetPendingSize() != 0 {
			return fmt.Errorf("group is %v", g)
		}
		return nil
	})
}

// instance returns the status of an instance of tenant default.
func (p *process) instance(id fleet.InstanceID) (*nstancev1.InstanceStatus, error) {
	resp, err := p.viewer().GetInstanceStatus(within(p.t), &nstancev1.GetInstanceStatusRequest{Id: string(id)})
	return resp.GetInstance(), err
}

func (p *process) awaitPhase(id fleet.InstanceID, want nstancev1.InstancePhase) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s is %s", id, want), func() error {
		i, err := p.instance(id)
		if err == nil && i.GetPhase() != want {
			err = fmt.Errorf("it is %s", i.GetPhase())
		}
		return err
	})
}

// living returns the sorted IDs of the running machines.
func (s *site) living() (ids []fleet.InstanceID) {
	for _, vm := range s.world.VMs() {
		if vm.State.Alive() {
			ids = append(ids, vm.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
