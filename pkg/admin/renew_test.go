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
	life       = 90 * 24 * time.Hour
)

// desk is a shard's leader that renews, and an administrator's folder.
type desk struct {
	nstancev1.UnimplementedOperatorServiceServer
	t     *testing.T
	ca    *pki.CA
	also  *pki.CA // trusted beside ca
	dir   string
	shard client.Shard

	mu       sync.Mutex
	now      time.Time
	bad      func(*nstancev1.Identity) error // spoils an answer
	renewals []string                        // the keys that came
	calls    []string                        // the serials that listed groups
	ttl      time.Duration                   // of what is granted
	follower
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	return newDeskFor(t, life)
}

func newDeskFor(t *testing.T, ttl time.Duration) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), now: time.Now().Truncate(time.Second), ttl: ttl}
	d.ca, d.also = newCA(t), newCA(t)
	bundle := pki.NewBundle(d.ca.Certificate())
	key := newKey(t)
	cert, err := d.ca.IssueServer(pki.ServerRequest{Shard: "one", IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		PublicKey: pki.PublicKey(key), Now: d.now, TTL: 10 * life}, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.NewKeypair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	e := pki.Endpoint{Cluster: "example", Source: pki.NewSource(bundle, pair), Now: d.clock}
	server, err := rpc.NewServer(rpc.ServerConfig{
		TLS: e.Server(), Cluster: "example", Access: rpc.Access(), Gate: leads{}, Now: d.clock, Logger: slog.New(slog.DiscardHandler),
		Services: func(r grpc.ServiceRegistrar) { nstancev1.RegisterOperatorServiceServer(r, d) },
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
	d.shard = client.Shard{ID: "one", Addrs: []string{l.Addr().String()}}

	mine := newKey(t)
	text, err := pki.EncodePrivateKey(mine)
	if err != nil {
		t.Fatal(err)
	}
	granted, err := d.grant(pki.PublicKey(mine))
	if err != nil {
		t.Fatal(err)
	}
	d.put(map[string]string{"ca.crt": granted.GetCaChain(), "identity.crt": granted.GetCertificate(), "identity.key": string(text)})
	return d
}

type leads struct{}

// Leading implements rpc.Gate.
func (leads) Leading() (string, bool) { return "", true }

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

func (d *desk) clock() time.Time { d.mu.Lock(); defer d.mu.Unlock(); return d.now }

func (d *desk) later(by time.Duration) { d.mu.Lock(); defer d.mu.Unlock(); d.now = d.now.Add(by) }

func (d *desk) grant(key []byte) (*nstancev1.Identity, error) {
	cert, err := d.ca.IssueOperator(pki.ClientRequest{Tenant: "default", ID: operatorID, PublicKey: key, Now: d.clock(), TTL: d.ttl},
		rand.Reader)
	if err != nil {
		return nil, err
	}
	return &nstancev1.Identity{
		Certificate: string(pki.EncodeCertificate(cert)),
		CaChain:     string(pki.NewBundle(d.also.Certificate(), d.ca.Certificate()).PEM()),
	}, nil
}

// RenewCertificate implements OperatorServiceServer.
func (d *desk) RenewCertificate(
	_ context.Context, r *nstancev1.OperatorServiceRenewCertificateRequest,
) (*nstancev1.OperatorServiceRenewCertificateResponse, error) {
	d.mu.Lock()
	d.renewals = append(d.renewals, r.GetPublicKey())
	bad := d.bad
	d.mu.Unlock()
	key, err := pki.ParsePublicKey([]byte(r.GetPublicKey()))
	if err != nil {
		return nil, err
	}
	identity, err := d.grant(key)
	if err == nil && bad != nil {
		err = bad(identity)
	}
	return &nstancev1.OperatorServiceRenewCertificateResponse{Identity: identity}, err
}

// ListGroups implements OperatorServiceServer.
func (d *desk) ListGroups(ctx context.Context, _ *nstancev1.ListGroupsRequest) (*nstancev1.ListGroupsResponse, error) {
	caller, _ := rpc.CallerFrom(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, caller.Serial)
	return &nstancev1.ListGroupsResponse{}, nil
}

func (d *desk) put(files map[string]string) {
	d.t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
}

// files is the folder.
func (d *desk) files() map[string]string {
	d.t.Helper()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed meanwhile, by a renewal under way
		}
		if err != nil {
			d.t.Fatal(err)
		}
		all[e.Name()] = string(body)
	}
	return all
}

// command does what a command does, and returns what it was warned of.
func (d *desk) command() (warnings []error) {
	d.t.Helper()
	id, err := admin.LoadIdentity(d.dir, d.clock, rand.Reader)
	if err != nil {
		d.t.Errorf("load the identity: %v", err)
		return nil
	}
	c := admin.NewClient(admin.Config{Identity: id, UserAgent: "test", Random: mathrand.Float64,
		Warn: func(err error) { warnings = append(warnings, err) }})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		if _, err := c.ListGroups(ctx, []client.Shard{d.shard}); err != nil {
			d.t.Errorf("the command failed: %v", err)
		}
	}
	return warnings
}

