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
func (w *world) keep(ctx context.Context, id *identity.Identity) error {
	c := client.New(client.Config{TLS: id.TLS, UserAgent: "test", Random: func() float64 { return 0.5 }})
	w.t.Cleanup(c.Close)
	return registration.Keep(ctx, id, registration.KeepConfig{
		Client: c, Timeout: 2 * time.Second, Now: time.Now, Random: func() float64 { return 0 }, Logger: slog.New(slog.DiscardHandler),
		Shards: func() []client.Shard {
			return []client.Shard{{ID: "one", Addrs: []string{w.one.Operator}}, {ID: "two", Addrs: []string{w.two.Operator}}}
		},
	})
}

// TestKeep: certificates of a short life are renewed again and again, each is stored,
// and another start takes the newest.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	w.Life = 6 * time.Second
	w.given(registrationtest.Nonce)
	id := w.open()
	first := id.Certificate()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	kept := make(chan error, 1)
	go func() { kept <- w.keep(ctx, id) }()
	for w.Renewals() < 2 && ctx.Err() == nil {
		select {
		case err := <-kept:
			t.Fatalf("it ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	stop()
	if err := <-kept; err != nil {
		t.Errorf("asked to stop: %v", err)
	}
	again := w.open()
	if w.Renewals() < 2 || again.Certificate().Equal(first) || again.ID() != id.ID() || len(w.Asked()) != 1 {
		t.Errorf("%d renewals, %d registrations", w.Renewals(), len(w.Asked()))
	}
}

// TestKeepEnds: an operator whose certificate ends is of no use until it starts anew.
func TestKeepEnds(t *testing.T) {
	w := newWorld(t)
	w.Life = 3 * time.Second
	w.given(registrationtest.Nonce)
	id := w.open()
	w.RefuseRenewals()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	err := w.keep(ctx, id)
	if err == nil || !strings.Contains(err.Error(), "ended at") {
		t.Errorf("it ended with %v", err)
	}
}
