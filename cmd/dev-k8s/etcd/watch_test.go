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

// tell is a short word for an event.
func tell(e *clientv3.Event) string {
	was := "nothing"
	if e.PrevKv != nil {
		was = string(e.PrevKv.Value)
	}
	return fmt.Sprintf("%s %s %q was %q new %v", e.Type, e.Kv.Key, e.Kv.Value, was, e.IsCreate())
}

// collect reads so many events.
func collect(t *testing.T, from clientv3.WatchChan, n int) []string {
	t.Helper()
	var out []string
	late := time.After(time.Minute)
	for len(out) < n {
		select {
		case resp := <-from:
			if err := resp.Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range resp.Events {
				out = append(out, tell(e))
			}
		case <-late:
			t.Fatalf("%d events instead of %d: %v", len(out), n, out)
		}
	}
	return out
}

func TestWatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		rev := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(1))).Header.Revision
		now := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		if resp := <-now; !resp.Created {
			t.Fatalf("the first answer: %+v", resp)
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
			t.Errorf("from now on:\n%v, want\n%v", got, want)
		}
		from := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(rev+1))
		if got := collect(t, from, 3); !slices.Equal(got, want) {
			t.Errorf("from a revision:\n%v, want\n%v", got, want)
		}
		one := c.Watch(ctx, pod(2), clientv3.WithRev(rev), clientv3.WithFilterDelete())
		if got := collect(t, one, 1); got[0] != fmt.Sprintf("PUT %s %q was %q new true", pod(2), text(1), "nothing") {
			t.Errorf("of one key: %v", got)
		}
	})
}

// TestProgress: who asks how far the watches are is told when they have had all up to
// there. kube-apiserver serves consistent lists from its cache by it.
func TestProgress(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *clientv3.Client) {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(t.Context()), time.Minute)
		defer cancel()
		watch := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
		<-watch
		var last int64
		for i := range 50 {
			last = must[*clientv3.PutResponse](t)(c.Put(ctx, pod(i), text(i))).Header.Revision
		}
		seen := 0
		ask := time.NewTicker(100 * time.Millisecond)
		defer ask.Stop()
		for {
			select {
			case <-ask.C: // etcd leaves a question unanswered while a watch is behind
				if err := c.RequestProgress(ctx); err != nil {
					t.Fatal(err)
				}
			case resp := <-watch:
				seen += len(resp.Events)
				if resp.IsProgressNotify() && resp.Header.Revision >= last {
					if seen != 50 {
						t.Errorf("told of revision %d after %d events of 50", resp.Header.Revision, seen)
					}
					return
				}
			case <-ctx.Done():
				t.Fatal("no progress")
			}
		}
	})
}

// TestSlowWatch: one that falls behind what is kept is told so, and takes no memory.
func TestSlowWatch(t *testing.T) {
	t.Parallel()
	s, c := files(t, store.Config{Root: t.TempDir(), History: 20})
	for i := range 50 {
		must[*clientv3.PutResponse](t)(c.Put(t.Context(), "key", fmt.Sprint(i)))
	}
	if compacted := s.Compacted(); compacted < 20 {
		t.Errorf("compacted up to %d", compacted)
	}
	resp := <-c.Watch(t.Context(), "key", clientv3.WithRev(2))
	if resp.CompactRevision != s.Compacted() {
		t.Errorf("told %+v", resp)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		short := must[*clientv3.LeaseGrantResponse](t)(c.Grant(ctx, 1))
		long := must[*clientv3.LeaseGrantResponse](t)(c.Grant(ctx, 600))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(1), clientv3.WithLease(short.ID)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(2), text(1), clientv3.WithLease(long.ID)))
		moved := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(3), text(1), clientv3.WithLease(short.ID)))
		must[*clientv3.PutResponse](t)(c.Put(ctx, pod(3), text(2)))
		watch := c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithRev(moved.Header.Revision+2))
		if got := collect(t, watch, 1); got[0] != fmt.Sprintf("DELETE %s \"\" was \"nothing\" new false", pod(1)) {
			t.Errorf("when it was over: %v", got)
		}
		left := must[*clientv3.LeaseTimeToLiveResponse](t)(c.TimeToLive(ctx, long.ID, clientv3.WithAttachedKeys()))
		if left.GrantedTTL != 600 || left.TTL < 500 || len(left.Keys) != 1 || string(left.Keys[0]) != pod(2) {
			t.Errorf("what is left: %+v", left)
		}
		if over := must[*clientv3.LeaseTimeToLiveResponse](t)(c.TimeToLive(ctx, short.ID)); over.TTL != -1 {
			t.Errorf("what is over: %+v", over)
		}
		alive := must[*clientv3.LeaseKeepAliveResponse](t)(c.KeepAliveOnce(ctx, long.ID))
		if alive.TTL != 600 {
			t.Errorf("kept alive: %+v", alive)
		}
		must[*clientv3.LeaseRevokeResponse](t)(c.Revoke(ctx, long.ID))
		got := must[*clientv3.GetResponse](t)(c.Get(ctx, "/registry/pods/", clientv3.WithPrefix()))
		if got.Count != 1 || string(got.Kvs[0].Value) != text(2) {
			t.Errorf("at last: %v", got)
		}
		if _, err := c.Put(ctx, pod(4), text(1), clientv3.WithLease(long.ID)); err == nil {
			t.Error("put with a lease that is gone")
		}
	})
}
