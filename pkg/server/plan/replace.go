package plan

// chooseReplaced picks the one instance that is replaced next, replacement
// first. The rules are in order of urgency; the first that names an instance
// wins.
func (d *decision) chooseReplaced() {
	if d.size == 0 {
		return
	}
	for _, rule := range []func() (*member, string){
		d.askedReplacement,
		d.forcedExpiry,
		d.unhealthyReplacement,
		d.opportunisticExpiry,
		d.rotation,
	} {
		if m, reason := rule(); m != nil {
			d.replaced, d.replacedReason = m, reason
			return
		}
	}
}

// replace lets the chosen one go once its replacement, and with it every other
// instance that is not unhealthy itself, is ready.
func (d *decision) replace() {
	m := d.replaced
	if m == nil || m.going || len(d.live)-d.going <= d.size {
		return
	}
	ready, unhealthy := 0, d.unhealthy
	for n := range d.live {
		if o := &d.live[n]; o != m && o.ready && !o.going {
			ready++
		}
	}
	if m.unhealthy {
		unhealthy--
	}
	if ready < d.size-unhealthy {
		return
	}
	d.leave(m, d.replacedReason)
}

// leave removes a member and remembers that it goes.
func (d *decision) leave(m *member, reason string) {
	d.remove(m.Instance, reason)
	m.going = true
	d.going++
}

// unhealthyReplacement names the oldest instance whose machine runs but which
// is silent; one at a time, and the next only when the last one has left.
func (d *decision) unhealthyReplacement() (*member, string) {
	if d.unhealthy == 0 || d.replacing {
		return nil, ""
	}
	return d.oldest(func(m *member) bool { return m.unhealthy }), ReasonUnhealthy
}

// oldest returns the oldest member for which ok holds, or nil.
func (d *decision) oldest(ok func(*member) bool) *member {
	for n := range d.live {
		if m := &d.live[n]; ok(m) {
			return m
		}
	}
	return nil
}
