package election

import "time"

// conn is one stream from a holder to a follower.
type conn struct {
	id   uint64
	from *proc // who dialed
	to   *proc
	gone bool          // for both ends
	cut  bool          // a line was lost, so nothing that comes after it arrives
	last time.Duration // when the latest line arrives: lines stay in order
}

func (w *world) joined(a, b *simHost) bool {
	return a == b || (w.now >= a.peersCut && w.now >= b.peersCut)
}

func (p *proc) dial(c dialPeer) {
	w := p.w
	k := &conn{id: c.id, from: p}
	p.conns[c.id] = k
	answered := false
	w.after(c.timeout, func() {
		p.deliver(func() {
			if !answered && !k.gone {
				k.end()
				p.peerTimedOut(c.id)
			}
		})
	})
	p.later(w.hop(), func() {
		to := w.hostAt(c.addr)
		switch {
		case k.gone || !w.joined(p.host, to) || to.suspended:
		case to.proc == nil, w.now < to.refuses && to != p.host:
			p.later(w.hop(), func() {
				if !k.gone {
					k.end()
					p.step(func(m *machine, now instant) { m.peerRefused(now, c.id) })
				}
			})
		default:
			k.to = to.proc
			to.proc.later(w.hop(), func() { k.accept(&answered) })
		}
	})
}

func (w *world) hop() time.Duration { return 100*time.Microsecond + w.upTo(5*time.Millisecond) }

// peerTimedOut reports silence to the machine; a mutation may treat silence as death.
func (p *proc) peerTimedOut(id uint64) {
	p.step(func(m *machine, now instant) {
		if p.w.spoil.silenceIsDeath {
			m.peerRefused(now, id)
			return
		}
		m.peerFailed(now, id)
	})
}

// accept is the handler on the other side.
func (k *conn) accept(answered *bool) {
	n := k.to.notice
	l := Line{Server: k.to.name}
	if n.record.Holder != "" {
		r := n.record
		l.Record, l.ETag, l.Rev, l.Released = &r, n.etag, r.Rev, r.Released
	}
	k.send(l, answered)
	if l.Record != nil && !l.Released {
		k.to.readers = append(k.to.readers, k)
		if k.from.w.straits.on {
			k.to.step((*machine).peerJoined)
		}
		return
	}
	k.close()
}

func (k *conn) send(l Line, answered *bool) {
	w := k.from.w
	k.cut = k.cut || !w.joined(k.from.host, k.to.host)
	if k.gone || k.cut {
		return
	}
	w.after(k.delay(), func() {
		k.from.deliver(func() {
			if k.gone {
				return
			}
			if answered != nil {
				*answered = true
			}
			k.from.step(func(m *machine, now instant) { m.peerLine(now, k.id, l) })
		})
	})
}

// close is seen by the dialer as FIN or RST; across a network cut it is not seen.
func (k *conn) close() {
	w := k.from.w
	if k.gone || k.cut || !w.joined(k.from.host, k.to.host) {
		return
	}
	w.after(k.delay(), func() {
		k.from.deliver(func() {
			if !k.gone {
				k.end()
				k.from.step(func(m *machine, now instant) { m.peerClosed(now, k.id) })
			}
		})
	})
}

func (k *conn) delay() time.Duration {
	w := k.from.w
	k.last = max(k.last, w.now+w.hop())
	return k.last - w.now
}

func (k *conn) end() {
	k.gone = true
	delete(k.from.conns, k.id)
}

func (p *proc) hangUp(id uint64) {
	if k, ok := p.conns[id]; ok {
		k.end()
	}
}

// tell pushes a published notice to all listening servers.
func (p *proc) tell(n publish) {
	old := p.notice
	p.notice = n
	over := n.record.Holder == "" || n.record.Released || n.record.Epoch != old.record.Epoch
	for _, k := range p.readers {
		if n.record.Holder != "" && n.record.Epoch == old.record.Epoch {
			l := Line{ETag: n.etag, Rev: n.record.Rev, Released: n.record.Released}
			if n.record.retimed(old.record) && !p.w.spoil.secretTiming {
				r := n.record
				l.Record = &r
			}
			k.send(l, nil)
		}
		if over {
			k.close()
		}
	}
	if over {
		p.readers = nil
	}
}

func (w *world) hostAt(addr string) *simHost {
	for _, h := range w.hosts {
		if h.addr == addr {
			return h
		}
	}
	return nil
}
