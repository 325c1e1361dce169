package admin_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

const (
	operatorID = "opr01h455vb4pex5vsknk084sn02q"
	lifetime   = 90 * 24 * time.Hour
)

// fixture is a shard's leader that renews certificates, and an administrator's identity folder.
type fixture struct {
	nstancev1.UnimplementedOperatorServiceServer
	t     *testing.T
	ca    *pki.CA
	also  *pki.CA // a second trusted CA
	dir   string
	shard client.Shard

	mu       sync.Mutex
	now      time.Time
	tamper   func(*nstancev1.Identity) error // changes a response, if not nil
	renewals []string                        // the public keys of the requests
	calls    []string                        // the certificates' serials of ListGroups calls
	ttl      time.Duration                   // of issued certificates
	follower
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWithTTL(t, lifetime)
}

func newFixtureWithTTL(t *testing.T, ttl time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), now: time.Now().Truncate(time.Second), ttl: ttl}
	f.ca, f.also = newCA(t), newCA(t)
	bundle := pki.NewBundle(f.ca.Certificate())
	key := newKey(t)
	cert, err := f.ca.IssueServer(pki.ServerRequest{Shard: "one", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		PublicKey: pki.PublicKey(key), Now: f.now, TTL: 10 * lifetime}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	e := pki.Endpoint{Cluster: "example", Source: pki.NewSource(bundle, pair), Now: f.clock}
	server, err := rpc.NewServer(rpc.ServerConfig{
		TLS: e.Server(), Cluster: "example", Access: rpc.Access(), Gate: alwaysLeading{}, Now: f.clock, Logger: slog.New(slog.DiscardHandler),
		Services: func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, f) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	f.shard = client.Shard{ID: "one", Addrs: []string{l.Addr().String()}}

	clientKey := newKey(t)
	text, err := pki.EncodePrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	granted, err := f.grant(pki.PublicKey(clientKey))
	if err != nil {
		t.Fatal(err)
	}
	f.writeFiles(map[string]string{"ca.crt": granted.GetCaChain(), "identity.crt": granted.GetCertificate(), "identity.key": string(text)})
	return f
}

type alwaysLeading struct{}

// Leading implements rpc.Gate.
func (alwaysLeading) Leading() (string, bool) { return "", true }

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "example", Key: newKey(t), Now: time.Now(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func (f *fixture) clock() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now }

func (f *fixture) advance(by time.Duration) { f.mu.Lock(); defer f.mu.Unlock(); f.now = f.now.Add(by) }

func (f *fixture) grant(key []byte) (*nstancev1.Identity, error) {
	cert, err := f.ca.IssueOperator(pki.ClientRequest{Tenant: "default", ID: operatorID, PublicKey: key, Now: f.clock(), TTL: f.ttl},
		rand.Reader)
	if err != nil {
		return nil, err
	}
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)),
		CaChain:     string(pki.NewBundle(f.also.Certificate(), f.ca.Certificate()).PEM()),
	}, nil
}

// RenewCertificate implements OperatorServiceServer.
func (f *fixture) RenewCertificate(
	_ context.Context, r *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	f.mu.Lock()
	f.renewals = append(f.renewals, r.GetPublicKey())
	tamper := f.tamper
	f.mu.Unlock()
	key, err := pki.ParsePublicKey([]byte(r.GetPublicKey()))
	if err != nil {
		return nil, err
	}
	identity, err := f.grant(key)
	if err == nil && tamper != nil {
		err = tamper(identity)
	}
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: identity}, err
}

// ListGroups implements OperatorServiceServer.
func (f *fixture) ListGroups(ctx context.Context, _ *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, caller.Serial)
	return &nstancev1.ListGroupsResponse{}, nil
}

func (f *fixture) writeFiles(files map[string]string) {
	f.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// files returns the folder's files.
func (f *fixture) files() map[string]string {
	f.t.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(f.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed by a concurrent renewal
		}
		if err != nil {
			f.t.Fatal(err)
		}
		all[e.Name()] = string(body)
	}
	return all
}

// runCommand makes two calls as a command does, and returns its warnings.
func (f *fixture) runCommand() (warnings []error) {
	f.t.Helper()
	id, err := admin.LoadIdentity(f.dir, f.clock, rand.Reader)
	if err != nil {
		f.t.Errorf("load the identity: %v", err)
		return nil
	}
	c := admin.NewClient(admin.Config{Identity: id, UserAgent: "test", Random: mathrand.Float64,
		Warn: func(err error) { warnings = append(warnings, err) }})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		if _, err := c.ListGroups(ctx, []client.Shard{f.shard}, client.Parts{}); err != nil {
			f.t.Errorf("the command failed: %v", err)
		}
	}
	return warnings
}

func (f *fixture) wantValidPair() {
	f.t.Helper()
	files := f.files()
	if _, err := pki.ParseKeypair([]byte(files["identity.crt"]), []byte(files["identity.key"])); err != nil {
		f.t.Errorf("the folder's certificate and key: %v", err)
	}
	if files["identity.key.next"] != "" {
		f.t.Error("identity.key.next was not removed")
	}
}

