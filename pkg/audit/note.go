package audit

import (
	"context"
	"sync"
)

// Note holds what is noted about a call while it is handled. Safe for concurrent use.
type Note struct {
	mu                      sync.Mutex
	object                  string
	wanted, changes, claims []Detail
}

type noteKey struct{}

// WithNote returns the context of a call with a note.
func WithNote(ctx context.Context, n *Note) context.Context {
	return context.WithValue(ctx, noteKey{}, n)
}

// On notes the object of the call of ctx, as kind and name. Without a note in ctx it does
// nothing, like all functions here.
func On(ctx context.Context, object string) {
	note(ctx, func(n *Note) { n.object = object })
}

// Wanted notes what a call is about to change, before the write. It is recorded if the call
// ends before Changed is called. Unchanged values are left out.
func Wanted(ctx context.Context, changes ...Detail) {
	note(ctx, func(n *Note) { n.wanted = differing(n.wanted, changes) })
}

// Changed notes what a call changed, replacing what was wanted. Unchanged values are left out.
func Changed(ctx context.Context, changes ...Detail) {
	note(ctx, func(n *Note) { n.changes = differing(n.changes, changes) })
}

// Done returns the change of something that becomes true, and is never false again.
func Done(name string) Detail { return Detail{Name: name, From: "false", To: "true"} }

// differing returns noted, and those of more that change a value.
func differing(noted, more []Detail) []Detail {
	for _, c := range more {
		if c.From != c.To && len(noted) < MaxDetails {
			noted = append(noted, c)
		}
	}
	return noted
}

// Claimed notes a caller's claim about itself. Empty values are left out.
func Claimed(ctx context.Context, name string, values ...string) {
	note(ctx, func(n *Note) {
		for _, value := range values {
			if value != "" && len(n.claims) < MaxDetails {
				n.claims = append(n.claims, Detail{Name: name, To: brief(value)})
			}
		}
	})
}

func note(ctx context.Context, change func(*Note)) {
	n, ok := ctx.Value(noteKey{}).(*Note)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// Fill adds the note to an event, whose outcome must be set.
func (n *Note) Fill(e *Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e.Object, e.Changes, e.Claims = n.object, n.changes, n.claims
	if e.Outcome != Accepted && len(n.changes) == 0 {
		e.Wanted = n.wanted
	}
}
