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
		return name{}, rpc.CertificateRevoked.Errorf("the client certificate names no operator: %.80q", caller.ID)
	}
	return name{caller.Tenant, id}, nil
}

// refusal returns the error for an operator that is refused.
func refusal(who name, st state) error {
	if st == removed {
		return rpc.CertificateRevoked.Errorf("operator %s was removed", who.id)
	}
	return rpc.CertificateRevoked.Errorf("there is no operator %s", who.id)
}

// end ends an operator's streams. The lock is held.
func (m *member) end() {
	m.watched = false
	if m.cut != nil {
		close(m.cut)
		m.cut = nil
	}
}

// watch starts to watch a member's record. The lock is held.
func (r *Roster) watch(m *member) {
	m.watched, m.called, m.seen = true, true, r.cfg.Now()
	select {
	case r.wake <- struct{}{}:
	default: // already woken
	}
}

// add adds an unknown operator, evicting idle ones if full. The lock is held.
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

// nextRead returns the number of a new read.
func (r *Roster) nextRead() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return r.reads
}

// note stores the result of a read, unless a later read has finished, and returns the verdict.
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

// finds reports whether an admitted operator has a record that no leader wrote, once for as long
// as it is remembered.
func (r *Roster) finds(who name, o fleet.Operator) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	if o.Epoch != 0 || m == nil || m.found {
		return false
	}
	m.found = true
	return true
}

// remembers reports whether an operator was allowed before.
func (r *Roster) remembers(who name) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.members[who]
	return m != nil && m.state == allowed
}

// recall allows an operator that was allowed before, and has its record read later. It returns
// false if the operator is not known to be allowed.
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

// Tidy drops idle operators: those without a record once that verdict has expired, and the
// others after forgetAfter. Reads that began before have ended by then.
func (r *Roster) Tidy() {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.members, func(_ name, m *member) bool {
		idle := now.Sub(m.seen)
		return m.streams == 0 && !m.watched && (idle > forgetAfter || m.state == absent && now.Sub(m.until) > lookTimeout)
	})
}

// Members returns the number of remembered operators.
func (r *Roster) Members() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.members)
}
