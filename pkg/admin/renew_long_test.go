package admin_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// follower is the part of the fixture that serves watches.
type follower struct {
	watches []string      // the certificates' serials of WatchGroups calls
	broken  chan struct{} // closed to end the current watch
}

// WatchGroups implements OperatorServiceServer.
func (f *fixture) WatchGroups(_ *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	caller, _ := rpc.CallerFrom(stream.Context())
	f.mu.Lock()
	f.watches = append(f.watches, caller.Serial)
	f.broken = make(chan struct{})
	broken := f.broken
	f.mu.Unlock()
	select {
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-broken:
		return rpc.Exhausted.Errorf("read faster") // ends the stream but not the connection
	}
}

// watchSerials returns the serials of WatchGroups calls, and the number of renewals.
func (f *fixture) watchSerials() (serials []string, renewals int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.watches), len(f.renewals)
}

// client returns a client with the folder's identity, as a long-running process has, and its
// warnings.
func (f *fixture) client() (*admin.Client, <-chan error) {
	f.t.Helper()
	id, err := admin.LoadIdentity(f.dir, f.clock, rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	warnings := make(chan error, 100)
	c := admin.NewClient(admin.Config{Identity: id, UserAgent: "test", Random: mathrand.Float64, Warn: func(err error) { warnings <- err }})
	f.t.Cleanup(c.Close)
	return c, warnings
}

// watch watches groups until the test ends.
func (f *fixture) watch(c *admin.Client) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Watch(ctx, []client.Shard{f.shard}, []string{client.WatchGroups}, func(admin.Event) error { return nil })
	}()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the watch: %v", err)
		}
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	err := errors.New("not yet")
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// TestWatchRenewsFirst: an identity that is due is renewed before a watch is opened.
func TestWatchRenewsFirst(t *testing.T) {
	f := newFixture(t)
	c, _ := f.client()
	if _, err := c.ListGroups(t.Context(), []client.Shard{f.shard}, client.Parts{}); err != nil {
		t.Fatal(err)
	}
	f.advance(lifetime * 7 / 10)
	c, _ = f.client()
	f.watch(c)
	eventually(t, "a watch with the new certificate", func() error {
		if serials, n := f.watchSerials(); len(serials) != 1 || n != 1 || serials[0] == f.calls[0] {
			return fmt.Errorf("watches of %v, %d renewals", serials, n)
		}
		return nil
	})
	f.wantValidPair()
}

// TestWatchRenewsWhileOpen: the identity is renewed during a stream, which stays open; the next
// stream uses the new certificate, on a new connection.
func TestWatchRenewsWhileOpen(t *testing.T) {
	f := newFixtureWithTTL(t, 3*time.Second)
	c, warnings := f.client()
	f.watch(c)
	eventually(t, "a watch", func() error {
		if serials, n := f.watchSerials(); len(serials) != 1 || n != 0 {
			return fmt.Errorf("watches of %v, %d renewals", serials, n)
		}
		return nil
	})
	f.advance(2200 * time.Millisecond) // of 3 s; the client also waits for that in real time
	eventually(t, "a renewal", func() error {
		if serials, n := f.watchSerials(); len(serials) != 1 || n != 1 {
			return fmt.Errorf("watches of %v, %d renewals, %d warnings", serials, n, len(warnings))
		}
		return nil
	})
	eventually(t, "the new identity", func() error {
		if _, exists := f.files()["identity.key.next"]; exists {
			return errors.New("identity.key.next exists")
		}
		return nil
	})
	f.wantValidPair()
	f.advance(time.Second) // the first certificate has expired
	f.mu.Lock()
	close(f.broken)
	f.mu.Unlock()
	eventually(t, "another watch", func() error {
		if serials, _ := f.watchSerials(); len(serials) != 2 || serials[0] == serials[1] {
			return fmt.Errorf("watches of %v", serials)
		}
		return nil
	})
}

// TestLongRunningProcessRenews: a process that makes calls for months, such as a drain, always
// has a valid certificate.
func TestLongRunningProcessRenews(t *testing.T) {
	f := newFixture(t)
	c, warnings := f.client()
	for month := range 12 {
		if _, err := c.ListGroups(t.Context(), []client.Shard{f.shard}, client.Parts{}); err != nil {
			t.Fatalf("in month %d: %v", month, err)
		}
		f.advance(lifetime / 3)
	}
	if _, n := f.watchSerials(); n < 5 || len(warnings) > 0 {
		t.Errorf("%d renewals, %d warnings", n, len(warnings))
	}
	f.wantValidPair()
}

// TestLongRunningProcessRetriesRenewal: a process whose renewal fails continues, warns now and
// then, and retries.
func TestLongRunningProcessRetriesRenewal(t *testing.T) {
	f := newFixture(t)
	c, warnings := f.client()
	f.tamper = func(*nstancev1.Identity) error { return rpc.Denied.Errorf("not now") }
	f.advance(lifetime * 7 / 10)
	list := func(times int) {
		t.Helper()
		for range times {
			if _, err := c.ListGroups(t.Context(), []client.Shard{f.shard}, client.Parts{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	list(1)
	if len(warnings) != 1 {
		t.Errorf("%d warnings", len(warnings))
	}
	list(20)
	if len(warnings) != 1 {
		t.Errorf("%d warnings without a pause", len(warnings))
	}
	f.mu.Lock()
	f.tamper = nil
	f.mu.Unlock()
	f.advance(11 * time.Minute)
	list(2)
	f.wantValidPair()
	if n := len(f.calls); f.calls[n-1] == f.calls[0] || len(warnings) != 1 {
		t.Errorf("calls with the certificates %v; %d warnings", f.calls, len(warnings))
	}
}
