package object

import "context"

// LifecycleRule is a rule of a bucket by which the store itself deletes or archives objects.
type LifecycleRule struct {
	ID     string
	Prefix string // of the keys it applies to; empty: all
	Does   string // such as "deletes objects after 30 days"
}

// Lifecycle is implemented by stores that may have such rules.
type Lifecycle interface {
	// LifecycleRules returns the active rules that delete objects, or move them to another storage
	// class, such as an archive. Rules for former versions, or for objects with tags, are left out. The error is
	// ErrRefused if the store has no such request, or does not allow it.
	LifecycleRules(ctx context.Context) ([]LifecycleRule, error)
}
