package shardstest_test

import (
	"testing"

	"github.com/nstance/nstance/pkg/operator/shards/shardstest"
)

// TestStart: the shards are ready at once, in real time, and the Set follows their changes.
func TestStart(t *testing.T) {
	t.Parallel()
	w := shardstest.Start(t, "one", "two")
	w.Shard("one").AddGroup("web", 3, "default")
	w.Synced()
	shardstest.Eventually(t, "the group is at size", func() bool { return w.Set.Group("one", "web").GetActualSize() == 3 })
	if all := w.Set.Instances("one", "web"); len(all) != 3 {
		t.Errorf("instances: %v", all)
	}
}
