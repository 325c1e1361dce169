package leader

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
	"github.com/nstance/nstance/pkg/server/roster"
)

// maxConfigProblems is how many problems of the static config are told to who
// begins to watch. Whoever wants all of them asks for the config's status.
const maxConfigProblems = 100

// watch makes what the term's watches follow, and has it hear of changes. It is
// called before anything can change.
func (t *Term) watch() {
	t.watches = operators.NewWatches(operators.WatchesConfig{
		Shard: operatorShard{t}, Problems: t.problems, Join: t.join, Done: t.ctx.Done(), Now: t.cfg.Now,
	})
	t.wanted.altered = func() {
		t.troubles.mended(t.wanted.Problems())
		t.forgetTroubles()
		t.watches.Changed(fleet.GroupKey{}, "")
	}
	t.troubles.told = func(key fleet.GroupKey) { t.watches.Changed(key, "") }
}

// ReasonStuck is the reason of the problem that the leader can't act.
const ReasonStuck = "LeaderStuck"

// Report logs a problem and tells those who watch.
func (t *Term) Report(p fleet.Problem) { t.troubles.report(p) }

// Over drops the shard's problem if it is of that reason.
func (t *Term) Over(reason string) { t.troubles.over(reason) }

// Addresses returns what the provider knows of an instance's addresses.
func (t *Term) Addresses(id fleet.InstanceID) []netip.Addr { return t.loop.Addresses(id) }

// join counts the operator that calls as one who has a stream open.
func (t *Term) join(ctx context.Context) (cut <-chan struct{}, leave func(), err error) {
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, nil, rpc.Unauthenticated.Errorf("no client certificate")
	}
	if err := t.roster.Look(ctx, caller); err != nil { // another term may have let it in
		return nil, nil, err
	}
	return t.roster.Join(caller)
}

// Watches are what the term's watches follow.
func (t *Term) Watches() *operators.Watches { return t.watches }

// Roster knows which operators are let in.
func (t *Term) Roster() *roster.Roster { return t.roster }

// problems joins a reader for the problems of a tenant's groups, those that last
// first. What concerns the shard may name anybody's machines, so it is for tenant
// default alone.
func (t *Term) problems(tenant string) *broadcast.Reader[fleet.Problem] {
	t.forgetTroubles() // an attempt for a group that is no more may have failed since
	var held []fleet.Problem
	if tenant == fleet.DefaultTenant {
		held = t.standing()
	}
	return t.troubles.follow(tenant, t.cfg.Now(), held)
}

// standing are the problems of the shard that last although nobody reports them
// again and again: why nothing is changed, and why the config in storage does not
// run.
func (t *Term) standing() (out []fleet.Problem) {
	now := t.cfg.Now()
	if held := t.loop.Held(); held != "" {
		out = append(out, fleet.Problem{At: now, Reason: reconcile.ReasonOrphans, Message: held})
	}
	// Told of now and then, it may have given way to another problem meanwhile.
	if stuck := t.cfg.Stuck(); stuck != "" && t.troubles.of(fleet.GroupKey{}).Reason != ReasonStuck {
		out = append(out, fleet.Problem{At: now, Reason: ReasonStuck, Message: stuck})
	}
	static := operatorShard{t}.Config()
	if !static.RunningApplied {
		return out
	}
	for _, v := range static.Violations[:min(len(static.Violations), maxConfigProblems)] {
		message := v.Description
		if v.Field != "" {
			message = v.Field + ": " + message
		}
		out = append(out, fleet.Problem{At: now, Reason: ReasonConfig, Message: message})
	}
	return out
}

// follow joins a reader for a tenant's problems: those that stand by the word of
// others, those that were reported and last, and then all that are reported.
func (t *troubles) follow(tenant string, now time.Time, standing []fleet.Problem) *broadcast.Reader[fleet.Problem] {
	mine := func(p fleet.Problem) bool {
		return p.Group.Tenant == tenant || p.Group == (fleet.GroupKey{}) && tenant == fleet.DefaultTenant
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	first := standing
	for _, last := range t.last {
		p := last
		ofShard := p.Group == (fleet.GroupKey{})
		stands := func(q fleet.Problem) bool { return ofShard && q.Reason == p.Reason }
		over := ofShard && now.Sub(p.At) > shardTroubleLife
		if mine(p) && !over && !slices.ContainsFunc(standing, stands) {
			first = append(first, p)
		}
	}
	slices.SortStableFunc(first, func(a, b fleet.Problem) int { return a.At.Compare(b.At) })
	return t.feed.Subscribe(mine, first, operators.MaxPendingProblems)
}

// mended drops the problems with definitions of dynamic groups that are none any
// more.
func (t *troubles) mended(still config.Problems) {
	wrong := map[fleet.GroupKey]bool{}
	for _, p := range still {
		wrong[groupIn(p.Path)] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.last, func(key fleet.GroupKey, p fleet.Problem) bool { return p.Reason == ReasonGroups && !wrong[key] })
}

// groupIn is the group that a field belongs to, such as groups.prod.web.size; zero
// when it belongs to none.
func groupIn(path string) fleet.GroupKey {
	parts := strings.SplitN(path, ".", 4)
	if len(parts) < 3 || parts[0] != "groups" || fleet.CheckName(parts[1]) != nil || fleet.CheckName(parts[2]) != nil {
		return fleet.GroupKey{}
	}
	return fleet.GroupKey{Tenant: parts[1], Name: parts[2]}
}

// forgetTroubles drops the problems of all groups that are no more.
func (t *Term) forgetTroubles() {
	for _, key := range t.troubles.groups() {
		t.forgetTrouble(key)
	}
}

// forgetTrouble drops the problem of a group that is neither wanted nor has
// instances any more.
func (t *Term) forgetTrouble(key fleet.GroupKey) {
	if t.troubles.of(key).Message == "" || key == (fleet.GroupKey{}) {
		return
	}
	if _, wanted := t.wanted.Group(key); !wanted && len(t.ledger.Group(key)) == 0 {
		t.troubles.forget(key)
	}
}
