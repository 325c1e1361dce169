package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// reasoned is an error that knows what kind of problem it is.
type reasoned struct {
	reason string
	error
}

func (r *reasoned) Unwrap() error { return r.error }

func because(reason string, err error) error { return &reasoned{reason: reason, error: err} }

// fail is where the errors of all workers end: the end of the term, nothing at
// all when it is over anyway, or a problem.
func (l *Loop) fail(ctx context.Context, err error, key fleet.GroupKey, id fleet.InstanceID) {
	switch {
	case err == nil || ctx.Err() != nil:
	case l.cfg.NotLeader != nil && l.cfg.NotLeader(err):
		l.mu.Lock()
		end := l.end
		l.mu.Unlock()
		end(err)
	default:
		p := &fleet.Problem{Reason: ReasonStorage, Message: err.Error(), Group: key, Instance: id}
		if r := (*reasoned)(nil); errors.As(err, &r) {
			p.Reason = r.reason
		}
		l.tell(p)
	}
}

// tell reports a problem; nil is none.
func (l *Loop) tell(p *fleet.Problem) {
	if p != nil {
		p.At = time.Now()
		l.cfg.Report(*p)
	}
}
