package etcd_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestPutGetDelete(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		first := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(1)))
		second := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(2), clientv3.WithPrevKV()))
		if string(second.PrevKv.Value) != text(1) || second.Header.Revision != first.Header.Revision+1 {
			t.Errorf("the second put: %v", second)
		}
		got := must[*clientv3.GetResponse](t)(c.Get(ctx, pod(1)))
		if kv := got.Kvs[0]; string(kv.Value) != text(2) || kv.Version != 2 ||
			kv.CreateRevision != first.Header.Revision || kv.ModRevision != second.Header.Revision || got.Count != 1 {
			t.Errorf("got %v", got)
		}
		deleted := must[*clientv3.DeleteResponse](t)(c.Delete(ctx, pod(1), clientv3.WithPrevKV()))
		if deleted.Deleted != 1 || string(deleted.PrevKvs[0].Value) != text(2) {
			t.Errorf("deleted %v", deleted)
		}
		again := must[*clientv3.DeleteResponse](t)(c.Delete(ctx, pod(1)))
		if again.Deleted != 0 || again.Header.Revision != deleted.Header.Revision {
			t.Errorf("the deletion of a missing key: %v after %v, want the same revision", again, deleted)
		}
		if got := must[*clientv3.GetResponse](t)(c.Get(ctx, pod(1))); len(got.Kvs) != 0 {
			t.Errorf("after the deletion: %v", got)
		}
		old := must[*clientv3.GetResponse](t)(c.Get(ctx, pod(1), clientv3.WithRev(first.Header.Revision)))
		if len(old.Kvs) != 1 || string(old.Kvs[0].Value) != text(1) {
			t.Errorf("at the first revision: %v", old)
		}
		recreated := must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(3)))
		if kv := must[*clientv3.GetResponse](t)(c.Get(ctx, pod(1))).Kvs[0]; kv.Version != 1 || kv.CreateRevision != recreated.Header.Revision {
			t.Errorf("recreated: %v", kv)
		}
	})
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		create := func() (*clientv3.TxnResponse, error) {
			return c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(pod(1)), "=", 0)).
				Then(clientv3.OpPut(pod(1), text(1))).Else(clientv3.OpGet(pod(1))).Commit()
		}
		made := must[*clientv3.TxnResponse](t)(create())
		if !made.Succeeded || made.Responses[0].GetResponsePut() == nil {
			t.Fatalf("create: %v", made)
		}
		twice := must[*clientv3.TxnResponse](t)(create())
		if twice.Succeeded || string(twice.Responses[0].GetResponseRange().Kvs[0].Value) != text(1) {
			t.Errorf("create again: %v", twice)
		}
		for _, one := range []struct {
			cmp  clientv3.Cmp
			want bool
		}{
			{clientv3.Compare(clientv3.ModRevision(pod(1)), "=", made.Header.Revision), true},
			{clientv3.Compare(clientv3.ModRevision(pod(1)), "<", made.Header.Revision), false},
			{clientv3.Compare(clientv3.CreateRevision(pod(1)), ">", 0), true},
			{clientv3.Compare(clientv3.Version(pod(1)), "!=", 1), false},
			{clientv3.Compare(clientv3.Value(pod(1)), "=", text(1)), true},
			{clientv3.Compare(clientv3.Value(pod(2)), "!=", "x"), false}, // false for a missing key
			{clientv3.Compare(clientv3.Version(pod(2)), "=", 0), true},
		} {
			if got := must[*clientv3.TxnResponse](t)(c.Txn(ctx).If(one.cmp).Commit()); got.Succeeded != one.want {
				t.Errorf("%v: %v", one.cmp, got.Succeeded)
			}
		}
		del := must[*clientv3.TxnResponse](t)(c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(pod(1)), "=", made.Header.Revision)).
			Then(clientv3.OpDelete(pod(1), clientv3.WithPrevKV()), clientv3.OpGet(pod(1))).Commit())
		if !del.Succeeded || del.Responses[0].GetResponseDeleteRange().Deleted != 1 || del.Responses[1].GetResponseRange().Count != 0 {
			t.Errorf("delete: %v", del)
		}
	})
}

