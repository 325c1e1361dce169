package shardtest

import (
	"encoding/json"
	"strings"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/plan"
)

func (b *book) wroteInstance(key string, body []byte) {
	var i fleet.Instance
	if err := json.Unmarshal(body, &i); err != nil {
		b.violate("%s can't be read: %v", key, err)
		return
	}
	old, known := b.records[i.ID]
	b.judgeMove(old, i, known)
	if known {
		b.judgeMemory(old, i)
	}
	b.judgeKey(i)
	b.tell(old, i, known)
	b.records[i.ID] = i
}

// judgeMove refuses what no record may become.
func (b *book) judgeMove(old, i fleet.Instance, known bool) {
	switch {
	case b.gone[i.ID]:
		b.violate("the id %s is used again", i.ID)
	case known && i.Epoch < old.Epoch:
		b.violate("the record of %s went back from epoch %d to %d", i.ID, old.Epoch, i.Epoch)
	case known && i.Phase != old.Phase && !old.Phase.CanMove(i.Phase):
		b.violate("%s moved from %s to %s", i.ID, old.Phase, i.Phase)
	case !known && i.Phase != fleet.Pending:
		b.violate("%s begins its life %s", i.ID, i.Phase)
	}
}

// judgeMemory refuses a record that forgets what callers were told.
func (b *book) judgeMemory(old, i fleet.Instance) {
	if old.RemovalAskedAt != nil && i.RemovalAskedAt == nil {
		b.violate("the record of %s forgot that it is to be removed", i.ID)
	}
	if acked(old) && !acked(i) {
		b.violate("the record of %s forgot that its drain was acknowledged", i.ID)
	}
}

func (b *book) judgeKey(i fleet.Instance) {
	if i.PublicKeySHA256 == "" {
		return
	}
	if spent, ok := b.keys[i.ID]; ok && spent != i.PublicKeySHA256 {
		b.violate("the nonce of %s was accepted for two keys", i.ID)
	}
	b.keys[i.ID] = i.PublicKeySHA256
}

func (b *book) tell(old, i fleet.Instance, known bool) {
	who := lifeOf(i.Writer)
	if !known {
		b.timeline.Say(who, "records %s of %s: pending%s", i.ID, group(i), because(i))
	} else if i.Phase != old.Phase {
		b.timeline.Say(who, "records %s of %s: %s to %s%s", i.ID, group(i), old.Phase, i.Phase, because(i))
		b.judgeReason(i)
	}
}

func acked(i fleet.Instance) bool { return i.Drain != nil && i.Drain.AckedAt != nil }

func group(i fleet.Instance) string {
	name := i.Group
	if i.Tenant != fleet.DefaultTenant {
		name = i.Tenant + "/" + name
	}
	if i.OnDemand {
		name += " (on demand)"
	}
	return name
}

func because(i fleet.Instance) string {
	if i.Reason == "" || i.Phase == fleet.Running || i.Phase == fleet.Deleted {
		return ""
	}
	return ", " + i.Reason
}

// judgeReason refuses what a takeover, an invalid config or a stale answer of the
// provider must never cause.
func (b *book) judgeReason(i fleet.Instance) {
	reason, _, _ := strings.Cut(i.Reason, ": ") // the provider's words follow
	if dead := reason == plan.ReasonVMGone || reason == plan.ReasonVMDown; dead && b.lives(i.ID) {
		b.violate("%s is given up as %s, and its machine lives", i.ID, i.Reason)
	}
	if i.Reason == plan.ReasonDrift && !b.mayDrift(i) {
		b.violate("%s is rotated, and nobody changed what machines are built with", i.ID)
	}
}
