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

// TestExpiredWhileDown: the agent logs the reason, and does not overload the servers.
func TestExpiredWhileDown(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.up("10.0.0.1")
		p := f.start(f.rare())
		settle(time.Second)
		p.end()
		settle(25 * time.Hour)
		var log strings.Builder
		c := f.rare()
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		before := f.dialed()
		p = f.start(c)
		settle(6 * time.Hour)
		p.end()
		for _, want := range []string{"level=ERROR", "the certificate has expired", "nonce to get another one is spent"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
		if dials := f.dialed() - before; dials > 1000 {
			t.Errorf("%d dials in six hours", dials)
		}
	})
	withFixture(t, func(f *fixture) {
		f.up("10.0.0.1")
		p := f.start(f.rare())
		settle(time.Second)
		p.end()
		settle(25 * time.Hour)
		p = f.start(f.rare())
		settle(time.Minute)
		if s := f.status(); s.State != agent.StateExpired || !strings.Contains(s.Reason, "certificate expired at") {
			t.Errorf("status %+v", s)
		}
		p.end()
	})
}

// TestSleptThroughTheRenewal: a machine that was suspended renews when it wakes.
func TestSleptThroughTheRenewal(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server, c := f.up("10.0.0.1"), f.rare()
		var asleep atomic.Int64
		c.Now = func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }
		p := f.start(c)
		settle(30 * time.Minute)
		asleep.Store(int64(20 * time.Hour)) // only the wall clock advances
		settle(time.Hour)
		if got := server.renewed(); len(got) == 0 {
			t.Error("not renewed within an hour of its waking")
		}
		p.end()
	})
}

// TestClockThatIsFarAhead: every certificate seems due at once, but the server is still called
// rarely.
func TestClockThatIsFarAhead(t *testing.T) {
	for _, ahead := range []time.Duration{23 * time.Hour, 200 * time.Hour} {
		withFixture(t, func(f *fixture) {
			server, c := f.up("10.0.0.1"), f.rare()
			var wrong atomic.Int64
			c.Now = func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
			p := f.start(c)
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

// TestServersOfEitherCA: an agent that was given two CAs, in any order, connects to a server
// whose certificate was signed by either.
func TestServersOfEitherCA(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		t.Run(fmt.Sprint(reversed), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				key := must(pki.GenerateKey(rand.Reader))(t)
				next := must(pki.NewCA(pki.CAConfig{Cluster: cluster, Key: key, Now: time.Now(), Random: rand.Reader}))(t)
				bundle := pki.NewBundle(f.ca.Certificate(), next.Certificate())
				if reversed {
					bundle = pki.NewBundle(next.Certificate(), f.ca.Certificate())
				}
				server := f.up("10.0.0.1")
				server.set(func() { server.chain = string(bundle.PEM()) })
				f.trusted = bundle
				p := f.start(f.rare())
				settle(time.Second)
				if f.file("ca.crt") != string(bundle.PEM()) {
					t.Fatal("the answer's CAs were not stored")
				}
				server.down()
				f.ca = next // servers use the new key, and trust both CAs
				server.start()
				settle(20 * time.Second)
				if s := f.status(); s.State != agent.StateConnected {
					t.Errorf("not connected to a server of the other CA: %+v", s)
				}
				settle(17 * time.Hour)
				cert := f.pair().Certificate()
				if err := cert.CheckSignatureFrom(next.Certificate()); err != nil {
					t.Errorf("the renewed certificate is not of the new CA: %v", err)
				}
				server.set(func() { server.chain = "" })
				f.trusted = nil // the old CA is dropped
				settle(17 * time.Hour)
				server.down()
				server.start()
				settle(20 * time.Second)
				if s := f.status(); s.State != agent.StateConnected || strings.Count(f.file("ca.crt"), "BEGIN") != 1 {
					t.Errorf("after the old CA was dropped: %+v", s)
				}
				p.end()
			})
		})
	}
}
