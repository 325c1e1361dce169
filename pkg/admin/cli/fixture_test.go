package cli_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/dir"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/secrets"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	clusterID     = "example"
	encryptionKey = "thisisa32byteencryptionkey123456"
)

// fixture is a bucket that a server has set up, and the environment of an administrator's
// commands.
type fixture struct {
	t       *testing.T
	bucket  string
	store   *dir.Store
	trust   secrets.Trust
	secrets secrets.Secrets
	env     map[string]string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := &fixture{t: t, bucket: t.TempDir()}
	c.env = map[string]string{
		"NSTANCE_ENCRYPTION_KEY": encryptionKey, "NSTANCE_ADMIN_STORAGE_PROVIDER": "dir", "NSTANCE_ADMIN_STORAGE_BUCKET": c.bucket,
		"NSTANCE_ADMIN_IDENTITY_DIR": filepath.Join(t.TempDir(), "identity"),
		"NSTANCE_ADMIN_TIMEOUT":      "2m", // on a busy machine too
	}
	store, err := dir.New(dir.Config{Root: c.bucket})
	if err != nil {
		t.Fatal(err)
	}
	c.store = store
	sealed, err := secrets.Open(t.Context(), secrets.Config{
		Provider: "object-storage", Prefix: "cluster/secret/", Key: secrets.KeySource{Provider: "env", Source: "K"},
		Store: store, Random: rand.Reader, Sources: secrets.LocalSources(func(string) string { return encryptionKey }),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.secrets = sealed
	c.trust, err = secrets.Bootstrap(t.Context(), secrets.BootstrapConfig{
		ClusterID: clusterID, Store: store, Secrets: sealed, Now: time.Now, Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// operators returns the keys of the operators' records.
func (c *fixture) operators() (keys []string) {
	c.t.Helper()
	infos, err := object.All(c.t.Context(), c.store, "cluster/operator/")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, i := range infos {
		keys = append(keys, i.Key)
	}
	return keys
}

// result is the exit code and the output of a command.
type result struct {
	code        int
	out, errOut string
	took        time.Duration
}

func (c *fixture) run(args ...string) result {
	c.t.Helper()
	return run(c.t, c.env, args...)
}

// runUntilTimeout runs a command that its --timeout ends. While it has not reached a state by
// then, as on a busy machine, it runs again with a longer timeout.
func (c *fixture) runUntilTimeout(first string, reached func(result) bool, args ...string) (r result) {
	c.t.Helper()
	for _, timeout := range []string{first, "20s", "1m"} {
		r = c.run(append(slices.Clone(args), "--timeout", timeout)...)
		if reached(r) {
			break
		}
	}
	return r
}

func run(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	began := time.Now()
	code := cli.Run(t.Context(), cli.Env{
		Args: args, Getenv: func(name string) string { return env[name] }, Stdout: &out, Stderr: &errOut,
		Now: time.Now, Random: rand.Reader, Version: "v0-test",
	})
	return result{code, out.String(), errOut.String(), time.Since(began)}
}

// quiet reports whether a command printed nothing on standard error, except for messages about
// a wait if it took that long.
func (r result) quiet() bool {
	for line := range strings.Lines(r.errOut) {
		if r.took < time.Second || !strings.HasPrefix(line, "waiting: ") {
			return false
		}
	}
	return true
}

// want checks the exit code of a command, and texts that its standard error contains.
func (r result) want(t *testing.T, code int, texts ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d; output %s%s", r.code, code, r.out, r.errOut)
	}
	for _, text := range texts {
		if !strings.Contains(r.errOut, text) {
			t.Errorf("stderr %q, want %q in it", r.errOut, text)
		}
	}
	return r
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// row is one result in JSON: a message, and the fields that the command adds to it.
type row[M proto.Message] struct {
	Message M `json:"-"` // without the added fields

	Shard       string   `json:"shard"`
	AlreadyGone []string `json:"already_gone"`
	ConnectedTo []string `json:"connected_to"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *row[M]) UnmarshalJSON(text []byte) error {
	type plain row[M]
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	r.Message = r.Message.ProtoReflect().New().Interface().(M)
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, r.Message)
}

type (
	group        = row[*nstancev1.GroupStatus]
	instance     = row[*nstancev1.InstanceStatus]
	operator     = row[*nstancev1.OperatorStatus]
	configStatus = row[*nstancev1.GetConfigStatusResponse]
)

// register gives the administrator an identity.
func (c *fixture) register() *fixture {
	c.t.Helper()
	c.run("cluster", "register-operator").want(c.t, cli.ExitOK)
	return c
}

// shard is a stand-in for a shard's leader, which responds with the state that a test sets.
type shard struct {
	nstancev1.UnimplementedOperatorServiceServer
	addr string

	mu                 sync.Mutex
	leads              bool
	leader             string
	groups             map[string]*nstancev1.GroupStatus
	instances          []*nstancev1.InstanceStatus
	upserts            []*nstancev1.UpsertGroupRequest
	read               func(n int, g *nstancev1.GroupStatus) // called before the n-th GetGroup, if not nil
	reads              int
	readsWithInstances int
	listed             func(n int) // called before the n-th ListGroups, if not nil, with the lock held
	lists              int
	lastList           *nstancev1.ListGroupsRequest
	changed            func(g *nstancev1.GroupStatus) // called after each UpsertGroup, if not nil
	config             *nstancev1.GetConfigStatusResponse
	fault              func(context.Context) error // called before each call that is no watch, if not nil
	outage             string                      // of object storage
	instanceState
	operatorState
	eventState
}

// endpoint returns the TLS settings of a shard's server, with a certificate of the cluster's CA.
func (c *fixture) endpoint(id string) pki.Endpoint {
	c.t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := c.trust.CA.IssueServer(pki.ServerRequest{
		Shard: id, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: time.Hour,
	}, rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		c.t.Fatal(err)
	}
	return pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(c.trust.Bundle, pair), Now: time.Now}
}

// shard starts a server of a shard, and adds it to --servers.
func (c *fixture) shard(id string) *shard {
	c.t.Helper()
	s := &shard{leads: true, groups: map[string]*nstancev1.GroupStatus{}}
	server, err := rpc.NewServer(rpc.ServerConfig{
		TLS: c.endpoint(id).Server(), Cluster: clusterID, Access: rpc.Access(), Gate: s, Outage: s.outageNow, Now: time.Now,
		Logger:   slog.New(slog.DiscardHandler),
		Services: func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(faulty{r, s}, s) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	c.t.Cleanup(server.Stop)
	s.addr = l.Addr().String()
	c.addServer(id, s.addr)
	return s
}

func (s *shard) outageNow() (said string) {
	s.locked(func() { said = s.outage })
	return said
}

func (s *shard) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// addServer adds an address of a shard to --servers.
func (c *fixture) addServer(id, addr string) {
	list := c.env["NSTANCE_ADMIN_SERVERS"]
	if list != "" {
		list += ","
	}
	c.env["NSTANCE_ADMIN_SERVERS"] = list + id + "=" + addr
}

// Leading implements rpc.Gate.
func (s *shard) Leading() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.leads
}

func (s *shard) setGroups(groups ...*nstancev1.GroupStatus) *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range groups {
		s.groups[g.GetKey()] = g
	}
	return s
}

func (s *shard) ListGroups(_ context.Context, req *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	s.lastList = req
	if s.listed != nil {
		s.listed(s.lists)
	}
	resp := &nstancev1.ListGroupsResponse{}
	for _, key := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[key]
		if req.GetOmitInstances() || req.GetOmitVars() {
			g = proto.CloneOf(g)
		}
		if req.GetOmitInstances() {
			g.Instances = nil
		}
		if req.GetOmitVars() {
			g.Vars = nil
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func (s *shard) GetGroup(_ context.Context, req *nstancev1.GetGroupRequest) (*nstancev1.GetGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.read != nil {
		s.read(s.reads, s.groups[req.GetKey()])
	}
	g := s.groups[req.GetKey()]
	if g == nil {
		return nil, rpc.NotFound.Errorf("there is no group %s", req.GetKey())
	}
	if !req.GetOmitInstances() {
		s.readsWithInstances++
		return &nstancev1.GetGroupResponse{Group: g}, nil
	}
	bare := proto.CloneOf(g)
	bare.Instances = nil
	return &nstancev1.GetGroupResponse{Group: bare}, nil
}

func (s *shard) AbortRollout(_ context.Context, req *nstancev1.AbortRolloutRequest) (*nstancev1.AbortRolloutResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[req.GetKey()]
	switch {
	case g == nil:
		return nil, rpc.NotFound.Errorf("abort the rollout of group default/%s: no such group", req.GetKey())
	case req.IfEtag != nil && req.GetIfEtag() != g.GetEtag():
		return nil, rpc.Conflict.Errorf("if_etag: %q, but group %s has etag %q", req.GetIfEtag(), req.GetKey(), g.GetEtag())
	case g.GetUpToDateSize() == g.GetActualSize():
		return nil, rpc.Precondition.Errorf("abort the rollout of group default/%s: no rollout to abort", req.GetKey())
	}
	g.Conditions = append(g.Conditions, &nstancev1.Condition{Type: "RolloutAborted", Status: "True", Message: "as before"})
	return &nstancev1.AbortRolloutResponse{Group: g}, nil
}

func (s *shard) RetryRollout(_ context.Context, req *nstancev1.RetryRolloutRequest) (*nstancev1.RetryRolloutResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[req.GetKey()]
	switch {
	case g == nil:
		return nil, rpc.NotFound.Errorf("retry the rollout of group default/%s: no such group", req.GetKey())
	case req.IfEtag != nil && req.GetIfEtag() != g.GetEtag():
		return nil, rpc.Conflict.Errorf("if_etag: %q, but group %s has etag %q", req.GetIfEtag(), req.GetKey(), g.GetEtag())
	}
	g.Conditions = slices.DeleteFunc(g.GetConditions(), func(c *nstancev1.Condition) bool { return c.GetType() == "RolloutAborted" })
	return &nstancev1.RetryRolloutResponse{Group: g}, nil
}

func (s *shard) UpsertGroup(_ context.Context, req *nstancev1.UpsertGroupRequest) (*nstancev1.UpsertGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[req.GetKey()]
	switch {
	case req.IfEtag != nil && req.GetIfEtag() != g.GetEtag():
		return nil, rpc.Conflict.Errorf("if_etag: %q, but group %s has etag %q", req.GetIfEtag(), req.GetKey(), g.GetEtag())
	case managed(g, req) != nil && req.RolloutPaused == nil:
		return nil, managed(g, req)
	case g != nil && req.GetCreate():
		return nil, rpc.Exists.Errorf("change group default/%s: there is such a group already", req.GetKey())
	case g == nil && req.Template == nil:
		return nil, rpc.NotFound.Errorf("change group default/%s: no such group", req.GetKey())
	case g == nil:
		g = &nstancev1.GroupStatus{Key: req.GetKey(), Tenant: "default", Template: req.GetTemplate()}
		s.groups[req.GetKey()] = g
	case req.GetSize() > 1000:
		return nil, &rpc.ViolationsError{Message: "invalid group",
			Violations: []rpc.Violation{{Field: "size", Description: "too large: want at most 1000"}}}
	}
	s.upserts = append(s.upserts, req)
	if req.RolloutPaused == nil {
		g.Size = req.GetSize()
	} else {
		g.RolloutPaused = req.GetRolloutPaused()
	}
	g.Etag = "etag-" + strconv.Itoa(len(s.upserts))
	if s.changed != nil {
		s.changed(g)
	}
	gone := slices.DeleteFunc(slices.Clone(req.GetRemove()), func(id string) bool { return !strings.HasPrefix(id, "gone-") })
	before := g.GetManager()
	if req.RolloutPaused == nil {
		g.Manager = ""
	}
	return &nstancev1.UpsertGroupResponse{Group: g, AlreadyGone: gone, ManagedBefore: before}, nil
}

func (s *shard) DeleteGroup(_ context.Context, req *nstancev1.DeleteGroupRequest) (*nstancev1.DeleteGroupResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[req.GetKey()] == nil {
		return nil, rpc.NotFound.Errorf("delete group default/%s: no such group", req.GetKey())
	}
	if err := managed(s.groups[req.GetKey()], req); err != nil {
		return nil, err
	}
	delete(s.groups, req.GetKey())
	return &nstancev1.DeleteGroupResponse{}, nil
}

func (s *shard) ListInstances(_ context.Context, req *nstancev1.ListInstancesRequest) (*nstancev1.ListInstancesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &nstancev1.ListInstancesResponse{}
	after, _ := strconv.Atoi(req.GetPageToken())
	for n, i := range s.instances {
		switch {
		case n < after || req.GetGroup() != "" && req.GetGroup() != i.GetGroup():
		case len(resp.GetInstances()) > 0: // one on a page
			resp.NextPageToken = strconv.Itoa(n)
			return resp, nil
		default:
			resp.Instances = append(resp.Instances, i)
		}
	}
	return resp, nil
}

func (s *shard) GetInstanceStatus(
	_ context.Context, req *nstancev1.GetInstanceStatusRequest,
) (*nstancev1.GetInstanceStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.GetId() == req.GetId() {
			return &nstancev1.GetInstanceStatusResponse{Instance: i}, nil
		}
	}
	return nil, rpc.NotFound.Errorf("no such instance %s", req.GetId())
}

func (s *shard) GetConfigStatus(context.Context, *nstancev1.GetConfigStatusRequest) (*nstancev1.GetConfigStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, nil
}

func (s *shard) GetShardStatus(context.Context, *nstancev1.GetShardStatusRequest) (*nstancev1.GetShardStatusResponse, error) {
	at := time.Unix(1e9, 0)
	return &nstancev1.GetShardStatusResponse{
		Leader: "server-a", Epoch: 7, Version: "v0-test", Standbys: 1, LeadingSince: timestamppb.New(at),
		LeaseRenewedAt: timestamppb.New(at.Add(time.Hour)), LeaseEndsAt: timestamppb.New(at.Add(2 * time.Hour)),
	}, nil
}

func (s *shard) changes() []*nstancev1.UpsertGroupRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*nstancev1.UpsertGroupRequest(nil), s.upserts...)
}

func read(t *testing.T, path string) string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
