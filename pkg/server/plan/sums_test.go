package plan_test

import (
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

// sums are totals over the actions of one decision, to check invariants of the whole group.
type sums struct {
	creates, immediate     int
	resumes, held          int             // held: of resumes, by the pace
	removed, provenRemoved int             // of those that count
	scaled                 int             // of removed: because of the size
	urgent                 int             // of removed: requested or silent, with their files
	calm                   int             // of removed: working
	gone, replaced         []plan.Instance // of removed: all, and those that run and are replaced
}

// add adds an action on an instance.
func (s *sums) add(v plan.View, i plan.Instance, a plan.Action) {
	if a.Kind == plan.Resume {
		s.resumes += one(!i.OnDemand)
		s.held += one(!i.OnDemand && !i.Immediate)
		return
	}
	if !counted(v, i) {
		return
	}
	s.removed++
	s.provenRemoved += provenOf(v, i)
	s.gone = append(s.gone, i)
	calm := calmReason(a.Reason)
	switch {
	case a.Reason == plan.ReasonScaleDown:
		s.scaled++
	case i.Phase != fleet.Running: // no work is lost
	case calm || a.Reason == plan.ReasonReplaceAsked || a.Reason == plan.ReasonUnhealthy:
		s.replaced = append(s.replaced, i)
		s.calm += one(calm && !bareOf(v, i))
		s.urgent += one(!calm && !bareOf(v, i))
	}
}

func (s *sums) brokenLeaving(c count) string {
	stay := c.live - s.removed - c.maybeGoing
	switch {
	case s.scaled > 0 && stay < c.size:
		return "scaled below the size"
	case s.urgent > 1:
		return "two replaced at a time that can't wait"
	case len(s.replaced) > 0 && stay < c.size:
		return "replaced without a replacement"
	case s.calm > 0 && c.proven-s.provenRemoved < c.size:
		return "one that works is replaced before the others have settled"
	default:
		return ""
	}
}

// brokenReplaced checks that for each replaced instance as many of those that stay as the size are
// ready, or need not be: silent ones; for a silent one, and for one without files, older ones without
// files; for one without files no younger silent ones.
func (s *sums) brokenReplaced(v plan.View) string {
	stays := func(i plan.Instance) bool {
		same := func(j plan.Instance) bool { return i.ID == j.ID }
		return counted(v, i) && i.Phase == fleet.Running && !i.Busy && !slices.ContainsFunc(s.gone, same)
	}
	for _, m := range s.replaced {
		n := 0
		for _, i := range v.Instances {
			older := i.ID < m.ID
			switch {
			case !stays(i):
			case silent(v, i):
				n += one(!bareOf(v, m) || older)
			case bareOf(v, i):
				n += one(older && (bareOf(v, m) || silent(v, m)))
			default:
				n += readyOf(v, i)
			}
		}
		if n < max(0, v.Group.Size) {
			return "a replacement before the others are ready"
		}
	}
	return ""
}

// brokenCreates checks the creates against the size, the surge and the pace.
func (s *sums) brokenCreates(v plan.View, c count) string {
	left := 1 << 30 // creates that the pace allows
	if v.Pace.NotBefore.After(v.Now) {
		left = 0
	} else if v.Pace.Probation > 0 {
		left = max(0, v.Pace.Probation-c.inProbation)
	}
	missing := c.size - c.live
	switch {
	case s.creates+s.resumes > 0 && v.Group.Disabled != "":
		return "a create for a group that is disabled"
	case s.immediate > c.immediate:
		return "more are immediate than were lost"
	case s.creates-s.immediate+s.held > left:
		return "a create that was to be held back"
	case s.creates > 0 && c.live+s.creates > c.size+max(c.surge, c.urgent):
		return "more than size + max_surge"
	case s.creates > 0 && v.Group.RolloutPaused && c.live+s.creates > c.size+c.urgent:
		return "a replacement of one that works while the rollout is paused"
	case v.Group.Disabled == "" && s.creates < min(missing, c.immediate):
		return "something immediate is missing, and not created in the same step"
	case v.Group.Disabled == "" && s.creates < min(missing, left-s.resumes):
		return "something missing, and not created in the same step"
	default:
		return ""
	}
}

// brokenSurge checks a decision against the surge that the shard allows.
func (s *sums) brokenSurge(v plan.View, c count, d plan.Decision) string {
	beyond := c.live + s.creates - c.size - c.urgent
	switch {
	case d.Surge < 0 || d.Surge > c.surge+c.surging:
		return "an account that can't be"
	case s.creates > 0 && beyond > max(0, v.Surge-c.surging):
		return "more than the shard lets it have"
	case s.creates > 0 && beyond > 0 && (d.Surge < beyond || d.Surge > v.Surge):
		return "creates that the account does not show"
	case d.Starved && d.Surge < min(v.Surge, c.surge):
		return "starved with something left"
	default:
		return ""
	}
}