// TestPages: all pages of a list have the same revision, whatever is written meanwhile.
func TestPages(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		for i := range 25 {
			must[*clientv3.PutResponse](t)(c.Put(ctx, pod(i), text(i)))
		}
		must[*clientv3.PutResponse](t)(c.Put(ctx, "/registry/podtemplates/default/x", text(1)))
		prefix, seen := "/registry/pods/", 0
		from, rev := prefix, int64(0)
		for page := 0; ; page++ {
			got := must[*clientv3.GetResponse](t)(c.Get(ctx, from,
				clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(10), clientv3.WithRev(rev)))
			if want := int64(25 - seen); got.Count != want || got.More != (want > 10) {
				t.Errorf("page %d: count %d, more %v, want %d", page, got.Count, got.More, want)
			}
			for _, kv := range got.Kvs {
				if string(kv.Key) != pod(seen) || string(kv.Value) != text(seen) {
					t.Errorf("page %d: %s is %q", page, kv.Key, kv.Value)
				}
				seen++
			}
			if !got.More {
				break
			}
			if rev == 0 {
				rev = got.Header.Revision
			}
			from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
			must[*clientv3.PutResponse](t)(c.Put(ctx, pod(20+page), text(99)))
			must[*clientv3.DeleteResponse](t)(c.Delete(ctx, pod(24)))
			must[*clientv3.PutResponse](t)(c.Put(ctx, pod(30+page), text(99)))
		}
		if seen != 25 {
			t.Errorf("%d keys listed, want 25", seen)
		}
		all := must[*clientv3.GetResponse](t)(c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
		if all.Count != 26 || len(all.Kvs) != 0 {
			t.Errorf("count only: %v", all)
		}
		keys := must[*clientv3.GetResponse](t)(c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1)))
		if len(keys.Kvs) != 1 || len(keys.Kvs[0].Value) != 0 {
			t.Errorf("keys only: %v", keys)
		}
	})
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		ctx := t.Context()
		var revs []int64
		for i := range 5 {
			revs = append(revs, must[*clientv3.PutResponse](t)(c.Put(ctx, pod(1), text(i))).Header.Revision)
		}
		gone := must[*clientv3.DeleteResponse](t)(c.Delete(ctx, pod(1))).Header.Revision
		must[*clientv3.CompactResponse](t)(c.Compact(ctx, revs[3]))
		if _, err := c.Get(ctx, pod(1), clientv3.WithRev(revs[2])); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("below the compaction: %v", err)
		}
		for i := 3; i < 5; i++ {
			if got := must[*clientv3.GetResponse](t)(c.Get(ctx, pod(1), clientv3.WithRev(revs[i]))); string(got.Kvs[0].Value) != text(i) {
				t.Errorf("at %d: %v", revs[i], got)
			}
		}
		if _, err := c.Get(ctx, pod(1), clientv3.WithRev(gone+1)); !errors.Is(err, rpctypes.ErrFutureRev) {
			t.Errorf("in the future: %v", err)
		}
		if _, err := c.Compact(ctx, revs[3]); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("compact again: %v", err)
		}
		if _, err := c.Compact(ctx, gone+1); !errors.Is(err, rpctypes.ErrFutureRev) {
			t.Errorf("compact the future: %v", err)
		}
		must[*clientv3.CompactResponse](t)(c.Compact(ctx, gone))
		if got := must[*clientv3.GetResponse](t)(c.Get(ctx, "/", clientv3.WithPrefix())); got.Count != 0 {
			t.Errorf("after the compaction: %v", got)
		}
		resp := <-c.Watch(ctx, pod(1), clientv3.WithRev(revs[1]))
		if resp.CompactRevision != gone || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a watch from a compacted revision: %+v", resp)
		}
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	onFilesAndEtcd(t, func(t *testing.T, c *clientv3.Client) {
		got := must[*clientv3.StatusResponse](t)(c.Status(t.Context(), c.Endpoints()[0]))
		if got.Version != "3.6.14" {
			t.Errorf("the version is %q", got.Version)
		}
	})
}
