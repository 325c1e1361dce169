package observe_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/observe"
	"github.com/nstance/nstance/pkg/server/plan"
)

var (
	began = time.Unix(1_700_000_000, 0)
	web   = fleet.GroupKey{Tenant: "default", Name: "web"}
)

// at returns a time of the term.
func at(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

// records are those of a shard, in memory.
type records map[fleet.InstanceID]fleet.Instance

func (r records) Get(id fleet.InstanceID) (fleet.Instance, bool) { i, ok := r[id]; return i, ok }

func (r records) Instances() []fleet.Instance {
	return slices.SortedFunc(maps.Values(r), func(a, b fleet.Instance) int { return cmp.Compare(a.ID, b.ID) })
}

func (r records) Members(key fleet.GroupKey, room []*fleet.Instance) []*fleet.Instance {
	for _, i := range r.Instances() {
		if i.GroupKey() == key {
			room = append(room, &i)
		}
	}
	return room
}

// running adds a running instance of web that registered at the given time of the term.
func (r records) running(id fleet.InstanceID, registered float64) fleet.Instance {
	return r.add(fleet.Instance{
		ID: id, Phase: fleet.Running, CreatedAt: at(registered - 10), RegisteredAt: new(at(registered)),
		Provider: fleet.ProviderRef{ID: "vm-" + string(id)},
	})
}

// pending adds a pending instance of web, whose create the provider has not answered.
func (r records) pending(id fleet.InstanceID) fleet.Instance {
	return r.add(fleet.Instance{ID: id, Phase: fleet.Pending, CreatedAt: began})
}

func (r records) add(i fleet.Instance) fleet.Instance {
	i.Tenant, i.Group = web.Tenant, web.Name
	r[i.ID] = i
	return i
}

// shows is an answer that shows the VM in a state.
func shows(r fleet.Instance, state provider.State, asked float64) observe.Answer {
	return observe.Answer{Record: r, VM: provider.VM{ID: r.ID, ProviderID: r.Provider.ID, State: state}, Found: true, Asked: at(asked)}
}

// lacks is an answer that does not find the VM.
func lacks(r fleet.Instance, asked float64) observe.Answer {
	return observe.Answer{Record: r, Asked: at(asked)}
}

// joined returns web's instances as a decision sees them.
func joined(s *observe.State, now float64) observe.Joined {
	return s.Join(web, nil, observe.Moment{Now: at(now), Settings: settings}, nil)
}

var settings = plan.Settings{Settle: time.Minute, RegistrationTimeout: 5 * time.Minute}

// view returns web's view with these instances.
func view(j observe.Joined, now float64) plan.View {
	return plan.View{Now: at(now), Group: fleet.Group{Key: web}, Settings: settings, Instances: j.Instances}
}

func TestForget(t *testing.T) {
	r := records{}
	s := observe.New(r, true, began)
	for _, id := range []fleet.InstanceID{"kept", "launching", "connected", "busy", "gone"} {
		s.See(at(1), shows(r.running(id, 0), provider.StateRunning, 1), lacks(r.running(id+"-vm", 0), 1))
	}
	s.Connected("connected")
	s.StartStep(web, "busy", at(1))
	for id := range r {
		if id != "kept" {
			delete(r, id)
		}
	}
	s.Forget(map[fleet.InstanceID]bool{"launching": true}, at(2))
	if instances, groups, absent := s.Entries(); instances != 4 || groups != 0 || absent != 0 {
		t.Errorf("%d instances, %d groups, %d absent: want those that are kept, launched, connected or busy", instances, groups, absent)
	}
	if s.Get("gone").Shown {
		t.Errorf("of a forgotten instance it still knows %+v", s.Get("gone"))
	}
}
