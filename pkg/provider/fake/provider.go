package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// Provider is a server's handle on a World.
type Provider struct {
	w     *World
	scope provider.Scope
	name  string
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)

	_ provider.ConsistentReads = (*Provider)(nil)
)

// ConsistentReads implements provider.ConsistentReads, according to Config.Lag.
func (p *Provider) ConsistentReads() bool { return p.w.cfg.Lag.Max <= 0 }

// Create implements provider.Provider.
func (p *Provider) Create(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	if err := spec.Check(p.scope); err != nil {
		return provider.VM{}, err
	}
	if check := p.w.cfg.CheckArgs; check != nil {
		if err := check(spec); err != nil {
			return provider.VM{}, err
		}
	}
	r := request{op: OpCreate, ref: provider.Ref{ID: spec.ID}, subnet: spec.Subnet, takes: p.w.cfg.CreateLatency, mutates: true}
	return send(ctx, p, r, func() (provider.VM, error) { return p.w.create(p.scope, spec) })
}

// Get implements provider.Provider. It makes one call for all refs.
func (p *Provider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	r := request{op: OpGet, refs: refs, takes: p.w.cfg.GetLatency}
	answers, err := batch(ctx, p, r, func(ref provider.Ref, err error) provider.Answer {
		if err != nil {
			return provider.Answer{Err: err}
		}
		shown := p.show(p.w.find(p.scope, ref), ref)
		if len(shown) == 0 {
			return provider.Answer{Err: fmt.Errorf("%w: instance %q, provider id %.80q", provider.ErrNotFound, ref.ID, ref.ProviderID)}
		}
		return provider.Answer{VM: shown[0]}
	})
	if err != nil {
		return slices.Repeat([]provider.Answer{{Err: err}}, len(refs))
	}
	return answers
}

// List implements provider.Provider. Each page is a call.
func (p *Provider) List(ctx context.Context) (vms []provider.VM, err error) {
	var last provider.VM
	for {
		full := false
		page, err := send(ctx, p, request{op: OpList, takes: p.w.cfg.ListLatency}, func() ([]provider.VM, error) {
			rows := p.w.shelf(p.scope).after(last, p.w.cfg.ListPage)
			if full = len(rows) > 0 && len(rows) == p.w.cfg.ListPage; full {
				last = rows[len(rows)-1].vm
			}
			return p.show(rows, provider.Ref{}), nil
		})
		if err != nil {
			return nil, err
		}
		vms = append(vms, page...)
		if !full {
			return vms, nil
		}
		provider.Listed(ctx)
	}
}

// Delete implements provider.Provider. It makes one call for all refs.
func (p *Provider) Delete(ctx context.Context, refs []provider.Ref) []error {
	r := request{op: OpDelete, refs: refs, takes: p.w.cfg.DeleteLatency, mutates: true}
	errs, err := batch(ctx, p, r, func(ref provider.Ref, err error) error {
		if err != nil {
			return err
		}
		for _, row := range p.w.find(p.scope, ref) {
			p.w.remove(row)
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(refs))
	}
	return errs
}

// batch makes one call for several VMs. apply takes effect on one of them, whose ref may be
// invalid; the error is that of the whole call.
func batch[T any](ctx context.Context, p *Provider, r request, apply func(provider.Ref, error) T) ([]T, error) {
	if err := provider.CheckBatch(r.refs); err != nil || len(r.refs) == 0 {
		return nil, err
	}
	r.refs = slices.Clone(r.refs) // kept by the log
	r.ref = r.refs[0]
	return send(ctx, p, r, func() ([]T, error) {
		out := make([]T, len(r.refs))
		for n, ref := range r.refs {
			out[n] = apply(ref, ref.Check())
		}
		return out, nil
	})
}

// argsChecker validates with Config.CheckArgs.
type argsChecker func(provider.Spec) error

// CheckArgs implements provider.ArgsChecker.
func (c argsChecker) CheckArgs(spec provider.Spec) error { return c(spec) }

// ArgsChecker returns the world's ArgsChecker, if it has one.
func (p *Provider) ArgsChecker() (c provider.ArgsChecker, ok bool) {
	return argsChecker(p.w.cfg.CheckArgs), p.w.cfg.CheckArgs != nil
}

// request is one call.
type request struct {
	op      Op
	ref     provider.Ref
	refs    []provider.Ref // of a Get or Delete
	subnet  string
	target  string
	takes   Span
	mutates bool
}

// send performs a call: the guard, the log, a fault if there is one, the latency, and then the
// effect of apply under the lock.
func send[T any](ctx context.Context, p *Provider, r request, apply func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if r.mutates {
		if err := provider.Permit(ctx); err != nil {
			return none, err
		}
	}
	c := p.w.startCall(p, r)
	if c.fault.Hang {
		<-ctx.Done()
		return none, p.w.end(c, false, ctx.Err())
	}
	land := func() (T, error) { return finishCall(p.w, c, apply) }
	if c.takes > 0 && retry.Wait(ctx, c.takes) != nil {
		if c.lands {
			time.AfterFunc(time.Until(c.due), func() { _, _ = land() })
		}
		return none, p.w.end(c, false, ctx.Err())
	}
	return land()
}

// finishCall applies a call's effect and returns its reply.
func finishCall[T any](w *World, c *flight, apply func() (T, error)) (T, error) {
	var none T
	if c.fault.Err != nil && !c.fault.Applied {
		return none, w.end(c, false, c.fault.Err)
	}
	w.mu.Lock()
	got, err := apply()
	w.mu.Unlock()
	applied := err == nil
	if c.fault.Err != nil {
		err = c.fault.Err
	}
	if err = w.end(c, applied, err); err != nil {
		return none, err
	}
	return got, nil
}
