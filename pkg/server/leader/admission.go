package leader

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/groups"
)

// admission decides which calls of operators the shard accepts: those of tenants that it serves,
// within their quotas. Safe for concurrent use.
type admission struct {
	config *running
	groups *groups.Groups
	now    func() time.Time

	mu     sync.Mutex
	meters map[meterKey]*rate.Limiter
	looks  map[string]look // by tenant that the config does not declare
}

// look is the cached state of a tenant that the config does not declare.
type look struct {
	at      time.Time
	remains bool // it had groups or instances
}

// lookFor is how long a look is valid. Taking one is O(instances).
const lookFor = time.Second

// meterKey identifies a meter: a field of a tenant's quota, or the removals by one operator.
type meterKey struct{ tenant, field string }

// quotaBurst is the burst of a meter, in seconds of its rate.
const quotaBurst = 10

// call admits one call of a tenant.
func (a *admission) call(tenant string) error {
	if err := a.Serves(tenant); err != nil && !a.remains(tenant) {
		return err
	}
	return a.consume(tenant, "calls_per_second", a.config.shard().QuotaOf(tenant).CallsPerSecond, 1)
}

// Serves returns an error if the config does not declare the tenant.
func (a *admission) Serves(tenant string) error {
	if err := a.config.shard().CheckTenant(tenant); err != nil {
		return rpc.TenantUnknown.Errorf("%w", err)
	}
	return nil
}

// Reads admits n object reads from the store for a tenant.
func (a *admission) Reads(tenant string, n int) error {
	return a.consume(tenant, "reads_per_second", a.config.shard().QuotaOf(tenant).ReadsPerSecond, n)
}

// removalRate is how many operators one operator may remove a second; the burst is ten times as
// many. The limit is per operator, not per tenant: otherwise an operator that floods the shard
// could keep its tenant from removing it.
const removalRate = 5

// Removal admits the removal of an operator by another.
func (a *admission) Removal(tenant string, by fleet.InstanceID) error {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.meter(now, meterKey{tenant, "removals by " + string(by)}, removalRate).AllowN(now, 1) {
		return rpc.Exhausted.Errorf("operator %s removes more than %d operators a second: slow down and try again", by, removalRate)
	}
	return nil
}

// remains reports whether a tenant that the config no longer declares still has groups or
// instances: its operators have drains to acknowledge.
func (a *admission) remains(tenant string) bool {
	now := a.now()
	a.mu.Lock()
	l, ok := a.looks[tenant]
	a.mu.Unlock()
	if ok && now.Sub(l.at) < lookFor {
		return l.remains
	}
	remains := slices.ContainsFunc(a.groups.All(), func(k fleet.GroupKey) bool { return k.Tenant == tenant })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.looks == nil {
		a.looks = map[string]look{}
	}
	a.looks[tenant] = look{now, remains}
	a.forget(now)
	return remains
}

// consume takes n tokens of a field of a tenant's quota. It succeeds if at least one token is
// left, and puts the meter into debt for the rest, at most one burst.
func (a *admission) consume(tenant, field string, limit *int, n int) error {
	if limit == nil || n <= 0 {
		return nil
	}
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	meter := a.meter(now, meterKey{tenant, field}, *limit)
	burst := meter.Burst()
	if meter.TokensAt(now) >= 1 {
		meter.ReserveN(now, min(n, burst))
		return nil
	}
	return rpc.Exhausted.Errorf("the quota of tenant %q is used up: %s: at most %d a second are allowed, and %d at once: "+
		"slow down and try again (the limit is tenants.%[1]s.quota.%[2]s of the shard's config)", tenant, field, *limit, burst)
}

// meter returns the meter of a key, and creates it if there is none. The caller holds a.mu.
func (a *admission) meter(now time.Time, key meterKey, limit int) *rate.Limiter {
	burst := limit * quotaBurst
	meter := a.meters[key]
	if meter == nil {
		if a.meters == nil {
			a.meters = map[meterKey]*rate.Limiter{}
		}
		meter = rate.NewLimiter(rate.Limit(limit), burst)
		a.meters[key] = meter
	}
	if meter.Burst() != burst { // the limit in the config changed
		meter.SetLimitAt(now, rate.Limit(limit))
		meter.SetBurstAt(now, burst)
	}
	return meter
}

// forget drops the state of tenants that the config does not declare and that have nothing left.
// The caller holds a.mu.
func (a *admission) forget(now time.Time) {
	shard := a.config.shard()
	for key := range a.meters {
		if !shard.HasTenant(key.tenant) && !a.looks[key.tenant].remains {
			delete(a.meters, key)
		}
	}
	for tenant, l := range a.looks {
		if now.Sub(l.at) >= lookFor {
			delete(a.looks, tenant)
		}
	}
}
