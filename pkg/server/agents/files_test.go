package agents_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/agents"
	"github.com/nstance/nstance/pkg/server/delivery"
	"github.com/nstance/nstance/pkg/server/ledger"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// wanted is a group of one instance, with a text and a certificate.
type wanted struct{ static *config.Shard }

func (w wanted) Instance(fleet.InstanceID) (fleet.Instance, bool) {
	return fleet.Instance{ID: id, Tenant: "default", Group: "web", Phase: fleet.Running, Rev: 2}, true
}

func (w wanted) Group(key fleet.GroupKey) (fleet.Group, bool) {
	groups, _ := w.static.Resolve(nil)
	g, ok := groups[key]
	return g, ok
}

func (w wanted) Static() *config.Shard { return w.static }

func (w wanted) Values(_ context.Context, i fleet.Instance, g fleet.Group) (config.Values, error) {
	return config.NewTemplates().For(config.Facts{Instance: config.InstanceFacts{ID: string(i.ID)}, Vars: g.Vars}), nil
}

func (w wanted) Get(context.Context, string) ([]byte, error) { return nil, fmt.Errorf("no secrets") }

// delivering is a shard with a delivery.
func delivering(t *testing.T) *shard {
	t.Helper()
	static, err := config.Parse([]byte(`{
	  "cluster": { "id": "c", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
	  "server": { "provider": { "kind": "fake", "region": "r", "zone": "z" }, "subnet_pools": { "w": ["a"] } },
	  "certificates": { "k": { "kind": "client", "cn": "x", "ttl": 24 } },
	  "templates": { "knd": { "kind": "knd", "arch": "amd64", "subnet_pool": "w", "files": {
	    "a.conf": { "kind": "string", "content": "text" },
	    "k.crt": { "kind": "certificate", "template": "k", "key": { "source": "agent", "name": "k" } }
	  } } },
	  "groups": { "default": { "web": { "template": "knd" } } }
	}`))
	if err != nil {
		t.Fatal(err)
	}
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "c", Key: key, Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w := wanted{static}
	d, err := delivery.New(ctx, delivery.Config{
		Shard: w, CA: ca, Secrets: w, Storage: mem.New(mem.Config{}),
		Permit: func(fleet.InstanceID, *pki.LeafRequest) error { return nil },
		Claim:  func(fleet.InstanceID, []string) []string { return nil },
		Bind:   func(context.Context, fleet.InstanceID, []string) error { return nil },
		Log:    func(context.Context, ledger.CertificateBatch) error { return nil },
		Report: func(fleet.Problem) {}, Settled: func(fleet.GroupKey) {}, Now: time.Now, Random: rand.Reader,
	})
	if err != nil {
		t.Fatal(err)
	}
	sh := newShard()
	sh.files = d
	return sh
}

// down is the server's end of a stream to an agent.
type down[T any] struct {
	grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
	stuck  bool

	mu   sync.Mutex
	sent []*T
}

func newDown[T any]() *down[T] {
	s := newStream()
	return &down[T]{ctx: s.ctx, cancel: s.cancel}
}

func (d *down[T]) Context() context.Context { return d.ctx }

func (d *down[T]) Send(m *T) error {
	if d.stuck {
		<-d.ctx.Done()
		return d.ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, m)
	return nil
}

func (d *down[T]) received() []*T {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent
}

// agentCtx returns the context of a call of the instance's agent.
func agentCtx() context.Context {
	return rpc.WithCaller(context.Background(), pki.Caller{Role: pki.RoleAgent, Tenant: "default", ID: string(id)})
}

// TestFilesOverStreams: keys are requested and submitted, and a set arrives, file by file,
// ended by its commit.
func TestFilesOverStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := service(delivering(t))
		health, keys, files := newStream(), newDown[nstancev1.KeyGenRequestsResponse](), newDown[nstancev1.ReceiveFilesResponse]()
		ended := make(chan error, 3)
		go func() { ended <- serve(svc, health) }()
		go func() { ended <- svc.KeyGenRequests(nil, keys) }()
		go func() { ended <- svc.ReceiveFiles(nil, files) }()
		health.in <- &nstancev1.ReportHealthRequest{}
		asked := keys.received()
		if len(asked) != 1 || len(asked[0].GetKeys()) != 1 || asked[0].GetKeys()[0].GetName() != "k" ||
			asked[0].GetKeys()[0].GetAlgorithm() != nstancev1.KeyAlgorithm_KEY_ALGORITHM_ED25519 {
			t.Fatalf("asked for %v", asked)
		}
		if _, err := svc.SubmitPublicKeys(agentCtx(),
			&nstancev1.SubmitPublicKeysRequest{PublicKeys: map[string]string{"other": ""}}); !isKind(err, rpc.Invalid) {
			t.Errorf("a key that was not asked for: %v", err)
		}
		key, err := pki.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text, err := pki.EncodePublicKey(pki.PublicKey(key))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := svc.SubmitPublicKeys(agentCtx(),
			&nstancev1.SubmitPublicKeysRequest{PublicKeys: map[string]string{"k": string(text)}}); err != nil {
			t.Fatal(err)
		}
		got := files.received()
		if len(got) != 3 || got[0].GetFile().GetName() != "a.conf" || string(got[0].GetFile().GetContent()) != "text" ||
			got[1].GetFile().GetName() != "k.crt" || strings.Join(got[2].GetCommit().GetNames(), " ") != "a.conf k.crt" ||
			got[2].GetCommit().GetConfigHash() == "" {
			t.Fatalf("received %v", got)
		}
		health.cancel()
		keys.cancel()
		files.cancel()
		for range 3 {
			<-ended
		}
		if _, err := svc.SubmitPublicKeys(agentCtx(), &nstancev1.SubmitPublicKeysRequest{}); !isKind(err, rpc.Precondition) {
			t.Errorf("keys without a stream: %v", err)
		}
	})
}

