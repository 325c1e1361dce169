//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestAShardDies during a scale: the other one is scaled, no Node is deleted, and when the shard is
// back nothing is doubled.
func TestAShardDies(t *testing.T) {
	f := newFixture(t, nil)
	f.operate()
	f.running("web", 4)
	before := f.settled("web", 4)
	f.dev("kill", dev2)
	f.scale("web", 8)
	f.eventually("the shard that is left has its share", func(context.Context) error {
		if n := len(f.instances("web", dev1)); n != 4 {
			return fmt.Errorf("%d instances", n)
		}
		return nil
	})
	f.eventually("the other one is said to be out of reach", func(ctx context.Context) error {
		var g v1beta1.NstanceShardGroup
		if err := f.get(ctx, "web--"+dev2, &g); err != nil {
			return err
		}
		if !meta.IsStatusConditionFalse(g.Status.Conditions, v1beta1.ConditionShardReachable) {
			return fmt.Errorf("%+v", g.Status.Conditions)
		}
		return nil
	})
	f.consistently(10*time.Second, "no Node is deleted", func(ctx context.Context) error {
		nodes, err := f.nodes(ctx, "web", "")
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, n := range nodes {
			have[n] = true
		}
		for _, id := range before {
			if !have[id] {
				return fmt.Errorf("the Node %s is gone", id)
			}
		}
		return nil
	})
	f.dev("start", dev2)
	f.running("web", 8)
	f.settled("web", 8)
	if sizes := f.sizes("web"); sizes != [2]int{4, 4} {
		t.Errorf("the shards have %v", sizes)
	}
	if all := f.all(""); len(all) != 8 {
		t.Errorf("there were %d instances in all, want 8: %v", len(all), all)
	}
}
