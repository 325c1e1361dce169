package shardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/fake"
	"github.com/nstance/nstance/pkg/retry"
)

// errDead is the error of all requests of a dead process.
var errDead = errors.New("this process is dead")

// life is one start of a server, as seen from outside. All its requests pass through it: they
// block while it is suspended, and have no effect once it is dead. Safe for concurrent use.
type life struct {
	end  func(why string) // called once at its death, without locks
	ails *ails            // of its server

	mu      sync.Mutex
	dead    bool
	resume  chan struct{} // closed on resume; nil: not suspended
	armed   *crash
	blocked bool // cut off from the store
	healed  chan struct{}
}

// crash is a scheduled death or suspension.
type crash struct {
	requests int  // number of requests before it
	after    bool // the request still takes effect
	freeze   bool // suspend instead of dying
}

// arm schedules a crash at one of the next requests.
func (l *life) arm(c crash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = &c
}

// disarm cancels a scheduled crash.
func (l *life) disarm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = nil
}

// kill ends the process now.
func (l *life) kill(why string) {
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return
	}
	l.dead = true
	l.goOn()
	l.connect()
	l.mu.Unlock()
	l.end(why)
}

func (l *life) suspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resume == nil && !l.dead {
		l.resume = make(chan struct{})
	}
}

func (l *life) suspended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resume != nil
}

func (l *life) unsuspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goOn()
}

func (l *life) goOn() {
	if l.resume != nil {
		close(l.resume)
		l.resume = nil
	}
}

// block disconnects the process from the store; unblock ends that.
func (l *life) block() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.blocked {
		l.blocked, l.healed = true, make(chan struct{})
	}
}

func (l *life) unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.connect()
}

func (l *life) connect() {
	if l.blocked {
		l.blocked = false
		close(l.healed)
	}
}

