package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// list lists the groups of a shard; the only group's key is the server's address.
func list(ctx context.Context, c *client.Client, s client.Shard) (string, error) {
	return client.Call(ctx, c, s, func(ctx context.Context, s client.Service) (string, error) {
		answer, err := s.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		if err != nil {
			return "", err
		}
		return answer.GetGroups()[0].GetKey(), nil
	})
}

func TestCallFollowsTheLeader(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.up("one", "10.0.0.1"), f.up("one", "10.0.0.2")
		a.set(func() { a.leader = b.addr })
		var asked []string
		c := f.client(func(cfg *client.Config) {
			cfg.Before = func(_ context.Context, s client.Shard) { asked = append(asked, s.ID) }
		})
		shard := client.Shard{ID: "one", Addrs: []string{a.addr}}
		for range 2 {
			if got, err := list(f.t.Context(), c, shard); got != b.addr || err != nil {
				t.Fatalf("answered by %q, %v", got, err)
			}
		}
		if !slices.Equal(asked, []string{"one", "one"}) {
			t.Errorf("before the calls: %v", asked)
		}
	})
}

// TestCallWaits: a call waits for a leader, reports that it waits, and continues at once when
// there is one.
func TestCallWaits(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		s.set(func() { s.refuse = rpc.Unavailable.Errorf("the store is away") })
		var told []error
		c := f.client(func(cfg *client.Config) { cfg.Waiting = func(_ string, err error) { told = append(told, err) } })
		shard := client.Shard{ID: "one", Addrs: []string{s.addr}}
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		_, err := list(ctx, c, shard)
		var failed *client.ShardError
		if !errors.As(err, &failed) || failed.Shard != "one" || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if text := err.Error(); !strings.Contains(text, "shard one: no leader answered in time: the store is away") {
			t.Errorf("it says %q", text)
		}
		if n := len(told); n < 3 || told[n-1] != nil || told[0] == nil || !strings.HasPrefix(told[0].Error(), "shard one: ") {
			t.Errorf("told %v", told)
		}
		time.AfterFunc(3*time.Second, func() { s.set(func() { s.refuse = nil }) })
		if _, err := list(f.t.Context(), c, shard); err != nil {
			t.Error(err)
		}
	})
}

// TestCallPatience: a call looks for a leader for as long as it has patience, and waits for an answer for as
// long as its context lasts.
func TestCallPatience(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		c := f.client(func(cfg *client.Config) { cfg.Patience = 5 * time.Second })
		shard := client.Shard{ID: "one", Addrs: []string{s.addr}}
		if _, err := client.Call(f.t.Context(), c, shard, func(ctx context.Context, s client.Service) (*nstancev1.ListGroupsResponse, error) {
			time.Sleep(time.Minute)
			return s.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
		}); err != nil {
			t.Errorf("an answer that takes longer: %v", err)
		}
		s.set(func() { s.refuse = rpc.Unavailable.Errorf("another server leads") })
		began := time.Now()
		_, err := list(f.t.Context(), c, shard)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
			t.Errorf("without a leader, after %s: %v", took, err)
		}
	})
}

// TestCallDuringAnOutage: the error says that object storage takes no writes, whichever other address is
// dead, and whether an earlier attempt may have been carried out.
func TestCallDuringAnOutage(t *testing.T) {
	const said = "no write to object storage has succeeded since 03:12"
	unknown := rpc.Unavailable.Errorf("the outcome is unknown")
	for name, c := range map[string]struct {
		refuse error // before the outage
		more   string
	}{
		"from the beginning":       {nil, ""},
		"after an unknown outcome": {unknown, "; an earlier attempt may have been carried out"},
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				s := f.up("one", "10.0.0.1")
				s.set(func() { s.refuse = c.refuse })
				if c.refuse == nil {
					s.set(func() { s.outage = said })
				} else {
					time.AfterFunc(3*time.Second, func() { s.set(func() { s.outage = said }) })
				}
				ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
				defer cancel()
				shard := client.Shard{ID: "one", Addrs: []string{s.addr, "10.0.0.2:8993"}}
				_, err := client.Call(ctx, f.client(nil), shard, func(ctx context.Context, s client.Service) (*nstancev1.DeleteGroupResponse, error) {
					return s.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: "web"})
				})
				if want := "shard one: " + said + "; nothing was changed: try again later" + c.more; err == nil || err.Error() != want {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			})
		})
	}
}