func isKind(err error, kind rpc.Kind) bool { return errors.Is(err, kind) }

// TestFilesStreamsEnd: streams end with the term, the instance, a newer stream, and a reader
// that does not read.
func TestFilesStreamsEnd(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(*shard, *agents.Service)
		kind rpc.Kind
	}{
		"term":     {func(sh *shard, _ *agents.Service) { close(sh.done) }, rpc.Unavailable},
		"instance": {func(_ *shard, svc *agents.Service) { svc.Cut(id) }, rpc.CertificateRevoked},
		"newer": {func(_ *shard, svc *agents.Service) {
			go func() { _ = svc.ReceiveFiles(nil, newDown[nstancev1.ReceiveFilesResponse]()) }()
		}, rpc.Conflict},
		"slow": {func(*shard, *agents.Service) {}, rpc.Exhausted},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sh := delivering(t)
				svc := service(sh)
				keys, files := newDown[nstancev1.KeyGenRequestsResponse](), newDown[nstancev1.ReceiveFilesResponse]()
				files.stuck, keys.stuck = true, what == "slow"
				ended := make(chan error, 1)
				if what == "slow" {
					go func() { defer keys.cancel(); ended <- svc.KeyGenRequests(nil, keys) }()
				} else {
					go func() { defer files.cancel(); ended <- svc.ReceiveFiles(nil, files) }()
				}
				synctest.Wait()
				c.end(sh, svc)
				if err := <-ended; !isKind(err, c.kind) {
					t.Errorf("ended with %v, want %s", err, c.kind)
				}
				if what == "newer" {
					svc.Cut(id)
				}
			})
		})
	}
}

// TestNewsOfFiles: changes of files are passed on at once, a flood of them is not.
func TestNewsOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sh, s := newShard(), newStream()
		heard := &listener{}
		sh.files = heard
		ended := make(chan error)
		go func() { ended <- serve(service(sh), s) }()
		sum := strings.Repeat("ab", 32)
		s.in <- &nstancev1.ReportHealthRequest{ConfigHash: "one"}
		s.in <- &nstancev1.ReportHealthRequest{ConfigHash: "one"}
		s.in <- &nstancev1.ReportHealthRequest{ConfigHash: "two"}
		failed := &nstancev1.FileStatus{Name: "a.conf", State: nstancev1.FileState_FILE_STATE_FAILED, Error: "full", Sha256: sum}
		s.in <- &nstancev1.ReportHealthRequest{ConfigHash: "two", Files: []*nstancev1.FileStatus{failed}}
		synctest.Wait()
		if len(heard.reports) != 3 {
			t.Fatalf("heard %d reports, want 3: %+v", len(heard.reports), heard.reports)
		}
		f := heard.reports[2].Files[0]
		if f.State != delivery.Failed || f.Error != "full" || hex.EncodeToString(f.SHA256[:]) != sum {
			t.Errorf("heard %+v", f)
		}
		for n := range 1000 {
			s.in <- &nstancev1.ReportHealthRequest{ConfigHash: fmt.Sprint(n), Files: []*nstancev1.FileStatus{{Sha256: "zz" + sum[2:]}}}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := len(heard.reports); n > 60 { // within a second
			t.Errorf("heard %d reports", n)
		}
		close(s.in)
		<-ended
	})
}

// listener records reports.
type listener struct {
	agents.Files
	reports []delivery.FileReport
}

func (l *listener) Reported(_ fleet.InstanceID, r delivery.FileReport) {
	l.reports = append(l.reports, r)
}
func (l *listener) Disconnected(fleet.InstanceID) {}
