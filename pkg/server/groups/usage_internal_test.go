package groups

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/mem"
	"github.com/nstance/nstance/pkg/object/objecttest"
	"github.com/nstance/nstance/pkg/server/ledger"
	"github.com/nstance/nstance/pkg/server/problems"
	"github.com/nstance/nstance/pkg/server/writes"
)

// openFence is the fence of a term that does not end.
type openFence struct{}

func (openFence) Epoch() uint64    { return 0 }
func (openFence) RiseAbove(uint64) {}
func (openFence) Act(ctx context.Context, write func(context.Context) error) error {
	return write(ctx)
}

const quota = `{ "quota": { "groups": 12, "instances": 40, "config_bytes": 4000 } }`

// parsed returns a static config with a tenant of that quota, and the given groups.
func parsed(t *testing.T, groups string) *config.Shard {
	t.Helper()
	c, err := config.Parse([]byte(`{
		"cluster": { "id": "a", "secrets": { "encryption_key": { "provider": "env", "source": "K" } } },
		"server": { "provider": { "kind": "fake" }, "subnet_pools": { "p": { "subnets": ["s"], "tenants": ["*"] } } },
		"tenants": { "prod": ` + quota + ` },
		"templates": { "knd": { "tenants": ["*"], "kind": "knd", "arch": "amd64", "subnet_pool": "p" } },
		"groups": { "prod": { ` + groups + ` } },
	}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// usageScene returns a term's groups, of a tenant with a quota, and their store.
func usageScene(t *testing.T) (g *Groups, store *objecttest.Faults) {
	store = objecttest.NewFaults(mem.New(mem.Config{HashETags: true}), nil)
	l, err := ledger.Open(ledger.Config{Store: store, Shard: "a", Writer: "w", Concurrency: 4, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	none := func(...fleet.GroupKey) {}
	g = empty(Config{
		Records: writes.Records{
			Ledger: l, Writer: l.Lead(openFence{}), Writes: writes.New(t.Context(), func() time.Duration { return time.Second }),
		},
		Fence:    openFence{},
		Static:   parsed(t, `"web": { "template": "knd", "size": 2 }`),
		Problems: problems.New(problems.Config{Now: time.Now, Logger: slog.New(slog.DiscardHandler), Changed: func(fleet.GroupKey) {}}),
		Checks:   func(*config.Shard) config.Checks { return config.Checks{} },
		Changed:  none, Altered: none, Doubt: func() {}, Now: time.Now, Uniform: rand.Float64, Logger: slog.New(slog.DiscardHandler),
	})
	g.Become(g.static)
	return g, store
}

// checkUsage fails unless a tenant's usage equals that of its groups.
func (g *Groups) checkUsage(t *testing.T, when string) {
	t.Helper()
	g.mu.RLock()
	defer g.mu.RUnlock()
	want, tombstones := config.GroupUsage{}, 0
	for _, key := range g.static.StaticGroups() {
		if k, known := g.kept[key]; !known || !k.record.Stored() {
			want = want.Plus(g.static.Usage(key, config.GroupRecord{}))
		}
	}
	for key, k := range g.kept {
		if k.record.Stored() {
			want = want.Plus(g.static.Usage(key, k.record))
		}
		tombstones += tombstone(k.record)
	}
	if is := g.tenants["prod"]; is.usage != want || is.tombstones != tombstones {
		t.Errorf("%s: the tenant has %+v and %d tombstones, want %+v and %d", when, is.usage, is.tombstones, want, tombstones)
	}
}

// TestUsageFollowsGroups: a tenant's usage is that of its groups, whatever the outcome of
// edits and external changes.
func TestUsageFollowsGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // for late writes
		g, store := usageScene(t)
		for round := range 30 {
			store.Set(objecttest.Seeded(uint64(round), objecttest.Rates{Dropped: 0.1, ReplyLost: 0.1, Late: 0.05, Hung: 0.05, Delay: time.Second}))
			var all sync.WaitGroup
			for n := range 8 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(round), uint64(n+2)))
					for range 10 {
						g.anyEdit(t.Context(), store, random)
					}
				})
			}
			all.Wait()
			store.Set(nil)
			g.checkUsage(t, fmt.Sprint("after round ", round))
			if round%5 == 4 {
				if err := g.ResolveDoubts(t.Context()); err != nil {
					t.Fatal(err)
				}
				static := parsed(t, fmt.Sprintf(`"web": { "template": "knd", "size": %d }, "g%d": { "template": "knd" }`, round, round%7))
				g.Become(static)
				g.checkUsage(t, "by another config")
			}
		}
	})
}

// anyEdit makes a random change of one group.
func (g *Groups) anyEdit(ctx context.Context, store object.Store, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // for hanging writes
	defer cancel()
	key := fleet.GroupKey{Tenant: "prod", Name: fmt.Sprint("g", random.IntN(15))}
	if random.IntN(10) == 0 {
		key.Name = "web"
	}
	size, template := random.IntN(8), "knd"
	change := config.Change{Size: &size, Template: &template}
	if key.Name == "web" {
		change.Template = nil
	}
	by := func(change func(now groupNow) (config.GroupRecord, error)) {
		_ = g.edit(ctx, edit{key: key, asked: random.IntN(3) > 0, replaces: random.IntN(2) == 0, change: change})
	}
	at := "groups/a/prod/" + key.Name + ".json"
	switch random.IntN(8) {
	case 0:
		by(func(now groupNow) (config.GroupRecord, error) {
			return g.static.RemoveGroup(key, now.record, config.By{})
		})
	case 1:
		by(func(now groupNow) (config.GroupRecord, error) {
			return g.static.ResetGroup(key, now.record, config.By{}, time.Now())
		})
	case 2:
		by(func(now groupNow) (config.GroupRecord, error) { return now.record.Forget(time.Now()), nil })
	case 3:
		_ = store.Delete(ctx, at)
	case 4:
		_, _ = store.Put(ctx, at, fmt.Appendf(nil, `{ "template": "knd", "size": %d }`, size), object.Precondition{})
	case 5:
		_, _ = store.Put(ctx, at, []byte(`{`), object.Precondition{})
	case 6:
		if g.records.RelistGroups(ctx) == nil {
			_, _ = g.judgeAll()
		}
	default:
		by(func(now groupNow) (config.GroupRecord, error) {
			return g.static.ChangeGroup(key, now.record, change, config.Checks{})
		})
	}
}

// TestUsageCountsAnEditOnce: while a change is reported, it is counted once, not in addition
// to its reservation.
func TestUsageCountsAnEditOnce(t *testing.T) {
	g, _ := usageScene(t)
	told, size, template := 0, 3, "knd"
	g.cfg.Altered = func(...fleet.GroupKey) {
		told++
		g.checkUsage(t, "when told")
	}
	key := fleet.GroupKey{Tenant: "prod", Name: "job"}
	err := g.edit(t.Context(), edit{key: key, asked: true, change: func(now groupNow) (config.GroupRecord, error) {
		return g.static.ChangeGroup(key, now.record, config.Change{Size: &size, Template: &template}, config.Checks{})
	}})
	if err != nil || told != 1 {
		t.Errorf("told %d times, %v", told, err)
	}
}
