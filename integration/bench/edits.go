package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	editsTimed    = 300  // edits, one after another, whose CPU time is taken
	editsAtOnce   = 1000 // of as many groups
	editsPutTakes = 20 * time.Millisecond
)

// groupsStore counts the writes of dynamic groups, and can make them slow.
type groupsStore struct {
	object.Store
	puts  atomic.Int64
	bytes atomic.Int64 // of the last one
	takes atomic.Int64 // nanoseconds beside what the store takes
}

func (s *groupsStore) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if strings.HasPrefix(key, "groups/") {
		s.puts.Add(1)
		s.bytes.Store(int64(len(body)))
		time.Sleep(time.Duration(s.takes.Load()))
	}
	return s.Store.Put(ctx, key, body, pre)
}

// measureEdits changes single groups of a shard that has 1,000 and 5,000, and then a
// thousand at once.
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
	defer func() {
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
	if err := op.edit(first, 0, -1); err != nil { // answered once it leads
		return nil, err
	}
	if groups == editsAtOnce { // first, while all calls that an operator may open in a burst are left
		if figures, err = editsTogether(ctx, op, store); err != nil {
			return nil, err
		}
	}
	each, err := cpuOfEdits(ctx, op, store, groups)
	return append(figures, each...), err
}

// putGroups is what a shard has of that many groups without an instance.
func putGroups(ctx context.Context, store object.Store, shard string, groups int) error {
	entries := map[string]any{}
	for n := range groups {
		entries[editedGroup(n)] = map[string]any{"template": kind, "size": 0, "vars": map[string]any{"n": n, "color": "none"}}
	}
	body, err := json.Marshal(map[string]any{"rev": 1, "writer": "bench", "groups": map[string]any{fleet.DefaultTenant: entries}})
	if err != nil {
		return err
	}
	_, err = store.Put(ctx, "groups/"+shard+".jsonc", body, object.Precondition{})
	return err
}

func editedGroup(n int) string { return fmt.Sprintf("edited-%04d", n) }

// cpuOfEdits is the CPU time of one edit beyond that of its write. Client and server
// share the process, so all of the client's is in it.
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
	return []figure{newFigure(fmt.Sprintf("edit_cpu_%d_groups", groups), each, "ms", editsTimed).atMost(2).
		noted("the client's part included; the write of %d KiB itself %.2f ms", len(body)>>10, milliseconds(puts)/editsTimed)}, err
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

// editsTogether counts the writes that a thousand edits of as many groups cost.
func editsTogether(ctx context.Context, op *operator, store *groupsStore) ([]figure, error) {
	store.takes.Store(int64(editsPutTakes))
	before, began := store.puts.Load(), time.Now()
	calls, within := errgroup.WithContext(ctx)
	for n := range editsAtOnce {
		calls.Go(func() error { return op.edit(within, n, -n-1) })
	}
	err := calls.Wait()
	store.takes.Store(0)
	return []figure{newFigure("edits_1000_puts", float64(store.puts.Load()-before), "PUTs", editsAtOnce).atMost(20).
		noted("all answered after %.2f s, with a write of %s", time.Since(began).Seconds(), editsPutTakes)}, err
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