func TestIdentityIsRenewedByCommand(t *testing.T) {
	f := newFixture(t)
	before := f.files()
	f.advance(lifetime * 6 / 10)
	if w := f.runCommand(); len(w) > 0 || len(f.renewals) != 0 {
		t.Errorf("renewed before it was due: %v", w)
	}
	f.advance(lifetime / 10)
	if w := f.runCommand(); len(w) > 0 || len(f.renewals) != 1 {
		t.Fatalf("%d renewals, %v", len(f.renewals), w)
	}
	f.wantValidPair()
	after := f.files()
	if after["identity.crt"] == before["identity.crt"] || after["identity.key"] == before["identity.key"] {
		t.Error("the folder has the old certificate or key")
	}
	if f.calls[0] != f.calls[1] || f.calls[2] == f.calls[1] || f.calls[3] != f.calls[2] {
		t.Errorf("calls with the certificates %v, want the new one at once", f.calls)
	}
	f.runCommand()
	if len(f.renewals) != 1 {
		t.Error("renewed again")
	}
	if info, err := os.Stat(filepath.Join(f.dir, "identity.key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
}

// TestFailedRenewal: the command continues with the existing identity and a warning, and the
// next one retries with the same key.
func TestFailedRenewal(t *testing.T) {
	for name, tamper := range map[string]func(*nstancev1.Identity) error{
		"refused": func(*nstancev1.Identity) error { return rpc.CertificateRevoked.Errorf("there is no operator") },
		"garbage": func(i *nstancev1.Identity) error { i.Certificate = "x"; return nil },
		"another CA": func(i *nstancev1.Identity) error {
			i.CaChain = string(pki.EncodeCertificate(newCA(t).Certificate()))
			return nil
		},
		"no CA":          func(i *nstancev1.Identity) error { i.CaChain = ""; return nil },
		"another tenant": nil,
		"another key":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tamper == nil {
				tamper = func(i *nstancev1.Identity) error {
					r := pki.ClientRequest{Tenant: "prod", ID: operatorID, Now: f.clock(), TTL: lifetime, PublicKey: pki.PublicKey(newKey(t))}
					cert, err := f.ca.IssueOperator(r, rand.Reader)
					i.Certificate = string(pki.EncodeCertificate(cert))
					return err
				}
			}
			f.tamper = tamper
			f.advance(lifetime * 7 / 10)
			before := f.files()
			for range 2 {
				if w := f.runCommand(); len(w) != 1 {
					t.Errorf("warnings %v", w)
				}
			}
			after := f.files()
			for _, file := range []string{"ca.crt", "identity.crt", "identity.key"} {
				if before[file] != after[file] {
					t.Errorf("%s changed", file)
				}
			}
			if len(f.renewals) != 2 || f.renewals[0] != f.renewals[1] {
				t.Errorf("%d renewals, want two with one key", len(f.renewals))
			}
			f.tamper = nil
			if w := f.runCommand(); len(w) > 0 {
				t.Errorf("warnings %v", w)
			}
			f.wantValidPair()
		})
	}
}

// TestInterruptedRenewal: in every state that a crash leaves, commands and the next renewal
// succeed.
func TestInterruptedRenewal(t *testing.T) {
	f := newFixture(t)
	before := f.files()
	f.advance(lifetime * 7 / 10)
	f.runCommand()
	after := f.files()
	for name, state := range map[string]map[string]string{
		"before the request": {"identity.key.next": after["identity.key"]},
		"after ca.crt":       {"identity.key.next": after["identity.key"], "ca.crt": after["ca.crt"]},
		"after identity.crt": {"identity.key.next": after["identity.key"], "ca.crt": after["ca.crt"], "identity.crt": after["identity.crt"]},
		"truncated key":      {"identity.key.next": "-----BEGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.writeFiles(before)
			f.writeFiles(state)
			if w := f.runCommand(); len(w) > 0 {
				t.Errorf("warnings %v", w)
			}
			now := f.clock()
			f.advance(lifetime * 7 / 10)
			if name == "after identity.crt" {
				if w := f.runCommand(); len(w) > 0 {
					t.Errorf("warnings of the next renewal %v", w)
				}
			}
			f.wantValidPair()
			f.mu.Lock()
			f.now = now
			f.mu.Unlock()
		})
	}
}

// TestConcurrentCommands: one renewal takes place, and all commands succeed.
func TestConcurrentCommands(t *testing.T) {
	f := newFixture(t)
	f.advance(lifetime * 7 / 10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { f.runCommand() })
	}
	all.Wait()
	f.wantValidPair()
	// On a busy machine a response may be missed; then another command repeats the request for the
	// same key.
	if keys := slices.Compact(slices.Clone(f.renewals)); len(keys) != 1 {
		t.Errorf("renewed for %d keys: %v", len(keys), keys)
	}
}

// TestReadOnlyFolder: commands succeed with a folder that can't be written, and warn that it is
// not renewed.
func TestReadOnlyFolder(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can write to any folder")
	}
	f := newFixture(t)
	f.advance(lifetime * 7 / 10)
	if err := os.Chmod(f.dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(f.dir, 0o700) })
	if w := f.runCommand(); len(w) != 1 || len(f.renewals) != 0 {
		t.Errorf("warnings %v, %d renewals", w, len(f.renewals))
	}
}
