package pool_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// crowd is a client whose creations of NstanceMachines wait until as many as wanted are under way.
type crowd struct {
	client.Client

	wanted int
	full   chan struct{}

	mu         sync.Mutex
	inside     int
	most, made int
}

func (c *crowd) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if _, ok := o.(*v1beta1.NstanceMachine); !ok {
		return c.Client.Create(ctx, o, opts...)
	}
	c.enter()
	defer c.leave()
	select {
	case <-c.full:
	case <-time.After(time.Minute):
	}
	return c.Client.Create(ctx, o, opts...)
}

func (c *crowd) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside++
	c.made++
	if c.most = max(c.most, c.inside); c.made == c.wanted {
		close(c.full)
	}
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside--
}

// TestMachinesAreCreatedSixteenAtATime: a pool's pass does not create its objects one after
// another, and does not flood the API server either.
func TestMachinesAreCreatedSixteenAtATime(t *testing.T) {
	f := newFixture(t, "a")
	web := int32(40)
	f.shards.Shard("a").Upsert(&nstancev1.UpsertGroupRequest{Key: "web", Template: new("knd"), Size: &web})
	var all *crowd
	f.wrap = func(c client.Client) client.Client {
		all = &crowd{Client: c, wanted: 16, full: make(chan struct{})}
		return all
	}
	f.pool("web", web, "a")
	f.runOperator(f.shards)
	f.awaitMachines("web", int(web))
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.most != 16 {
		t.Errorf("at most %d creations were under way at once, want 16", all.most)
	}
}