// TestCallReturnsAnAnswer: a call returns any answer other than NOT_LEADER.
func TestCallReturnsAnAnswer(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		s.set(func() { s.refuse = rpc.Denied.Errorf("not yours") })
		_, err := list(f.t.Context(), f.client(nil), client.Shard{ID: "one", Addrs: []string{s.addr}})
		if err == nil || err.Error() != "shard one: not yours" || status.Code(err) != codes.PermissionDenied || client.Transient(err) ||
			len(s.serials) != 1 {
			t.Errorf("%v after %d calls", err, len(s.serials))
		}
	})
}

// TestGather: the results of some shards are returned with the error of the others.
func TestGather(t *testing.T) {
	withFixture(t, func(f *fixture) {
		one, two := f.up("one", "10.0.0.1"), f.up("two", "10.0.0.2")
		two.set(func() { two.refuse = rpc.Denied.Errorf("not yours") })
		shards := []client.Shard{{ID: "two", Addrs: []string{two.addr}}, {ID: "one", Addrs: []string{one.addr}}}
		got, err := client.Gather(f.t.Context(), f.client(nil), shards,
			func(ctx context.Context, shard string, s client.Service) ([]string, error) {
				_, err := s.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
				return []string{shard}, err
			})
		if !slices.Contains(got, "one") || err == nil || !strings.Contains(err.Error(), "shard two: not yours") {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// TestTurnOver: later calls use the new certificate; a renewal always does.
func TestTurnOver(t *testing.T) {
	withFixture(t, func(f *fixture) {
		s := f.up("one", "10.0.0.1")
		c, shard := f.client(nil), client.Shard{ID: "one", Addrs: []string{s.addr}}
		call := func() {
			t.Helper()
			if _, err := list(f.t.Context(), c, shard); err != nil {
				t.Fatal(err)
			}
		}
		call()
		f.source.SetKeypair(f.operator())
		call()
		granted, err := c.RenewCertificate(f.t.Context(), shard, "a key")
		if serial := pki.SerialHex(f.source.Keypair().Certificate()); err != nil || granted.GetCertificate() != serial {
			t.Errorf("asked with %s, %v", granted.GetCertificate(), err)
		}
		if err := c.TurnOver(); err != nil {
			t.Fatal(err)
		}
		call()
		if s.serials[0] != s.serials[1] || s.serials[1] == s.serials[2] {
			t.Errorf("the calls showed %v", s.serials)
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.RenewCertificate(ctx, client.Shard{ID: "two", Addrs: []string{s.addr}}, "a key"); err == nil {
			t.Error("a server of another shard was asked")
		}
	})
}

// TestForget: the next call reconnects, as it does after a change of addresses.
func TestForget(t *testing.T) {
	withFixture(t, func(f *fixture) {
		a, b := f.up("one", "10.0.0.1"), f.up("one", "10.0.0.2")
		c := f.client(nil)
		call := func(s *server) {
			t.Helper()
			if by, err := list(f.t.Context(), c, client.Shard{ID: "one", Addrs: []string{s.addr}}); err != nil || by != s.addr {
				t.Fatalf("answered by %q, %v; want %s", by, err, s.addr)
			}
			f.source.SetKeypair(f.operator())
		}
		call(a)
		c.Forget("one")
		c.Forget("two")
		call(a)
		call(b)
		call(b)
		if a.serials[0] == a.serials[1] || b.serials[0] != b.serials[1] {
			t.Errorf("the calls showed %v and %v", a.serials, b.serials)
		}
	})
}
