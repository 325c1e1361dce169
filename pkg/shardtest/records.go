package shardtest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/plan"
)

func (b *book) wroteInstance(key string, body []byte) {
	var i fleet.Instance
	if err := json.Unmarshal(body, &i); err != nil {
		b.violate("%s can't be read: %v", key, err)
		return
	}
	old, known := b.records[i.ID]
	i.Measure(old, time.Now())
	b.judgeMove(old, i, known)
	if wrong := b.ends.judge(old, i, b.records); wrong != "" {
		b.violate("%s", wrong)
	}
	if known {
		b.judgeMemory(old, i)
	} else {
		b.judgeAbsence(i)
		b.landed[i.ID] = time.Now()
	}
	b.judgeKey(i)
	b.judgeDrain(old, i)
	if i.Phase == fleet.Deleted && i.Reason == plan.ReasonCreateFailed && strings.Contains(i.Failure, provider.ErrThrottled.Error()) {
		b.violate("%s failed because of throttling: %s", i.ID, i.Failure)
	}
	b.pace.lose(old, i, time.Now())
	if i.OnDemand && i.Phase == fleet.Deleted && i.Failed() {
		b.failed[i.ID] = true
	}
	b.tell(old, i, known)
	if now := time.Now(); i.Phase != old.Phase && b.pace.settled(old, now) {
		b.left[i.ID] = now
	}
	b.records[i.ID] = i
}

// judgeMove checks that a change of a record is valid.
func (b *book) judgeMove(old, i fleet.Instance, known bool) {
	_, was := b.past[i.ID]
	switch {
	case was:
		b.violate("id %s is reused", i.ID)
	case known && i.Epoch < old.Epoch:
		b.violate("the record of %s went back from epoch %d to %d", i.ID, old.Epoch, i.Epoch)
	case known && i.Phase != old.Phase && !old.Phase.CanMove(i.Phase):
		b.violate("%s moved from %s to %s", i.ID, old.Phase, i.Phase)
	case !known && i.Phase != fleet.Pending:
		b.violate("the first record of %s is %s", i.ID, i.Phase)
	}
}

// judgeMemory checks that a record keeps what was acknowledged to callers.
func (b *book) judgeMemory(old, i fleet.Instance) {
	if old.RemovalAskedAt != nil && i.RemovalAskedAt == nil {
		b.violate("the record of %s lost its requested removal", i.ID)
	}
	if acked(i) && !b.acking[i.ID] {
		b.violate("the record of %s has an acknowledgement without a call", i.ID)
	}
	if acked(old) && !acked(i) {
		b.violate("the record of %s lost its drain acknowledgement", i.ID)
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
		b.judgeReason(old, i)
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

// judgeReason checks reasons that a takeover, an invalid config or a stale answer of the provider
// must never cause.
func (b *book) judgeReason(old, i fleet.Instance) {
	reason, _, _ := strings.Cut(i.Reason, ": ") // details of the provider follow
	if dead := reason == plan.ReasonVMGone || reason == plan.ReasonVMDown; dead && b.lives(i.ID) {
		b.violate("%s is removed as %s, but its machine lives", i.ID, i.Reason)
	}
	if !rotated(i) || rotated(old) { // its definition may be the current one again when it is gone
		return
	}
	if !b.mayDrift(i) {
		b.violate("%s is rotated, but the Infra hash has not changed", i.ID)
	}
	if i.Phase == fleet.Draining && !b.hasHeir(i, time.Now().Add(b.wall.older(i.Epoch))) {
		b.violate("%s is rotated, but no instance of its group with another Infra hash has settled", i.ID)
	}
}

// rotated reports whether an instance leaves because of its Infra hash.
func rotated(i fleet.Instance) bool {
	return i.Reason == plan.ReasonDrift || i.Drain != nil && i.Drain.Reason == plan.ReasonDrift
}

// hasHeir reports whether a rotated instance exceeds the size, because an instance with another
// Infra hash has settled, or because the size was reduced. Instances that left within
// evidenceLasts count too, since the rotation's write may be older.
func (b *book) hasHeir(i fleet.Instance, now time.Time) bool {
	settled := 0
	for _, r := range b.records {
		left, ok := b.left[r.ID]
		counts := b.pace.settled(r, now) || ok && time.Since(left) <= storeTimeout
		if r.ID == i.ID || r.GroupKey() != i.GroupKey() || r.OnDemand || !counts {
			continue
		}
		if settled++; r.Hashes.Infra != i.Hashes.Infra {
			return true
		}
	}
	return settled >= b.least(i.GroupKey())
}

// judgeDrain checks that a term that begins to drain an instance leaves it the time of the drain,
// whatever the wall clock says meanwhile, unless the machine ends or a call says that it is ready.
func (b *book) judgeDrain(old, i fleet.Instance) {
	if old.Drain == nil {
		if i.Drain != nil {
			b.drains[i.ID] = i.Epoch
		}
		return
	}
	left := time.Until(old.Drain.DeleteAt)
	if old.Phase != fleet.Draining || i.Phase == fleet.Draining || left <= 0 || i.Epoch != b.drains[i.ID] {
		return
	}
	if !acked(i) && b.lives(i.ID) && !b.doomed[i.ID] {
		b.violate("the drain of %s ends %s early", i.ID, left)
	}
}
