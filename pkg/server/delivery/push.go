package delivery

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/server/ledger"
)

// push sends an instance the files that differ. r is what was just rendered of the set, or nil; if more
// of it has to be sent, or that is large, the set is rendered only when it is its turn, so that the
// contents for a thousand instances are never in memory at once.
func (d *Delivery) push(s *session, i fleet.Instance, g fleet.Group, v version, r *rendering) error {
	if r != nil {
		if o := d.order(s, v, r); o == nil || o.complete() && o.size() <= smallSet {
			return d.carryOut(s, i, o)
		}
	}
	d.mu.Lock()
	size := s.want.size
	d.mu.Unlock()
	if size > smallSet {
		release, err := acquire(d.ctx, d.pushing, min(size, maxPushBytes))
		if err != nil {
			return err
		}
		defer release()
	}
	whole, err := d.render(i, g, nil)
	if err != nil {
		return err
	}
	return d.carryOut(s, i, d.order(s, v, whole))
}

// carryOut issues the certificates of a push, logs them and sends it; nil: nothing is to be sent.
func (d *Delivery) carryOut(s *session, i fleet.Instance, o *order) error {
	if o == nil {
		return nil
	}
	batch, err := d.fill(o, i)
	if err != nil {
		return err
	}
	if err := d.log(o, batch); err != nil {
		return err
	}
	d.send(s, i.ID, o)
	return nil
}

// order is a push being prepared.
type order struct {
	set    *Set
	stream *Stream[Push]
	send   []Wanted
	made   map[string]content
	keys   map[string]pki.LeafKey
	push   Push
	sent   map[string]Issued
}

// complete reports whether everything to be sent has its content.
func (o *order) complete() bool {
	return !slices.ContainsFunc(o.send, func(f Wanted) bool { _, ok := o.made[f.Name]; return !ok })
}

// size returns how many bytes are sent, without certificates.
func (o *order) size() (bytes int) {
	for _, f := range o.send {
		bytes += f.size
	}
	return bytes
}

// order judges the instance again with the rendered set; nil if there is nothing to push any
// more.
func (d *Delivery) order(s *session, v version, r *rendering) *order {
	now := d.cfg.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.want, s.last, s.version, s.rendered = r.set, r.set, v, now
	if s.report == nil || s.files == nil {
		return nil
	}
	decision := s.judge(r.set, d.caEnd(), now)
	if !decision.Push {
		return nil
	}
	o := &order{set: r.set, stream: s.files, send: decision.Send, made: r.contents, keys: map[string]pki.LeafKey{}, sent: map[string]Issued{}}
	for _, f := range o.send {
		if f.Key != "" {
			o.keys[f.Key] = s.submitted[f.Key]
		}
	}
	o.push = Push{ConfigHash: r.set.Hash, Names: r.set.names(s.report)}
	return o
}

// fingerprints returns those of the keys that certificates are issued for, in the order of the
// key names.
func (o *order) fingerprints() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(o.keys)) {
		all = append(all, fingerprint(o.keys[name]))
	}
	return all
}

// fill adds the files to the push and issues its certificates, in one batch.
func (d *Delivery) fill(o *order, i fleet.Instance) (ledger.CertificateBatch, error) {
	batch := ledger.CertificateBatch{Tenant: i.Tenant, Instance: i.ID, IssuedAt: d.cfg.Now()}
	release, err := acquire(d.ctx, d.making, 1)
	if err != nil {
		return batch, err
	}
	defer release()
	for _, f := range o.send {
		c := o.made[f.Name]
		if f.Key == "" {
			o.push.Files = append(o.push.Files, File{Name: f.Name, Content: c.body})
			o.sent[f.Name] = Issued{Content: f.Sum}
			continue
		}
		request := *c.request
		request.Key, request.Now = o.keys[f.Key], batch.IssuedAt
		leaf, err := d.cfg.CA.IssueLeaf(request, d.cfg.Random)
		if err != nil {
			return batch, &fileError{name: f.Name, reason: ReasonFiles, err: err}
		}
		o.push.Files = append(o.push.Files, File{Name: f.Name, Content: leaf.PEM})
		o.sent[f.Name] = Issued{Content: sha256.Sum256(leaf.PEM), Request: f.Sum}
		batch.Certificates = append(batch.Certificates, ledger.Certificate{Name: f.Name, Serial: leaf.Serial, Expiry: leaf.NotAfter})
	}
	return batch, nil
}

// log durably records the issued certificates and their keys: a certificate in use must be in
// the log.
func (d *Delivery) log(o *order, batch ledger.CertificateBatch) error {
	if len(batch.Certificates) == 0 {
		return nil
	}
	release, err := acquire(d.ctx, d.logging, 1)
	if err != nil {
		return err
	}
	defer release()
	if err = d.cfg.Bind(d.ctx, batch.Instance, o.fingerprints()); err == nil {
		err = d.cfg.Log(d.ctx, batch)
	}
	if err != nil {
		return &fileError{name: batch.Certificates[0].Name, reason: ReasonStorage, err: err}
	}
	return nil
}

// send sends the push on the stream that it was prepared for. The agent reports the outcome.
func (d *Delivery) send(s *session, id fleet.InstanceID, o *order) {
	p := &push{sending: true, hash: o.set.Hash, sent: o.sent}
	d.mu.Lock()
	if s.files != o.stream {
		d.mu.Unlock()
		return
	}
	o.push.Traceparent, p.end = d.cfg.Trace(s.group, id)
	s.push, s.lastPush = p, o.set.id()
	d.mu.Unlock()
	err := o.stream.deliver(o.push)
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.sending, p.at = false, d.cfg.Now(); err != nil && s.push == p {
		s.over(err)
	}
}
