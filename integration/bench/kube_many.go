//go:build !roles

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	shards "github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/operator/planetest"
	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// kubeMany is the number of groups on each of two shards.
const kubeMany = 500

// manyShards are two real shards in this process, over a store that counts writes of groups.
type manyShards struct {
	store *groupsStore
	users []*operator // of each shard, beside the Kubernetes operator
}

// manyGroups measures the writes of an operator that starts: none if each of a thousand groups
// matches its object, and one for each if none does.
func manyGroups(b *bench, h *harness, plane *planetest.Plane) ([]figure, error) {
	w := &kubeWorld{harness: h, plane: plane, ns: plane.Namespace(h)}
	s, err := startMany(b, w)
	if err != nil {
		return nil, err
	}
	stop := w.operate()
	w.pools(kubeMany + 1) // one is in the config
	for n := range kubeMany {
		w.must(wantVars(w, editedGroup(n)))
	}
	w.eventually("all groups have the vars that are wanted", s.wanted(h.ctx))
	w.settledVersions()
	stop()

	before := s.store.puts.Load()
	stop = w.operate()
	w.settledVersions()
	same := s.store.puts.Load() - before
	stop()

	if err := s.spoil(h.ctx); err != nil {
		return nil, err
	}
	s.store.takes.Store(int64(editsPutTakes))
	before = s.store.puts.Load()
	began := time.Now()
	w.operate()
	w.eventually("all groups have the vars again", s.wanted(h.ctx))
	differ := s.store.puts.Load() - before
	return []figure{
		newFigure("kube_start_1000_groups_puts", float64(same), "PUTs", 2*kubeMany).atMost(0),
		newFigure("kube_start_1000_groups_differ_puts", float64(differ), "PUTs", 2*kubeMany).atMost(2*kubeMany).
			noted("all were mended %.1f s after the operator's start, with a write of %s", time.Since(began).Seconds(), editsPutTakes),
	}, nil
}

// startMany starts both shards and prepares an operator's start. They end with the row.
func startMany(b *bench, w *kubeWorld) (*manyShards, error) {
	s := &manyShards{store: &groupsStore{Store: mem.New(mem.Config{HashETags: true})}}
	cluster, err := trust(w.ctx, s.store)
	if err != nil {
		return nil, err
	}
	if err := recordOperator(w.ctx, s.store, cluster.CA); err != nil { // of users
		return nil, err
	}
	at := map[string]kubeAddrs{}
	for _, id := range []string{shardID, "bench-2"} {
		n := node{ID: id, Shard: id, Store: s.store, Provider: newMachines(fake.New(fake.Config{})), Logger: slog.New(slog.DiscardHandler)}
		if n.CacheDir, err = b.folder("many-" + id); err != nil {
			return nil, err
		}
		if n.Addrs, err = freeEndpoints(w.ctx); err != nil {
			return nil, err
		}
		if err := fillMany(w.ctx, s.store, id); err != nil {
			return nil, err
		}
		stop := n.start(w.ctx)
		w.Cleanup(func() {
			if err := stop(); err != nil {
				w.Errorf("shard %s: %v", id, err)
			}
		})
		user, err := operatorOf(id, cluster.CA, n.Addrs.Operator)
		if err != nil {
			return nil, err
		}
		w.Cleanup(user.close)
		s.users = append(s.users, user)
		at[id] = kubeAddrs{n.Addrs.Registration, n.Addrs.Operator}
	}
	now := time.Now()
	id, err := fleet.NewID(fleet.OperatorKind, now, rand.Reader)
	if err != nil {
		return nil, err
	}
	token, err := nonce.Mint(cluster.NonceKey, nonce.Claims{
		Kind: nonce.KindOperator, Subject: clusterID, ClusterID: clusterID, Tenant: fleet.DefaultTenant,
		ID: string(id), IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(time.Hour),
	})
	if err != nil {
		return nil, err
	}
	w.furnish(clusterID, at, cluster.Bundle.PEM(), token)
	return s, nil
}

// fillMany stores the config of a shard, and its groups.
func fillMany(ctx context.Context, store object.Store, id string) error {
	objects, err := shard{Unlimited: true}.objects(nil)
	if err != nil {
		return err
	}
	for key, body := range objects {
		if key == configKey {
			key = "config/" + id + ".jsonc"
		}
		if _, err := store.Put(ctx, key, body, object.Precondition{}); err != nil {
			return err
		}
	}
	return putGroups(ctx, store, id, kubeMany)
}

// wantVars sets a group's desired vars in Kubernetes.
func wantVars(w *kubeWorld, group string) error {
	pool := &v1beta1.NstanceMachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: group}}
	return w.plane.Client.Patch(w.ctx, pool, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"vars":{"n":"wanted"}}}`)))
}

// wanted checks that every group of both shards has these vars.
func (s *manyShards) wanted(ctx context.Context) func() error {
	return func() error {
		have := 0
		for _, user := range s.users {
			all, err := user.groups(ctx)
			if err != nil {
				return err
			}
			for _, g := range all {
				if g.GetVars().AsMap()["n"] == "wanted" {
					have++
				}
			}
		}
		if have != 2*kubeMany {
			return fmt.Errorf("%d have", have)
		}
		return nil
	}
}

// groups returns the groups of one shard.
func (o *operator) groups(ctx context.Context) (all []*nstancev1.GroupStatus, err error) {
	err = o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		resp, err := shards.Groups(ctx, nstancev1.NewOperatorServiceClient(conn), shards.Parts{Vars: true})
		all = resp.GetGroups()
		return err
	})
	return all, err
}

// spoil changes the vars of every group of both shards, while no operator runs.
func (s *manyShards) spoil(ctx context.Context) error {
	calls, within := errgroup.WithContext(ctx)
	calls.SetLimit(64)
	for _, user := range s.users {
		for n := range kubeMany {
			calls.Go(func() error { return user.edit(within, n, -1) })
		}
	}
	return calls.Wait()
}
