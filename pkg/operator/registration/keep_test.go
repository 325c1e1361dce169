package registration_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/operator/registration"
	"github.com/nstance/nstance/pkg/operator/registration/registrationtest"
)

// keep has an operator renew its certificate. The first of its shards is down.
func (f *fixture) keep(ctx context.Context, id *identity.Identity) error {
	c := client.New(client.Config{TLS: id.TLS, UserAgent: "test", Random: func() float64 { return 0.5 }, Dialer: f.dial})
	f.t.Cleanup(c.Close)
	return registration.RunRenewal(ctx, id, registration.RenewalConfig{
		Client: c, Timeout: 2 * time.Second, Now: time.Now, Random: func() float64 { return 0 }, Logger: slog.New(slog.DiscardHandler),
		Shards: func() []client.Shard {
			return []client.Shard{{ID: "one", Addrs: []string{f.one.Operator}}, {ID: "two", Addrs: []string{f.two.Operator}}}
		},
	})
}

// TestKeep: certificates are renewed again and again, each is stored, and another start takes
// the newest.
func TestKeep(t *testing.T) {
	simulated(t, func(t *testing.T, f *fixture) {
		f.Life = 6 * time.Hour // twice of it is less than the life of the shards' certificates
		f.given(registrationtest.Nonce)
		id := f.open()
		first := id.Certificate()
		ctx, stop := context.WithTimeout(t.Context(), 2*f.Life)
		defer stop()
		kept := make(chan error, 1)
		go func() { kept <- f.keep(ctx, id) }()
		for f.Renewals() < 2 && ctx.Err() == nil {
			select {
			case err := <-kept:
				t.Fatalf("it ended: %v", err)
			case <-time.After(time.Minute):
			}
		}
		stop()
		if err := <-kept; err != nil {
			t.Errorf("asked to stop: %v", err)
		}
		again := f.open()
		if f.Renewals() < 2 || again.Certificate().Equal(first) || again.ID() != id.ID() || len(f.Asked()) != 1 {
			t.Errorf("%d renewals, %d registrations", f.Renewals(), len(f.Asked()))
		}
	})
}

// TestKeepEnds: an operator whose certificate ends is of no use until it starts anew.
func TestKeepEnds(t *testing.T) {
	simulated(t, func(t *testing.T, f *fixture) {
		f.given(registrationtest.Nonce)
		id := f.open()
		f.RefuseRenewals()
		ctx, stop := context.WithTimeout(t.Context(), 2*f.Life)
		defer stop()
		err := f.keep(ctx, id)
		if err == nil || !strings.Contains(err.Error(), "expired at") {
			t.Errorf("it ended with %v", err)
		}
	})
}
