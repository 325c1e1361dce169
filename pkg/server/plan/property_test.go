package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nstance/nstance/pkg/fleet"
	_ "github.com/nstance/nstance/pkg/rapidseed"
	"github.com/nstance/nstance/pkg/server/plan"
)

// anyView draws views that need not be reachable.
func anyView() *rapid.Generator[plan.View] {
	return rapid.Custom(func(t *rapid.T) plan.View {
		age := rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, time.Hour + 30*time.Second})
		v := plan.View{
			Now: now, Settings: settings(),
			Takeover: now.Add(-anySpan(10*time.Minute).Draw(t, "takeover")),
			Pace:     anyPace().Draw(t, "pace"), Surge: rapid.IntRange(0, 4).Draw(t, "granted"),
			Group: fleet.Group{
				Key: fleet.GroupKey{Tenant: "default", Name: "web"}, Size: rapid.IntRange(-1, 6).Draw(t, "size"),
				Removed:       rapid.IntRange(0, 9).Draw(t, "removed") == 0,
				Hashes:        fleet.Hashes{Infra: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "infra")},
				Files:         rapid.SampledFrom([]map[string]fleet.File{nil, {"app.conf": {}}}).Draw(t, "files"),
				FilesOptional: rapid.Bool().Draw(t, "files optional"),
				MaxSurge:      rapid.SampledFrom([]fleet.Surge{{}, {Count: 2}, {Percent: 50}}).Draw(t, "surge"),
				RolloutPaused: rapid.Bool().Draw(t, "paused"),
				Aborted:       rapid.Bool().Draw(t, "aborted"),
				DrainTimeout:  rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "drain"),
			},
		}
		if rapid.IntRange(0, 9).Draw(t, "disabled") == 0 {
			v.Group.Disabled = "broken"
		}
		v.Settings.EligibleAge, v.Settings.ForcedAge = age.Draw(t, "eligible"), age.Draw(t, "forced")
		v.Settings.Settle = rapid.SampledFrom([]time.Duration{0, 2 * time.Minute}).Draw(t, "settle")
		v.Settings.OnDemandAge = age.Draw(t, "ondemand")
		for n := range rapid.IntRange(0, 9).Draw(t, "instances") {
			i := anyInstance(t, n)
			v.Instances = append(v.Instances, i)
			if rapid.IntRange(0, 9).Draw(t, "leaving") == 0 {
				v.Group.Leaving = append(v.Group.Leaving, i.ID)
			}
		}
		return v
	})
}

func anyPace() *rapid.Generator[plan.Pace] {
	return rapid.Custom(func(t *rapid.T) plan.Pace {
		return plan.Pace{
			NotBefore: rapid.SampledFrom([]time.Time{{}, {}, now, now.Add(time.Second)}).Draw(t, "hold"),
			Probation: rapid.SampledFrom([]int{0, 0, 1, 2, 4}).Draw(t, "probation"),
			Settling:  rapid.Bool().Draw(t, "settling"),
			Proof:     rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, time.Hour}).Draw(t, "proof"),
		}
	})
}

func anySpan(most time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(0, int(most/time.Second)), func(n int) time.Duration { return time.Duration(n) * time.Second })
}

func anyInstance(t *rapid.T, n int) plan.Instance {
	created := now.Add(-anySpan(time.Hour).Draw(t, "age"))
	i := instance(newID(created, uint64(n)), rapid.SampledFrom([]fleet.Phase{
		fleet.Pending, fleet.Running, fleet.Running, fleet.Running, fleet.Draining, fleet.Deleting, fleet.Deleted,
	}).Draw(t, "phase"))
	i.CreatedAt = created
	i.OnDemand = rapid.IntRange(0, 5).Draw(t, "ondemand") == 0
	if rapid.IntRange(0, 5).Draw(t, "asked") == 0 {
		i.RemovalAskedAt = new(now)
	}
	i.Busy = rapid.IntRange(0, 4).Draw(t, "busy") == 0
	i.VM = rapid.SampledFrom([]plan.VM{plan.VMAlive, plan.VMAlive, plan.VMAlive, plan.VMUnknown, plan.VMDown, plan.VMGone}).Draw(t, "vm")
	immediate := !i.OnDemand && rapid.IntRange(0, 2).Draw(t, "immediate") == 0
	i.Hashes.Infra = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "infra")
	i.RetryAt = rapid.SampledFrom([]time.Time{{}, now, now.Add(3 * time.Second)}).Draw(t, "retry")
	switch i.Phase {
	case fleet.Pending:
		i.Stray = rapid.IntRange(0, 5).Draw(t, "stray") == 0
		if rapid.Bool().Draw(t, "unmade") {
			i.Provider.ID = ""
		}
		if rapid.Bool().Draw(t, "tried") {
			i.Provider.CreateAttemptedAt = new(now.Add(-anySpan(10*time.Minute).Draw(t, "tried at")))
			i.AskedAt = now.Add(-anySpan(10*time.Minute).Draw(t, "again at"))
		}
	case fleet.Running:
		i.Health.Connected = rapid.Bool().Draw(t, "connected")
		i.Health.LastReportAt = now.Add(-anySpan(6*time.Minute).Draw(t, "report"))
		i.Health.WithoutFiles = rapid.IntRange(0, 5).Draw(t, "without files") == 0
		i.RegisteredAt = new(i.Health.LastReportAt.Add(-anySpan(5*time.Minute).Draw(t, "registered")))
		if rapid.IntRange(0, 5).Draw(t, "shutting") == 0 {
			i.Health.ShuttingDownAt = now.Add(-anySpan(time.Minute).Draw(t, "shutting down"))
		}
	case fleet.Draining:
		i.Drain.Reason = rapid.SampledFrom([]string{plan.ReasonScaleDown, plan.ReasonUnhealthy}).Draw(t, "reason")
		i.Drain.DeleteAt = now.Add(anySpan(time.Minute).Draw(t, "until"))
		if rapid.Bool().Draw(t, "acked") {
			i.Drain.AckedAt = new(now)
		}
	case fleet.Deleted:
		i.DeletedAt = new(now.Add(-anySpan(time.Hour).Draw(t, "deleted")))
	case fleet.Deleting:
	}
	if i.Phase != fleet.Pending && rapid.IntRange(0, 7).Draw(t, "notice") == 0 {
		i.Health.Notice = &fleet.Notice{At: now.Add(anySpan(2*time.Minute).Draw(t, "notice at"))}
	}
	i.Immediate = immediate && mayBeImmediate(i)
	return i
}

