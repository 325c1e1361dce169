package reconcile_test

import (
	"context"
	"slices"
	"sync"

	"github.com/nstance/nstance/pkg/provider"
)

// blindProvider shows no VM to Get and List while it is blind, as a cloud whose
// reads lag behind.
type blindProvider struct {
	provider.Provider
	consistent bool // as it says itself
	mu         sync.Mutex
	blind      bool
}

func (b *blindProvider) ConsistentReads() bool { return b.consistent }

func (b *blindProvider) setBlind(blind bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blind = blind
}

func (b *blindProvider) isBlind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blind
}

func (b *blindProvider) Get(ctx context.Context, refs []provider.Ref) []provider.Answer {
	if b.isBlind() {
		return slices.Repeat([]provider.Answer{{Err: provider.ErrNotFound}}, len(refs))
	}
	return b.Provider.Get(ctx, refs)
}

func (b *blindProvider) List(ctx context.Context) ([]provider.VM, error) {
	if b.isBlind() {
		return nil, nil
	}
	return b.Provider.List(ctx)
}
