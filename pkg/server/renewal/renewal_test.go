package renewal_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/renewal"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const ttl = 90 * 24 * time.Hour

type fixture struct {
	*renewal.Service
	now      time.Time
	operator error
	agentKey error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	ca, err := pki.NewCA(pki.CAConfig{Cluster: "example", Key: key, Now: f.now, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	f.Service = renewal.New(renewal.Config{
		CA: ca, Bundle: func() []byte { return []byte("bundle") }, TTL: ttl, Random: rand.Reader,
		Operator: func(context.Context, pki.Caller) error { return f.operator },
		AgentKey: func(context.Context, pki.Caller, string) error { return f.agentKey },
		Now:      func() time.Time { return f.now }, Logger: slog.New(slog.DiscardHandler),
	})
	return f
}

// renew renews with a new key, and returns the certificate's expiry.
func (f *fixture) renew(t *testing.T, c pki.Caller) (time.Time, error) {
	t.Helper()
	key, err := pki.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodePublicKey(pki.PublicKey(key))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Renew(rpc.WithCaller(t.Context(), c), string(text))
	return got.GetNotAfter().AsTime(), err
}

func agentCaller(n int) pki.Caller {
	return pki.Caller{Role: pki.RoleAgent, Cluster: "example", Tenant: "default", ID: fmt.Sprintf("knd%026d", n)}
}

func TestPaceIsOfOneCaller(t *testing.T) {
	f := newFixture(t)
	for n := range 3000 { // far more than one
		if _, err := f.renew(t, agentCaller(n)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		_, err := f.renew(t, agentCaller(1))
		if want := []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted}[n]; status.Code(rpc.Status(err)) != want {
			t.Errorf("renewal %d within a minute: %v, want %s", n+2, err, want)
		}
	}
	other := agentCaller(1)
	other.Tenant = "prod"
	if _, err := f.renew(t, other); err != nil {
		t.Errorf("another tenant's instance pays for it: %v", err)
	}
	f.now = f.now.Add(time.Minute)
	if _, err := f.renew(t, agentCaller(1)); err != nil {
		t.Errorf("after a minute: %v", err)
	}
	f.now = f.now.Add(-time.Hour)
	for range 3 {
		if _, err := f.renew(t, agentCaller(1)); err != nil {
			t.Errorf("after the clock was set back: %v", err)
		}
	}
}

// TestLifeIsNotCutShort: a longer lifetime is kept, but an operator's is at most 90 days.
func TestLifeIsNotCutShort(t *testing.T) {
	f := newFixture(t)
	const long = 120 * 24 * time.Hour
	operator := pki.Caller{Role: pki.RoleOperator, Tenant: "default", ID: "opr1"}
	for _, c := range []struct {
		of         pki.Caller
		left, want time.Duration
	}{
		{agentCaller(1), time.Hour, ttl}, {agentCaller(1), ttl, ttl}, {agentCaller(1), long, long},
		{operator, time.Hour, ttl}, {operator, ttl, ttl}, {operator, long, pki.MaxOperatorLife},
	} {
		f.now = f.now.Add(time.Hour)
		c.of.NotAfter = f.now.Add(c.left)
		if end, err := f.renew(t, c.of); err != nil || end.Sub(f.now) != c.want {
			t.Errorf("with %s left the new one of %s is good for %s, %v, want %s", c.left, c.of.Role, end.Sub(f.now), err, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t)
	f.operator = rpc.CertificateRevoked.Errorf("there is no such operator")
	for want, c := range map[codes.Code]pki.Caller{
		codes.PermissionDenied: {Role: pki.RoleServer, Shard: "dev-1"},
		codes.Unauthenticated:  {Role: pki.RoleOperator, Tenant: "default", ID: "opr1"},
	} {
		if _, err := f.renew(t, c); status.Code(rpc.Status(err)) != want {
			t.Errorf("%s got %v, want %s", c.Role, err, want)
		}
	}
	f.agentKey = rpc.KeyInUse
	if _, err := f.renew(t, agentCaller(1)); !rpc.KeyTaken(rpc.Status(err)) ||
		!strings.Contains(err.Error(), "public_key: this key belongs to another") {
		t.Errorf("with the key of another instance: %v", err)
	}
	if _, err := f.Renew(t.Context(), ""); status.Code(rpc.Status(err)) != codes.Unauthenticated {
		t.Errorf("without a certificate: %v", err)
	}
}
