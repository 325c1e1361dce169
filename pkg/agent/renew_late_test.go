package agent_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/pki"
)

// TestExpiredWhileDown: the agent says what is wrong, and does not hammer the
// servers.
func TestExpiredWhileDown(t *testing.T) {
	inWorld(t, func(w *world) {
		w.up("10.0.0.1")
		p := w.start(w.rare())
		settle(time.Second)
		p.end()
		settle(25 * time.Hour)
		var log strings.Builder
		c := w.rare()
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		before := w.dialed()
		p = w.start(c)
		settle(6 * time.Hour)
		p.end()
		for _, want := range []string{"level=ERROR", "the certificate has ended", "nonce to get another with is spent"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
		if dials := w.dialed() - before; dials > 1000 {
			t.Errorf("%d dials in six hours", dials)
		}
	})
	inWorld(t, func(w *world) {
		w.up("10.0.0.1")
		p := w.start(w.rare())
		settle(time.Second)
		p.end()
		settle(25 * time.Hour)
		p = w.start(w.rare())
		settle(time.Minute)
		if s := w.status(); s.State != agent.StateExpired || !strings.Contains(s.Reason, "certificate ended at") {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}

// TestSleptThroughTheRenewal: a machine that was suspended renews when it wakes.
func TestSleptThroughTheRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		server, c := w.up("10.0.0.1"), w.rare()
		var asleep atomic.Int64
		c.Now = func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }
		p := w.start(c)
		settle(30 * time.Minute)
		asleep.Store(int64(20 * time.Hour)) // only its wall clock knows
		settle(time.Hour)
		if got := server.renewed(); len(got) == 0 {
			t.Error("not renewed within an hour of its waking")
		}
		p.end()
	})
}

// TestClockThatIsFarAhead: every certificate seems to be due at once, and the
// server is asked seldom all the same.
func TestClockThatIsFarAhead(t *testing.T) {
	for _, ahead := range []time.Duration{23 * time.Hour, 200 * time.Hour} {
		inWorld(t, func(w *world) {
			server, c := w.up("10.0.0.1"), w.rare()
			var wrong atomic.Int64
			c.Now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
			p := w.start(c)
			settle(time.Minute)
			wrong.Store(int64(ahead))
			settle(12 * time.Hour)
			if n := len(server.renewed()); n < 8 || n > 30 {
				t.Errorf("%d renewals in 12 hours with a clock that is %s ahead", n, ahead)
			}
			if s := server.seen(); s.streams != 1 {
				t.Errorf("%d health streams", s.streams)
			}
			p.end()
		})
	}
}

// TestServersOfEitherCA: an agent that was given two CAs, in whatever order,
// follows to a server whose certificate the other one signed.
func TestServersOfEitherCA(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		t.Run(fmt.Sprint(reversed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				key := must(pki.GenerateKey(rand.Reader))(t)
				next := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: time.Now(), Random: rand.Reader}))(t)
				bundle := pki.NewBundle(w.ca.Certificate(), next.Certificate())
				if reversed {
					bundle = pki.NewBundle(next.Certificate(), w.ca.Certificate())
				}
				server := w.up("10.0.0.1")
				server.set(func() { server.chain = string(bundle.PEM()) })
				w.trusted = bundle
				p := w.start(w.rare())
				settle(time.Second)
				if w.file("ca.crt") != string(bundle.PEM()) {
					t.Fatal("the answer's CAs were not stored")
				}
				server.down()
				w.ca = next // servers have moved on to the new key, and trust both
				server.start()
				settle(20 * time.Second)
				if s := w.status(); s.State != agent.StateConnected {
					t.Errorf("not connected to a server of the other CA: %+v", s)
				}
				settle(17 * time.Hour)
				cert := w.pair().Certificate()
				if err := cert.CheckSignatureFrom(next.Certificate()); err != nil {
					t.Errorf("the renewed certificate is not of the new CA: %v", err)
				}
				server.set(func() { server.chain = "" })
				w.trusted = nil // the old CA is dropped
				settle(17 * time.Hour)
				server.down()
				server.start()
				settle(20 * time.Second)
				if s := w.status(); s.State != agent.StateConnected || strings.Count(w.file("ca.crt"), "BEGIN") != 1 {
					t.Errorf("after the old CA was dropped: %+v", s)
				}
				p.end()
			})
		})
	}
}
