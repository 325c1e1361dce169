package roster

import (
	"maps"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
)

func named(caller pki.Caller) (name, error) {
	id, err := fleet.ParseID(caller.ID)
	if err != nil || id.Kind() != fleet.OperatorKind {
		return name{}, rpc.CertificateRevoked.Errorf("the certificate names no operator: %.80q", caller.ID)
	}
	return name{caller.Tenant, id}, nil
}

// refusal is the verdict on one that is not let in.
func refusal(who name, st state) error {
	if st == removed {
		return rpc.CertificateRevoked.Errorf("operator %s was removed", who.id)
	}
	return rpc.CertificateRevoked.Errorf("there is no operator %s", who.id)
}

// end has an operator's streams leave. The lock is held.
func (m *member) end() {
	m.watched = false
	if m.cut != nil {
		close(m.cut)
		m.cut = nil
	}
}

// watch has a member looked at from now on. The lock is held.
func (r *Roster) watch(m *member) {
	m.watched, m.called, m.seen = true, true, r.cfg.Now()
	select {
	case r.wake <- struct{}{}:
	default: // it will look
	}
}

// add makes room, for an operator that nothing is known of. The lock is held.
func (r *Roster) add(who name) *member {
	for _, spare := range []func(*member) bool{
		func(m *member) bool { return m.streams == 0 && !m.watched },
		func(m *member) bool { return m.streams == 0 },
	} {
		for other, m := range r.members {
			if len(r.members) < maxMembers {
				break
			}
			if spare(m) {
				delete(r.members, other)
			}
		}
	}
	m := &member{seen: r.cfg.Now()}
	r.members[who] = m
	return m
}

// begin numbers a read.
func (r *Roster) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return r.reads
}

// note takes down what a read said, unless a later one has said something since,
// and returns the verdict that holds.
func (r *Roster) note(who name, read uint64, st state, etag object.ETag) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	if m == nil {
		m = r.add(who)
	}
	if m.state != removed && read >= m.read {
		m.state, m.etag, m.read = st, etag, read
		if st == allowed {
			r.watch(m)
		} else {
			m.until = r.cfg.Now().Add(absentFor)
			m.end()
		}
	}
	if m.state == allowed {
		return nil
	}
	return refusal(who, m.state)
}

// remembers reports whether an operator was let in before.
func (r *Roster) remembers(who name) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	return m != nil && m.state == allowed
}

// recall lets an operator in that was let in before, and has its record looked at
// later. Not ok: it was not, or is not let in any more.
func (r *Roster) recall(who name) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	if m == nil || m.state != allowed {
		return false
	}
	r.watch(m)
	return true
}

// Tidy forgets those of whom a read would tell the same: who is refused for want of a
// record longer than that counts, and who has not been here for forgetAfter. No read
// that began before is still under way then.
func (r *Roster) Tidy() {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.members, func(_ name, m *member) bool {
		idle := now.Sub(m.seen)
		return m.streams == 0 && !m.watched && (idle > forgetAfter || m.state == absent && now.Sub(m.until) > lookTimeout)
	})
}

// Members counts those of whom something is remembered.
func (r *Roster) Members() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.members)
}