// mayBeImmediate reports whether an instance is lost, or pending and not created yet.
func mayBeImmediate(i plan.Instance) bool {
	if i.Phase == fleet.Pending {
		return i.Provider.ID == ""
	}
	return i.Phase == fleet.Deleted || i.Phase == fleet.Deleting || i.VM == plan.VMGone
}

func TestEveryDecisionKeepsTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView().Draw(t, "view")
		d := plan.Next(v)
		if problem := broken(v, d); problem != "" {
			t.Fatalf("%s\n%+v", problem, d)
		}
	})
}

// The order of the instances has no effect, and the view is not modified.
func TestDecisionsDependOnTheViewAlone(t *testing.T) {
	var planner plan.Planner
	rapid.Check(t, func(t *rapid.T) {
		v := anyView().Draw(t, "view")
		want := plan.Next(v)
		order := rapid.Permutation(v.Instances).Draw(t, "order")
		records := make([]fleet.Instance, len(order))
		for n, i := range order {
			records[n] = i.Clone()
		}
		other := v
		other.Instances = slices.Clone(order)
		other.Group.Leaving = slices.Clone(v.Group.Leaving)
		slices.Reverse(other.Group.Leaving)
		if got := plan.Next(other); !reflect.DeepEqual(got, want) {
			t.Fatalf("in another order\n got %+v\nwant %+v", got, want)
		}
		if got := planner.Next(other); !reflect.DeepEqual(got, want) {
			t.Fatalf("after other decisions\n got %+v\nwant %+v", got, want)
		}
		if !reflect.DeepEqual(other.Instances, order) {
			t.Fatal("the view was changed")
		}
		for n, i := range order {
			if !reflect.DeepEqual(*i.Instance, records[n]) {
				t.Fatalf("the record of %s was changed", i.ID)
			}
		}
	})
}

// Before the time of the Wake nothing becomes due by time alone; without a Wake nothing ever does.
// So a decision at any time before it is the same.
func TestWakeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyView().Draw(t, "view")
		actions := plan.Next(v).Actions
		most := 100 * 24 * time.Hour
		if n := len(actions); n > 0 && actions[n-1].Kind == plan.Wake {
			most = actions[n-1].At.Sub(now) - 1
		}
		later := v
		later.Now = now.Add(time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "later")))
		if most < 100*24*time.Hour && rapid.Bool().Draw(t, "just before") {
			later.Now = now.Add(most)
		}
		for n := range v.Instances {
			if ends(v.Instances[n]) {
				t.Skip("a drain that begins later may end at once")
			}
		}
		if got, want := essence(plan.Next(later).Actions), essence(actions); got != want {
			t.Fatalf("%s later\n got %s\nwant %s", later.Now.Sub(now), got, want)
		}
	})
}

// ends reports whether the machine has a termination notice, so that the action depends on the time
// of the decision.
func ends(i plan.Instance) bool { return i.Health.Notice != nil && i.Phase == fleet.Running }

// essence returns the actions without their times.
func essence(actions []plan.Action) string {
	out := ""
	for _, a := range actions {
		if a.Kind != plan.Wake {
			out += fmt.Sprintln(a.Kind, a.ID, a.Reason, a.IDs)
		}
	}
	return out
}
