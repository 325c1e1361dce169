package shardgroup_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// many creates objects of groups that a shard has, each of size 1, and waits until all
// of them are ready.
func (s *site) many(shard string, n int) {
	s.t.Helper()
	for i := range n {
		g := dynamic(1)
		g.Key = fmt.Sprintf("web-%d", i)
		s.has(shard, g)
		s.create(s.object(g.GetKey(), shard, 1))
	}
	s.eventually("all are ready", func() error {
		for _, o := range s.all() {
			if o.Status.ObservedGeneration != o.Generation {
				return fmt.Errorf("%s is not", o.Name)
			}
		}
		return nil
	})
}

func (s *site) all() []v1beta1.NstanceShardGroup {
	s.t.Helper()
	var list v1beta1.NstanceShardGroupList
	s.must(s.client.List(s.t.Context(), &list, client.InNamespace(s.namespace)))
	return list.Items
}

// TestNoWriteWhenNothingDiffers: an operator that starts beside groups that are as they
// are wanted, or hears of all of them again, writes nothing anywhere.
func TestNoWriteWhenNothingDiffers(t *testing.T) {
	s := newSite(t, "a")
	stop := s.start()
	s.many("a", 100)
	stop()
	before := s.all()
	s.start()
	last := s.object("last", "a", 1) // the others come before it
	last.Spec.Template = "knd"
	for range 3 {
		s.shards.change("a", func(*shardState) {})
	}
	s.create(last)
	s.awaits(last, v1beta1.ConditionReady, metav1.ConditionFalse, "NotAtSize")
	if n := len(s.shards.upserts("a")); n != 1 {
		t.Errorf("%d groups were pushed, want that of %s alone", n, last.Name)
	}
	after := s.all()
	for _, o := range before {
		n := slices.IndexFunc(after, func(p v1beta1.NstanceShardGroup) bool { return p.Name == o.Name })
		if n < 0 || after[n].ResourceVersion != o.ResourceVersion {
			t.Errorf("%s was written", o.Name)
		}
	}
}

// atATime is how many calls one shard is asked at a time.
const atATime = 90

// TestHungShard: a shard that answers nobody does not delay a group of another one.
func TestHungShard(t *testing.T) {
	s := newSite(t, "a", "b")
	s.start()
	s.many("a", 2*atATime)
	o := s.settled("b", dynamic(2))
	s.shards.change("a", func(x *shardState) { x.hangs = make(chan struct{}) })
	for _, o := range s.all() {
		if o.Spec.Shard == "a" {
			s.edit(&o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(2)) })
		}
	}
	s.eventually("calls hang", func() error {
		if n := len(s.shards.upserts("a")); n < atATime {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(3)) })
	s.eventually("the other shard's group is pushed", func() error {
		if all := s.shards.upserts("b"); len(all) != 1 {
			return fmt.Errorf("pushed %v", all)
		}
		return nil
	})
	if n := len(s.shards.upserts("a")); n > atATime {
		t.Errorf("%d calls hang at a time", n)
	}
	s.shards.change("a", func(x *shardState) { close(x.hangs); x.hangs = nil }) // those that hang have timed out
	s.eventually("all have their size", func() error {
		for i := range 2 * atATime {
			if g := s.shards.Group("a", fmt.Sprintf("web-%d", i)); g.GetSize() != 2 {
				return fmt.Errorf("group %v", g)
			}
		}
		return nil
	})
}

// TestScaleIsPushedAtOnce: from the API server's acceptance to the shard's it takes no
// wait. A hundred take seconds, and on a busy machine a minute at most, while with a wait of
// a second each they take longer; the benchmark has the p99.
func TestScaleIsPushedAtOnce(t *testing.T) {
	s := newSite(t, "a")
	s.start()
	o := s.settled("a", web(0))
	var took []time.Duration
	for n := range 100 {
		s.edit(o, func(o *v1beta1.NstanceShardGroup) { o.Spec.Size = new(int32(n + 1)) })
		began := time.Now()
		s.eventually("it is pushed", func() error {
			if g := s.shards.Group("a", "web"); g.GetSize() != int32(n+1) {
				return fmt.Errorf("group %v", g)
			}
			return nil
		})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("p50 %v, p99 %v", took[len(took)/2], took[len(took)-2])
	all := time.Duration(0)
	for _, each := range took {
		all += each
	}
	if all > time.Minute {
		t.Errorf("all of them took %v", all)
	}
}
