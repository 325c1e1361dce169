package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	editsTimed    = 300  // consecutive edits, for the CPU time
	editsAtOnce   = 1000 // each of another group
	editsPutTakes = 30 * time.Millisecond
)

// groupsStore counts the reads and writes of groups, and can delay writes.
type groupsStore struct {
	object.Store
	puts  atomic.Int64
	gets  atomic.Int64 // of existing records
	bytes atomic.Int64 // of the last one
	takes atomic.Int64 // nanoseconds beside the store's own time
}

func (s *groupsStore) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if strings.HasPrefix(key, "groups/") {
		s.puts.Add(1)
		s.bytes.Store(int64(len(body)))
		time.Sleep(time.Duration(s.takes.Load()))
	}
	return s.Store.Put(ctx, key, body, pre)
}

func (s *groupsStore) Get(ctx context.Context, key string) (object.Object, error) {
	o, err := s.Store.Get(ctx, key)
	if err == nil && strings.HasPrefix(key, "groups/") {
		s.gets.Add(1)
	}
	return o, err
}

// measureEdits edits single groups of shards with 1,000 and 5,000, and then a thousand at once.
func measureEdits(ctx context.Context, b *bench) (figures []figure, err error) {
	for _, n := range []int{1_000, 5_000} {
		more, err := b.profiled(ctx, fmt.Sprintf("edits-%d", n), func() ([]figure, error) { return editsAmong(ctx, b, n) })
		if err != nil {
			return nil, err
		}
		figures = append(figures, more...)
	}
	return figures, nil
}

func editsAmong(ctx context.Context, b *bench, groups int) (figures []figure, err error) {
	dir, logger, closeLog, err := b.logged(fmt.Sprintf("edits-%d", groups))
	if err != nil {
		return nil, err
	}
	defer closeLog()
	store := &groupsStore{Store: mem.New(mem.Config{HashETags: true})}
	cluster, err := trust(ctx, store)
	if err != nil {
		return nil, err
	}
	addrs, err := prepare(ctx, store, shard{Size: 0, Unlimited: true})
	if err != nil {
		return nil, err
	}
	if err := putGroups(ctx, store, shardID, groups); err != nil {
		return nil, err
	}
	n := node{ID: "server", Store: store, Provider: newMachines(fake.New(fake.Config{})), CacheDir: dir, Addrs: addrs, Logger: logger}
	stop := n.start(ctx)
	defer func() { // the last one that was started
		if stopErr := stop(); err == nil && stopErr != nil {
			err = fmt.Errorf("server: %w", stopErr)
		}
	}()
	op, err := newOperator(cluster.CA, addrs.Operator)
	if err != nil {
		return nil, err
	}
	defer op.close()
	first, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := op.edit(first, 0, -1); err != nil { // answers once it leads
		return nil, err
	}
	if groups == editsAtOnce { // first, while an operator's burst of calls is still unused
		if figures, err = editsTogether(ctx, op, store); err != nil {
			return nil, err
		}
	}
	each, err := cpuOfEdits(ctx, op, store, groups)
	if figures = append(figures, each...); err != nil || groups == editsAtOnce {
		return figures, err
	}
	if err := stop(); err != nil {
		return figures, err
	}
	store.gets.Store(0)
	began := time.Now()
	stop = n.start(ctx)
	again, cancelAgain := context.WithTimeout(ctx, 30*time.Second)
	defer cancelAgain()
	err = op.edit(again, 0, -2)
	return append(figures, newFigure(fmt.Sprintf("takeover_%d_groups", groups), time.Since(began).Seconds(), "s", 1).atMost(1).
		noted("until an edit is answered; %d records were read", store.gets.Load())), err
}

// putGroups stores that many groups without an instance.
func putGroups(ctx context.Context, store object.Store, shard string, groups int) error {
	for n := range groups {
		body := fmt.Appendf(nil, `{"rev":1,"writer":"bench","template":%q,"size":0,"vars":{"n":%d,"color":"none"},"revision":1}`, kind, n)
		key := "groups/" + shard + "/" + fleet.DefaultTenant + "/" + editedGroup(n) + ".json"
		if _, err := store.Put(ctx, key, body, object.Precondition{}); err != nil {
			return err
		}
	}
	return nil
}

func editedGroup(n int) string { return fmt.Sprintf("edited-%04d", n) }

// cpuOfEdits returns the CPU time of one edit without that of its write. It includes all of the
// client's, which is in the same process.
func cpuOfEdits(ctx context.Context, op *operator, store *groupsStore, groups int) ([]figure, error) {
	used, err := cpuOf(func() error {
		for n := range editsTimed {
			if err := op.edit(ctx, n*groups/editsTimed, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	body := bytes.Repeat([]byte("x"), int(store.bytes.Load()))
	alone := mem.New(mem.Config{HashETags: true})
	puts, err := cpuOf(func() error {
		for range editsTimed {
			if _, err := alone.Put(ctx, "groups", body, object.Precondition{}); err != nil {
				return err
			}
		}
		return nil
	})
	each := milliseconds(used-puts) / editsTimed
	return []figure{newFigure(fmt.Sprintf("edit_cpu_%d_groups", groups), each, "ms", editsTimed).atMost(1).
		noted("the client's part included; the write of %d bytes itself %.3f ms", len(body), milliseconds(puts)/editsTimed)}, err
}

func cpuOf(do func() error) (time.Duration, error) {
	before, err := cpuTime()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := cpuTime()
	return after - before, err
}

// editsTogether measures a thousand concurrent edits of as many groups, and counts their writes.
func editsTogether(ctx context.Context, op *operator, store *groupsStore) ([]figure, error) {
	store.takes.Store(int64(editsPutTakes))
	before, began := store.puts.Load(), time.Now()
	calls, within := errgroup.WithContext(ctx)
	for n := range editsAtOnce {
		calls.Go(func() error { return op.edit(within, n, -n-1) })
	}
	err := calls.Wait()
	store.takes.Store(0)
	return []figure{newFigure("edits_1000", time.Since(began).Seconds(), "s", editsAtOnce).atMost(2.5).
		noted("%d PUTs, each of which takes %s", store.puts.Load()-before, editsPutTakes)}, err
}

// edit changes a var of one group, and returns when that is durable.
func (o *operator) edit(ctx context.Context, group, value int) error {
	vars, err := structpb.NewStruct(map[string]any{"n": value, "color": "some"})
	if err != nil {
		return err
	}
	return o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := nstancev1.NewOperatorServiceClient(conn).UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: editedGroup(group), Vars: vars})
		return err
	})
}
