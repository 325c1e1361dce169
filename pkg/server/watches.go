package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/broadcast"
	"github.com/nstance/nstance/pkg/server/operators"
	"github.com/nstance/nstance/pkg/server/reconcile"
)

// maxConfigProblems is how many problems of the static config are told to who
// begins to watch. Whoever wants all of them asks for the config's status.
const maxConfigProblems = 100

// watch makes what the term's watches follow, and has it hear of changes. It is
// called before anything can change.
func (t *term) watch() {
	t.watches = operators.NewWatches(operators.WatchesConfig{
		Shard: operatorShard{t}, Problems: t.problems, Join: t.join, Done: t.ctx.Done(), Now: t.server.cfg.Now,
	})
	t.wanted.altered = func() {
		t.troubles.mended(t.wanted.Problems())
		t.forgetTroubles()
		t.watches.Changed(fleet.GroupKey{}, "")
	}
	t.troubles.told = func(key fleet.GroupKey) { t.watches.Changed(key, "") }
}

// join counts the operator that calls as one who has a stream open.
func (t *term) join(ctx context.Context) (cut <-chan struct{}, leave func(), err error) {
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return nil, nil, rpc.Unauthenticated.Errorf("no client certificate")
	}
	if err := t.roster.Look(ctx, caller); err != nil { // another term may have let it in
		return nil, nil, err
	}
	return t.roster.Join(caller)
}

// watches returns what the current term's watches follow.
func (s *Server) watches() (*operators.Watches, error) {
	t, err := s.term()
	if err != nil {
		return nil, err
	}
	return t.watches, nil
}

// problems joins a reader for the problems of a tenant's groups, those that last
// first. What concerns the shard may name anybody's machines, so it is for tenant
// default alone.
func (t *term) problems(tenant string) *broadcast.Reader[fleet.Problem] {
	t.forgetTroubles() // an attempt for a group that is no more may have failed since
	var held []fleet.Problem
	if tenant == fleet.DefaultTenant {
		held = t.standing()
	}
	return t.troubles.follow(tenant, t.server.cfg.Now(), held)
}

// standing are the problems of the shard that last although nobody reports them
// again and again: why nothing is changed, and why the config in storage does not
// run.
func (t *term) standing() (out []fleet.Problem) {
	now := t.server.cfg.Now()
	if held := t.loop.Held(); held != "" {
		out = append(out, fleet.Problem{At: now, Reason: reconcile.ReasonOrphans, Message: held})
	}
	// Told of now and then, it may have given way to another problem meanwhile.
	if stuck, _ := t.server.stuck.Load().(string); stuck != "" && t.troubles.of(fleet.GroupKey{}).Reason != ReasonStuck {
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
func (t *term) forgetTroubles() {
	for _, key := range t.troubles.groups() {
		t.forgetTrouble(key)
	}
}

// forgetTrouble drops the problem of a group that is neither wanted nor has
// instances any more.
func (t *term) forgetTrouble(key fleet.GroupKey) {
	if t.troubles.of(key).Message == "" || key == (fleet.GroupKey{}) {
		return
	}
	if _, wanted := t.wanted.Group(key); !wanted && len(t.ledger.Group(key)) == 0 {
		t.troubles.forget(key)
	}
}
