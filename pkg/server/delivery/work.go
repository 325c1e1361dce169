package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/fleet"
)

// work does what there is to do for a session until nothing is left. There is one
// at a time for a session.
func (d *Delivery) work(id fleet.InstanceID, s *session) {
	for {
		d.mu.Lock()
		s.again = false
		d.mu.Unlock()
		i, known := d.cfg.Shard.Instance(id)
		if g, ok := d.group(i); known && ok {
			d.ask(s, g)
			d.deliver(s, i, g)
		}
		d.mu.Lock()
		if !s.again || d.ctx.Err() != nil {
			s.working = false
			d.tidyUp(id, s)
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
	}
}

// ask tells an agent what keys its instance needs, when that has changed.
func (d *Delivery) ask(s *session, g fleet.Group) {
	requests := keyRequests(g)
	d.mu.Lock()
	stream := s.keys
	news := stream != nil && s.askedOf != g.Hashes.Runtime && s.ask(requests, g.Hashes.Runtime)
	d.mu.Unlock()
	if news {
		_ = stream.deliver(requests) // fails with the stream, after which the agent opens another
	}
}

// deliver judges an instance by its last report and pushes what differs.
func (d *Delivery) deliver(s *session, i fleet.Instance, g fleet.Group) {
	now := d.cfg.Now()
	d.mu.Lock()
	v := d.version(i, g)
	if s.version != v {
		s.failures, s.retryAt = 0, time.Time{}
	}
	if s.report == nil || s.files == nil || now.Before(s.retryAt) {
		d.mu.Unlock()
		return
	}
	want := s.want
	if !s.renderedFrom(v, now) {
		want = nil
	}
	d.mu.Unlock()
	var r *rendering
	if want == nil {
		var err error
		if r, err = d.render(i, g); !d.keep(s, v, r, err, now) {
			d.tellFile(g.Key, err)
			return
		}
		want = r.set
	}
	if !d.differs(s, want, now) {
		return
	}
	if err := d.push(s, i, g, v, r); err != nil {
		d.mu.Lock()
		s.fail(d.cfg.Now())
		d.mu.Unlock()
		d.tellFile(g.Key, err)
	}
}

// render makes an instance's set, one of a few at a time.
func (d *Delivery) render(i fleet.Instance, g fleet.Group) (*rendering, error) {
	static := d.cfg.Shard.Static()
	g, err := static.ForInstance(g, i)
	if err != nil {
		return nil, err
	}
	facts, err := d.cfg.Shard.Facts(d.ctx, i, g)
	if err != nil {
		return nil, err
	}
	if err := d.prefetch(g); err != nil {
		return nil, err
	}
	release, err := acquire(d.ctx, d.making, 1)
	if err != nil {
		return nil, err
	}
	defer release()
	return recipe{
		cluster: static.Cluster.ID, group: g, certificates: static.Certificates, facts: facts,
		fetch: func(src source) ([]byte, error) { return d.sources.get(d.ctx, src) },
	}.render()
}

// prefetch reads a group's secrets and objects, so that nobody who renders waits
// for the store while others could. What fails is left to the rendering, which
// knows the file's name.
func (d *Delivery) prefetch(g fleet.Group) error {
	for _, f := range g.Files {
		if f.Kind == kindSecret || f.Kind == kindStorage {
			_, _ = d.sources.get(d.ctx, source{kind: f.Kind, name: f.Source})
		}
	}
	return d.ctx.Err()
}

// keep makes a rendering the session's; of a failed one only the time of the next
// attempt.
func (d *Delivery) keep(s *session, v version, r *rendering, err error, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.version, s.rendered, s.want = v, now, nil
	if err != nil {
		s.fail(now)
		return false
	}
	s.want = r.set
	return true
}

// differs reports whether a push is called for and may be made now.
func (d *Delivery) differs(s *session, want *Set, now time.Time) bool {
	d.mu.Lock()
	if s.report == nil || s.files == nil || s.push != nil {
		d.mu.Unlock()
		return false
	}
	decision := Judge(want, s.report, s.known(d.caEnd()), now)
	for _, f := range decision.Adopt {
		s.hold(f.Name, Issued{Content: s.report.file(f.Name).SHA256, Request: f.Sum})
	}
	settled := !decision.Push && len(decision.Await) == 0 && s.unsettled
	if settled {
		s.failures, s.retryAt, s.unsettled = 0, time.Time{}, false
	}
	again := s.lastPush == (Sum{}) || s.lastPush == want.id()
	allowed := decision.Push && (!again || s.allowance.take(now))
	group := s.group
	d.mu.Unlock()
	if settled {
		d.settle(group)
	}
	return allowed
}

// tellFile reports why a set can't be made or sent.
func (d *Delivery) tellFile(key fleet.GroupKey, err error) {
	if err == nil || d.ctx.Err() != nil {
		return
	}
	reason := ReasonFiles
	var file *fileError
	switch {
	case errors.As(err, &file):
		reason = file.reason
	case errors.As(err, new(*unreachable)):
		reason = ReasonStorage
	}
	d.tell(key, reason, err.Error())
}

// toldFor is how long a problem that comes up again is not told again.
const toldFor = time.Minute

// tell reports a problem, unless it was just told. A thousand instances have it
// at the same time.
func (d *Delivery) tell(key fleet.GroupKey, reason, message string) {
	p := fleet.Problem{At: d.cfg.Now(), Reason: reason, Message: fmt.Sprintf("%.600s", message), Group: key}
	d.mu.Lock()
	last, ok := d.told[key]
	known := ok && last.Reason == p.Reason && last.Message == p.Message && p.At.Sub(last.At) < toldFor
	if !known {
		d.told[key] = p
	}
	d.mu.Unlock()
	if !known {
		d.cfg.Report(p)
	}
}

// settle tells that a group's problem is over.
func (d *Delivery) settle(key fleet.GroupKey) {
	d.mu.Lock()
	_, had := d.told[key]
	delete(d.told, key)
	d.mu.Unlock()
	if had {
		d.cfg.Settled(key)
	}
}

// acquire takes a part of what may be under way at one time.
func acquire(ctx context.Context, s *semaphore.Weighted, n int64) (release func(), err error) {
	if err := s.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { s.Release(n) }, nil
}