func (d *desk) fits() {
	d.t.Helper()
	f := d.files()
	if _, err := pki.ParseKeypair([]byte(f["identity.crt"]), []byte(f["identity.key"])); err != nil {
		d.t.Errorf("the folder's pair: %v", err)
	}
	if f["identity.key.next"] != "" {
		d.t.Error("a next key is left")
	}
}

func TestIdentityIsRenewedOnUse(t *testing.T) {
	d := newDesk(t)
	before := d.files()
	d.later(life * 6 / 10)
	if w := d.command(); len(w) > 0 || len(d.renewals) != 0 {
		t.Errorf("renewed before it was due: %v", w)
	}
	d.later(life / 10)
	if w := d.command(); len(w) > 0 || len(d.renewals) != 1 {
		t.Fatalf("%d renewals, %v", len(d.renewals), w)
	}
	d.fits()
	after := d.files()
	if after["identity.crt"] == before["identity.crt"] || after["identity.key"] == before["identity.key"] {
		t.Error("the folder holds the old pair")
	}
	if d.calls[0] != d.calls[1] || d.calls[2] == d.calls[1] || d.calls[3] != d.calls[2] {
		t.Errorf("the calls showed %v, want the new certificate at once", d.calls)
	}
	d.command()
	if len(d.renewals) != 1 {
		t.Error("renewed again")
	}
	if info, err := os.Stat(filepath.Join(d.dir, "identity.key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
}

// TestRenewalThatFails: the command goes on with what there is, is warned, and
// the next one tries again with the same key.
func TestRenewalThatFails(t *testing.T) {
	for name, bad := range map[string]func(*nstancev1.Identity) error{
		"refused": func(*nstancev1.Identity) error { return rpc.CertificateRevoked.Errorf("there is no operator") },
		"garbage": func(i *nstancev1.Identity) error { i.Certificate = "x"; return nil },
		"another CA": func(i *nstancev1.Identity) error {
			i.CaChain = string(pki.EncodeCertificate(newCA(t).Certificate()))
			return nil
		},
		"no CA":       func(i *nstancev1.Identity) error { i.CaChain = ""; return nil },
		"not for us":  nil,
		"another key": nil,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if bad == nil {
				bad = func(i *nstancev1.Identity) error {
					r := pki.ClientRequest{Tenant: "prod", ID: operatorID, Now: d.clock(), TTL: life, PublicKey: pki.PublicKey(newKey(t))}
					cert, err := d.ca.IssueOperator(r, rand.Reader)
					i.Certificate = string(pki.EncodeCertificate(cert))
					return err
				}
			}
			d.bad = bad
			d.later(life * 7 / 10)
			before := d.files()
			for range 2 {
				if w := d.command(); len(w) != 1 {
					t.Errorf("warned of %v", w)
				}
			}
			after := d.files()
			for _, file := range []string{"ca.crt", "identity.crt", "identity.key"} {
				if before[file] != after[file] {
					t.Errorf("%s changed", file)
				}
			}
			if len(d.renewals) != 2 || d.renewals[0] != d.renewals[1] {
				t.Errorf("%d renewals, want two with one key", len(d.renewals))
			}
			d.bad = nil
			if w := d.command(); len(w) > 0 {
				t.Errorf("warned of %v", w)
			}
			d.fits()
		})
	}
}

// TestRenewalCutShort: every state that a crash leaves is good for commands, and
// for the renewal after it.
func TestRenewalCutShort(t *testing.T) {
	d := newDesk(t)
	was := d.files()
	d.later(life * 7 / 10)
	d.command()
	is := d.files()
	for name, left := range map[string]map[string]string{
		"before the request":    {"identity.key.next": is["identity.key"]},
		"after the CAs":         {"identity.key.next": is["identity.key"], "ca.crt": is["ca.crt"]},
		"after the certificate": {"identity.key.next": is["identity.key"], "ca.crt": is["ca.crt"], "identity.crt": is["identity.crt"]},
		"torn":                  {"identity.key.next": "-----BEGIN"},
	} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			d.put(was)
			d.put(left)
			if w := d.command(); len(w) > 0 {
				t.Errorf("warned of %v", w)
			}
			now := d.clock()
			d.later(life * 7 / 10)
			if name == "after the certificate" {
				if w := d.command(); len(w) > 0 {
					t.Errorf("then warned of %v", w)
				}
			}
			d.fits()
			d.mu.Lock()
			d.now = now
			d.mu.Unlock()
		})
	}
}

// TestCommandsAtOnce: one renews, and nobody breaks the folder for another.
func TestCommandsAtOnce(t *testing.T) {
	d := newDesk(t)
	d.later(life * 7 / 10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { d.command() })
	}
	all.Wait()
	d.fits()
	// A busy machine may miss an answer: then another asks once more, for the same key.
	if keys := slices.Compact(slices.Clone(d.renewals)); len(keys) != 1 {
		t.Errorf("renewed for %d keys: %v", len(keys), keys)
	}
}

// TestFolderThatCannotBeWritten is as good for commands as any.
func TestFolderThatCannotBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can write anywhere")
	}
	d := newDesk(t)
	d.later(life * 7 / 10)
	if err := os.Chmod(d.dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(d.dir, 0o700) })
	if w := d.command(); len(w) != 1 || len(d.renewals) != 0 {
		t.Errorf("warned of %v, %d renewals", w, len(d.renewals))
	}
}
