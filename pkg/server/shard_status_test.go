package server_test

import (
	"testing"
	"time"

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
