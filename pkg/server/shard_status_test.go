package server_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/server"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestShardStatus: operators learn which server leads, since when and until when, and how many stand by.
func TestShardStatus(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		began := time.Now()
		q := s.start(named("b"))
		q.awaitPeer()
		time.Sleep(3 * time.Minute) // many renewals
		of := func(r *process) *nstancev1.GetShardStatusResponse {
			t.Helper()
			is, err := r.operator("default").GetShardStatus(within(t), &nstancev1.GetShardStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			if renewed := is.GetLeaseRenewedAt().AsTime(); renewed.After(now) || now.Sub(renewed) > time.Minute {
				t.Errorf("renewed at %s, now it is %s", renewed, now)
			}
			if ends := is.GetLeaseEndsAt().AsTime(); !ends.After(now) || ends.Sub(now) > time.Minute {
				t.Errorf("the lease ends at %s, now it is %s", ends, now)
			}
			return is
		}
		before := of(p)
		if before.GetLeader() != "a" || before.GetEpoch() != 1 || before.GetStandbys() != 1 || before.GetLeadingSince().AsTime().After(began) {
			t.Errorf("with a standby: %v", before)
		}
		if _, err := q.operator("default").GetShardStatus(within(t), &nstancev1.GetShardStatusRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a standby answers %v", err)
		}
		ended := time.Now()
		p.stop()
		q.awaitLeading()
		p.ends()
		after := of(q)
		if after.GetLeader() != "b" || after.GetEpoch() != 2 || after.GetStandbys() != 0 || after.GetLeadingSince().AsTime().Before(ended) {
			t.Errorf("after the handover: %v", after)
		}
	})
}

// TestInstanceFacts: an instance's status says until when the certificate of its agent is valid, also after
// it was renewed, and whether it has the newest files; without a connection neither is known.
func TestInstanceFacts(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := furnished(t, `"default": { "web": { "template": "knd", "size": 1 } }`)
		const life = time.Hour
		p := s.start(func(c *server.Config) { c.Times.ClientCertificate = life })
		g := s.inhabit(p, func(g *guests) { g.calm = true })
		p.awaitSize("web", 1)
		id := s.living()[0]
		of := func() *nstancev1.InstanceStatus {
			resp, err := p.operator("default").GetInstanceStatus(within(t), &nstancev1.GetInstanceStatusRequest{Id: string(id)})
			if err != nil {
				t.Fatal(err)
			}
			return resp.GetInstance()
		}
		g.awaitFile(id, "app.conf", "info "+string(id))
		eventually(t, "the files are up to date", func() error {
			if !of().GetFilesUpToDate() {
				return errors.New("they are not")
			}
			return nil
		})
		first := of().GetCertificateExpiresAt().AsTime()
		if left := time.Until(first); left <= 0 || left > life {
			t.Errorf("the certificate is valid for %s, want at most %s", left, life)
		}
		time.Sleep(time.Until(first) - time.Minute)
		if second := of(); !second.GetConnected() || !second.GetCertificateExpiresAt().AsTime().After(first) {
			t.Errorf("a minute before %s: %v", first, second)
		}
		g.stop[id]()
		eventually(t, "the agent is gone", func() error {
			if now := of(); now.GetConnected() || now.GetCertificateExpiresAt() != nil || now.FilesUpToDate != nil {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
	})
}
