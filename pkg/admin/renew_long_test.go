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

// follower is the part of a desk that is watched.
type follower struct {
	watches []string      // the serials that watch groups
	broken  chan struct{} // closed: what is watched ends
}

// WatchGroups implements OperatorServiceServer.
func (d *desk) WatchGroups(_ *nstancev1.WatchGroupsRequest, stream grpc.ServerStreamingServer[nstancev1.WatchGroupsResponse]) error {
	caller, _ := rpc.CallerFrom(stream.Context())
	d.mu.Lock()
	d.watches = append(d.watches, caller.Serial)
	d.broken = make(chan struct{})
	broken := d.broken
	d.mu.Unlock()
	select {
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-broken:
		return rpc.Exhausted.Errorf("read faster") // the connection is as good as before
	}
}

// shown are the serials that have opened a watch, and how many renewals there were.
func (d *desk) shown() (serials []string, renewals int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.watches), len(d.renewals)
}

// client is one process with the folder's identity. It puts what it was warned of
// where it is read from.
func (d *desk) client() (*admin.Client, <-chan error) {
	d.t.Helper()
	id, err := admin.LoadIdentity(d.dir, d.clock, rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	warnings := make(chan error, 100)
	c := admin.NewClient(admin.Config{Identity: id, UserAgent: "test", Random: mathrand.Float64, Warn: func(err error) { warnings <- err }})
	d.t.Cleanup(c.Close)
	return c, warnings
}

// follow watches until the test ends.
func (d *desk) follow(c *admin.Client) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Watch(ctx, []client.Shard{d.shard}, []string{client.WatchGroups}, func(admin.Event) error { return nil })
	}()
	d.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Errorf("the watch ended with %v", err)
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

// TestWatchRenewsFirst: a watch is a use like any other.
func TestWatchRenewsFirst(t *testing.T) {
	d := newDesk(t)
	c, _ := d.client()
	if _, err := c.ListGroups(t.Context(), []client.Shard{d.shard}); err != nil {
		t.Fatal(err)
	}
	d.later(life * 7 / 10)
	c, _ = d.client()
	d.follow(c)
	eventually(t, "a watch with the new certificate", func() error {
		if serials, n := d.shown(); len(serials) != 1 || n != 1 || serials[0] == d.calls[0] {
			return fmt.Errorf("watched by %v, %d renewals", serials, n)
		}
		return nil
	})
	d.fits()
}

// TestWatchRenewsWhileItLasts: within one stream, which goes on; the next one is
// opened with the new certificate, on a connection of its own.
func TestWatchRenewsWhileItLasts(t *testing.T) {
	d := newDeskFor(t, 3*time.Second)
	c, warnings := d.client()
	d.follow(c)
	eventually(t, "a watch", func() error {
		if serials, n := d.shown(); len(serials) != 1 || n != 0 {
			return fmt.Errorf("watched by %v, %d renewals", serials, n)
		}
		return nil
	})
	d.later(2200 * time.Millisecond) // of the 3 s; the client counts them for itself
	eventually(t, "a renewal", func() error {
		if serials, n := d.shown(); len(serials) != 1 || n != 1 {
			return fmt.Errorf("watched by %v, %d renewals, %d warnings", serials, n, len(warnings))
		}
		return nil
	})
	eventually(t, "the new identity", func() error {
		if _, there := d.files()["identity.key.next"]; there {
			return errors.New("it is being written")
		}
		return nil
	})
	d.fits()
	d.later(time.Second) // the first certificate is over
	d.mu.Lock()
	close(d.broken)
	d.mu.Unlock()
	eventually(t, "another watch", func() error {
		if serials, _ := d.shown(); len(serials) != 2 || serials[0] == serials[1] {
			return fmt.Errorf("watched by %v", serials)
		}
		return nil
	})
}

// TestLongProcessRenews: one that goes on asking for months, such as a drain, asks
// with a certificate that is good.
func TestLongProcessRenews(t *testing.T) {
	d := newDesk(t)
	c, warnings := d.client()
	for month := range 12 {
		if _, err := c.ListGroups(t.Context(), []client.Shard{d.shard}); err != nil {
			t.Fatalf("in month %d: %v", month, err)
		}
		d.later(life / 3)
	}
	if _, n := d.shown(); n < 5 || len(warnings) > 0 {
		t.Errorf("%d renewals, %d warnings", n, len(warnings))
	}
	d.fits()
}

// TestLongProcessThatCannotRenew goes on, says so now and then, and tries again.
func TestLongProcessThatCannotRenew(t *testing.T) {
	d := newDesk(t)
	c, warnings := d.client()
	d.bad = func(*nstancev1.Identity) error { return rpc.Denied.Errorf("not now") }
	d.later(life * 7 / 10)
	ask := func(times int) {
		t.Helper()
		for range times {
			if _, err := c.ListGroups(t.Context(), []client.Shard{d.shard}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(1)
	if len(warnings) != 1 {
		t.Errorf("%d warnings", len(warnings))
	}
	ask(20)
	if len(warnings) != 1 {
		t.Errorf("%d warnings of one moment", len(warnings))
	}
	d.mu.Lock()
	d.bad = nil
	d.mu.Unlock()
	d.later(11 * time.Minute)
	ask(2)
	d.fits()
	if n := len(d.calls); d.calls[n-1] == d.calls[0] || len(warnings) != 1 {
		t.Errorf("the calls showed %v; %d warnings", d.calls, len(warnings))
	}
}
