package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// describe returns a short text of an event.
func describe(e *clientv3.Event) string {
	prev := "nothing"
	if e.PrevKv != nil {
		prev = string(e.PrevKv.Value)
	}
	return fmt.Sprintf("%s %s %q was %q new %v", e.Type, e.Kv.Key, e.Kv.Value, prev, e.IsCreate())
}

// collect reads n events.
func collect(t *testing.T, from clientv3.WatchChan, n int) []string {
	t.Helper()
	var out []string
	deadline := time.After(3 * time.Minute)
	for len(out) < n {
		select {
		case resp := <-from:
			if err := resp.Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range resp.Events {
				out = append(out, describe(e))
			}
		case <-deadline:
			t.Fatalf("%d events instead of %d: %v", len(out), n, out)
		}
	}
	return out
}

func TestWatch(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		rev := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(1))).Header.Revision
		now := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		if resp := <-now; !resp.Created {
			t.Fatalf("the first response: %+v", resp)
		}
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(2)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, "/registry/podtemplates/default/x", text(9)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(2), text(1)))
		must[*clientv3.DeleteResponse](t)(c.Delete(ctx, pod(1)))
		want := []string{
			fmt.Sprintf("PUT %s %q was %q new false", pod(1), text(2), text(1)),
			fmt.Sprintf("PUT %s %q was %q new true", pod(2), text(1), "nothing"),
			fmt.Sprintf("DELETE %s %q was %q new false", pod(1), "", text(2)),
		}
		if got := collect(t, now, 3); !slices.Equal(got, want) {
			t.Errorf("from the current revision:\n%v, want\n%v", got, want)
		}
		from := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(rev+1))
		if got := collect(t, from, 3); !slices.Equal(got, want) {
			t.Errorf("from a revision:\n%v, want\n%v", got, want)
		}
		one := c.Watch(ctx, pod(2), clientv3.WithRev(rev), clientv3.WithFilterDelete())
		if got := collect(t, one, 1); got[0] != fmt.Sprintf("PUT %s %q was %q new true", pod(2), text(1), "nothing") {
			t.Errorf("one key: %v", got)
		}
	})
}

// TestProgress: a progress notification means that the watch has delivered all events up to its
// revision. kube-apiserver relies on it to serve consistent lists from its cache.
func TestProgress(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(t.Context()), 3*time.Minute)
		defer cancel()
		watch := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
		<-watch
		var last int64
		for i := range 50 {
			last = must[*clientv3.PutResponse](t)(c.Put(ctx, pod(i), text(i))).Header.Revision
		}
		seen := 0
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C: // etcd ignores a request while a watch is behind
				if err := c.RequestProgress(ctx); err != nil {
					t.Fatal(err)
				}
			case resp := <-watch:
				seen += len(resp.Events)
				if resp.IsProgressNotify() && resp.Header.Revision >= last {
					if seen != 50 {
						t.Errorf("progress to revision %d after %d of 50 events", resp.Header.Revision, seen)
					}
					return
				}
			case <-ctx.Done():
				t.Fatal("no progress")
			}
		}
	})
}

// TestSlowWatch: a watch from a revision that is not kept any more ends with the compacted
// revision.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	s, c := serveFiles(t, store.Config{Root: t.TempDir(), History: 20})
	for i := range 50 {
		must[*clientv3.PutResponse](t)(c.Put(t.Context(), "key", fmt.Sprint(i)))
	}
	if compacted := s.Compacted(); compacted < 20 {
		t.Errorf("compacted up to %d", compacted)
	}
	resp := <-c.Watch(t.Context(), "key", clientv3.WithRev(2))
	if resp.CompactRevision != s.Compacted() {
		t.Errorf("response %+v", resp)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		short := must[*clientv3.LeaseGrantResponse](t)(c.Grant(ctx, 20)) // long enough for the puts
		long := must[*clientv3.LeaseGrantResponse](t)(c.Grant(ctx, 600))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(1), clientv3.WithLease(short.ID)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(2), text(1), clientv3.WithLease(long.ID)))
		moved := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(3), text(1), clientv3.WithLease(short.ID)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(3), text(2)))
		watch := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithRev(moved.Header.Revision+2))
		if got := collect(t, watch, 1); got[0] != fmt.Sprintf("DELETE %s \"\" was \"nothing\" new false", pod(1)) {
			t.Errorf("after the expiry: %v", got)
		}
		remaining := must[*clientv3.LeaseTimeToLiveResponse](t)(c.TimeToLive(ctx, long.ID, clientv3.WithAttachedKeys()))
		if remaining.GrantedTTL != 600 || remaining.TTL < 500 || len(remaining.Keys) != 1 || string(remaining.Keys[0]) != pod(2) {
			t.Errorf("the remaining lease: %+v", remaining)
		}
		if expired := must[*clientv3.LeaseTimeToLiveResponse](t)(c.TimeToLive(ctx, short.ID)); expired.TTL != -1 {
			t.Errorf("the expired lease: %+v", expired)
		}
		alive := must[*clientv3.LeaseKeepAliveResponse](t)(c.KeepAliveOnce(ctx, long.ID))
		if alive.TTL != 600 {
			t.Errorf("kept alive: %+v", alive)
		}
		must[*clientv3.LeaseRevokeResponse](t)(c.Revoke(ctx, long.ID))
		got := must[*clientv3.GetResponse](t)(c.Get(ctx, "/registry/pods/", clientv3.WithPrefix()))
		if got.Count != 1 || string(got.Kvs[0].Value) != text(2) {
			t.Errorf("after the revocation: %v", got)
		}
		if _, err := c.Put(ctx, pod(4), text(1), clientv3.WithLease(long.ID)); err == nil {
			t.Error("a put with a revoked lease succeeded")
		}
	})
}