// pass blocks while the process is suspended, and returns an error if it is dead.
func (l *life) pass(ctx context.Context, toStore bool) error {
	for {
		l.mu.Lock()
		dead, frozen, cut := l.dead, l.resume, l.healed
		if !toStore || !l.blocked {
			cut = nil
		}
		l.mu.Unlock()
		switch {
		case dead:
			// Let time pass for loops that ignore errors.
			_ = retry.Wait(ctx, time.Millisecond)
			return errDead
		case frozen != nil:
			<-frozen // ignores ctx
		case cut != nil:
			select {
			case <-cut:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return nil
		}
	}
}

// strike reports whether the process dies at this request, and whether after its effect.
func (l *life) strike() (now, after bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.armed == nil {
		return false, false
	}
	if l.armed.requests > 0 {
		l.armed.requests--
		return false, false
	}
	armed := *l.armed
	l.armed = nil
	if armed.freeze {
		if l.resume == nil && !l.dead {
			l.resume = make(chan struct{})
		}
		return false, false
	}
	return true, armed.after
}

// request makes one request of the process.
func (l *life) request(ctx context.Context, toStore bool, what string, do func() error) error {
	if err := l.pass(ctx, toStore); err != nil {
		return err
	}
	now, after := l.strike()
	if err := l.pass(ctx, toStore); err != nil {
		return err
	}
	if now && !after {
		l.kill("before " + what)
		return errDead
	}
	err := do()
	if now {
		l.kill("after " + what)
		return errDead
	}
	if stopped := l.pass(ctx, toStore); stopped != nil {
		return stopped // took effect, but the reply is lost
	}
	return err
}

// mortalStore is the store of one life.
type mortalStore struct {
	inner object.Store
	life  *life
}

var _ object.Store = mortalStore{}

// storeTimeout is the timeout of a request, as in the client of a real store.
const storeTimeout = 30 * time.Second

func (s mortalStore) do(ctx context.Context, verb, key string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.life.request(ctx, true, verb+" "+key, func() error { return f(ctx) })
	if errors.Is(err, errDead) || err != nil && ctx.Err() != nil && !errors.Is(err, object.ErrUnknown) {
		return fmt.Errorf("%s %s: %w: %w", verb, key, object.ErrUnknown, err)
	}
	return err
}

// Get implements object.Store.
func (s mortalStore) Get(ctx context.Context, key string) (o object.Object, err error) {
	err = s.do(ctx, "get", key, func(ctx context.Context) (err error) { o, err = s.inner.Get(ctx, key); return err })
	return o, err
}

// List implements object.Store.
func (s mortalStore) List(ctx context.Context, prefix, token string) (p object.Page, err error) {
	err = s.do(ctx, "list", prefix, func(ctx context.Context) (err error) { p, err = s.inner.List(ctx, prefix, token); return err })
	return p, err
}

// Put implements object.Store.
func (s mortalStore) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (tag object.ETag, err error) {
	ctx = sentNow(ctx)
	err = s.do(ctx, "put", key, func(ctx context.Context) (err error) {
		tag, err = s.life.ails.written(ctx, func() (object.ETag, error) { return s.inner.Put(ctx, key, body, pre) })
		return err
	})
	return tag, err
}

// Delete implements object.Store.
func (s mortalStore) Delete(ctx context.Context, key string) error {
	return s.do(ctx, "delete", key, func(ctx context.Context) error { return s.inner.Delete(ctx, key) })
}

// mortalProvider is the provider of one life. A mutation begins after its guard permitted it;
// the process can be suspended between the two.
type mortalProvider struct {
	*fake.Provider
	life  *life
	book  *book
	world *fake.World
	name  string

	plagues *plagues
}

var (
	_ provider.Provider = mortalProvider{}
	_ provider.Watcher  = mortalProvider{}
)

// guarded checks the beginning of every mutation, and may suspend the process right after it.
func (p mortalProvider) guarded(ctx context.Context, create fleet.InstanceID, deletes ...provider.Ref) context.Context {
	return provider.WithGuard(ctx, func(inner context.Context) error {
		if err := provider.Permit(ctx); err != nil {
			return err
		}
		p.book.act(p.name, deletes)
		if create != "" {
			p.book.create(create, p.world.VMs())
		}
		return p.life.pass(inner, false)
	})
}

// mutate makes a change. The process may have been suspended right before it. When it resumes,
// its timers have not fired yet, so only the guard can detect that the term is over.
func (p mortalProvider) mutate(ctx context.Context, what string, do func(context.Context) error) error {
	began := time.Now()
	return p.life.request(ctx, false, what, func() error {
		if time.Since(began) > 0 {
			thawed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
			defer cancel()
			return do(thawed)
		}
		return do(ctx)
	})
}

// Create implements provider.Provider.
func (p mortalProvider) Create(ctx context.Context, spec provider.Spec) (vm provider.VM, err error) {
	err = p.mutate(ctx, "create "+string(spec.ID), func(ctx context.Context) (err error) {
		guarded := p.guarded(ctx, spec.ID)
		if refusal := p.plagues.refuses(spec); refusal != nil {
			p.book.timeline.Say(p.name, "asks the provider to create %s, which refuses", spec.ID)
			return errors.Join(provider.Permit(guarded), refusal)
		}
		vm, err = p.Provider.Create(guarded, spec)
		return err
	})
	return vm, err
}

// Delete implements provider.Provider.
func (p mortalProvider) Delete(ctx context.Context, refs []provider.Ref) (errs []error) {
	err := p.mutate(ctx, "delete "+idsOf(refs), func(ctx context.Context) error {
		guarded := p.guarded(ctx, "", refs...)
		if refusal := p.plagues.keeps(); refusal != nil {
			p.book.timeline.Say(p.name, "asks the provider to delete %s, which refuses", idsOf(refs))
			errs = slices.Repeat([]error{errors.Join(provider.Permit(guarded), refusal)}, len(refs))
			return nil
		}
		errs = p.Provider.Delete(guarded, refs)
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(refs))
	}
	return errs
}

// Get implements provider.Provider.
func (p mortalProvider) Get(ctx context.Context, refs []provider.Ref) (answers []provider.Answer) {
	err := p.life.request(ctx, false, "get "+idsOf(refs), func() error { answers = p.Provider.Get(ctx, refs); return nil })
	if err != nil {
		return slices.Repeat([]provider.Answer{{Err: err}}, len(refs))
	}
	return answers
}

func idsOf(refs []provider.Ref) string {
	var ids []string
	for _, ref := range refs {
		ids = append(ids, string(ref.ID))
	}
	return strings.Join(ids, " ")
}

// List implements provider.Provider.
func (p mortalProvider) List(ctx context.Context) (vms []provider.VM, err error) {
	err = p.life.request(ctx, false, "list", func() (err error) {
		vms, err = p.life.ails.listed(ctx, func() ([]provider.VM, error) { return p.Provider.List(ctx) })
		return err
	})
	return vms, err
}

// Watch implements provider.Watcher. A suspended process reads its events late, and
// a provider whose reads lag has none.
func (p mortalProvider) Watch(ctx context.Context, fn func(provider.Event)) error {
	if !p.ConsistentReads() {
		return provider.ErrUnsupported
	}
	return p.Provider.Watch(ctx, func(e provider.Event) {
		if p.life.pass(ctx, false) == nil {
			fn(e)
		}
	})
}
