package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
)

// work does a session's pending work until none is left. At most one runs per session.
func (d *Delivery) work(id fleet.InstanceID, s *session) {
	for {
		d.mu.Lock()
		s.again = false
		d.mu.Unlock()
		i, known := d.cfg.Shard.Instance(id)
		if g, ok := d.group(i); known && ok {
			d.requestKeys(s, g)
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

// requestKeys sends an agent the keys that its instance needs, if they have changed.
func (d *Delivery) requestKeys(s *session, g fleet.Group) {
	requests := keyRequests(g)
	d.mu.Lock()
	stream := s.keys
	news := stream != nil && s.askedOf != g.Hashes.Runtime && s.setRequests(requests, g.Hashes.Runtime)
	d.mu.Unlock()
	if news {
		_ = stream.deliver(requests) // fails only if the stream ends, and then the agent opens another
	}
}

// deliver judges an instance by its last report and pushes files that differ.
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
	want, before := s.want, s.last
	if !s.renderedFrom(v, now) {
		want = nil
	}
	d.mu.Unlock()
	var r *rendering
	if want == nil {
		var err error
		if r, err = d.render(i, g, before); !d.setRendering(s, v, r, err, now) {
			d.reportFile(g.Key, err)
			return
		}
		want = r.set
	}
	if !d.differs(s, want, now) {
		return
	}
	if err := d.push(s, i, g, v, r); err != nil {
		d.mu.Lock()
		s.fail(err.Error(), d.cfg.Now())
		d.mu.Unlock()
		d.reportFile(g.Key, err)
	}
}

// render renders an instance's set, or what may differ from its set before; the number of concurrent
// renderings is limited.
func (d *Delivery) render(i fleet.Instance, g fleet.Group, before *Set) (*rendering, error) {
	static := d.cfg.Shard.Static()
	g, err := static.ForInstance(g, i)
	if err != nil {
		return nil, err
	}
	values, err := d.cfg.Shard.Values(d.ctx, i, g)
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
		cluster: static.Cluster.ID, group: g, certificates: static.Certificates, values: values, before: before, alone: i.Overrides != nil,
		permit:  func(r *pki.LeafRequest) error { return d.cfg.Permit(i.ID, r) },
		allowed: func(f fleet.File) error { return static.CheckFile(i.Tenant, f) },
		fetch:   func(src source) (fetched, error) { return d.sources.get(d.ctx, src) },
	}.render()
}

// prefetch reads a group's secrets and objects, so that no rendering waits for the store while
// others could run. Errors are left to the rendering, which knows the file's name.
func (d *Delivery) prefetch(g fleet.Group) error {
	for _, f := range g.Files {
		if fetches(f.Kind) {
			_, _ = d.sources.get(d.ctx, source{kind: f.Kind, name: f.Source})
		}
	}
	return d.ctx.Err()
}

// setRendering stores a rendering in the session, or after an error the time of the next
// attempt.
func (d *Delivery) setRendering(s *session, v version, r *rendering, err error, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.version, s.rendered, s.want = v, now, nil
	if err != nil {
		s.fail(err.Error(), now)
		return false
	}
	s.want, s.last = r.set, r.set
	return true
}

// differs reports whether a push is needed and allowed now.
func (d *Delivery) differs(s *session, want *Set, now time.Time) bool {
	d.mu.Lock()
	if s.report == nil || s.files == nil || s.push != nil {
		d.mu.Unlock()
		return false
	}
	decision := s.judge(want, d.caEnd(), now)
	for _, f := range decision.Adopt {
		s.hold(f.Name, Issued{Content: s.report.file(f.Name).SHA256, Request: f.Sum})
	}
	settled := s.inPlace != nil && s.unsettled
	if settled {
		s.failures, s.retryAt, s.unsettled = 0, time.Time{}, false
	}
	again := s.lastPush == (Sum{}) || s.lastPush == want.id()
	allowed := decision.Push && (!again || s.allowance.take(now))
	group := s.group
	d.mu.Unlock()
	if settled {
		d.clearProblem(group)
	}
	return allowed
}

// reportFile reports why a set can't be rendered or sent.
func (d *Delivery) reportFile(key fleet.GroupKey, err error) {
	if err == nil || d.ctx.Err() != nil {
		return
	}
	reason := ReasonFiles
	var file *fileError
	switch {
	case errors.As(err, &file):
		reason = file.reason
	case errors.As(err, new(*unreachable)), errors.Is(err, object.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		reason = ReasonStorage
	}
	d.report(key, "", reason, err.Error())
}

// toldFor is how long the same problem is not reported again.
const toldFor = time.Minute

// report reports a problem of a group, or of one of its instances, unless it was reported recently: a
// thousand instances may have it at the same time.
func (d *Delivery) report(key fleet.GroupKey, id fleet.InstanceID, reason, message string) {
	p := fleet.Problem{At: d.cfg.Now(), Reason: reason, Message: fmt.Sprintf("%.600s", message), Group: key}
	d.mu.Lock()
	last, ok := d.told[key]
	known := ok && last.Reason == p.Reason && last.Message == p.Message && p.At.Sub(last.At) < toldFor
	if !known {
		d.told[key] = p
	}
	d.mu.Unlock()
	if !known {
		if id != "" {
			p.Message = fmt.Sprintf("instance %s: %s", id, p.Message)
		}
		d.cfg.Report(p)
	}
}

// clearProblem reports that a group's problem is over.
func (d *Delivery) clearProblem(key fleet.GroupKey) {
	d.mu.Lock()
	_, had := d.told[key]
	delete(d.told, key)
	d.mu.Unlock()
	if had {
		d.cfg.Settled(key)
	}
}

// acquire acquires n units of a semaphore.
func acquire(ctx context.Context, s *semaphore.Weighted, n int64) (release func(), err error) {
	if err := s.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { s.Release(n) }, nil
}
