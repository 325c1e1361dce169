package nonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/nonce"
	"github.com/nstance/nstance/pkg/nonce/noncetest"
)

// memory is the least that keeps a Spender's contract.
type memory struct {
	mu    sync.Mutex
	bound map[string]string
}

var _ nonce.Spender = (*memory)(nil)

func (m *memory) Spend(ctx context.Context, c nonce.Claims, key string, _ time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.bound[c.ID]; ok && first != key {
		return fmt.Errorf("spend nonce %s: %w", c.ID, nonce.ErrSpent)
	}
	m.bound[c.ID] = key
	return nil
}

func TestSpender(t *testing.T) {
	noncetest.Run(t, agentClaims(), epoch, func(*testing.T, nonce.Claims) (a, b nonce.Spender) {
		m := &memory{bound: map[string]string{}}
		return m, m
	})
}

func TestAVerifiedNonceIsSpentOnce(t *testing.T) {
	token := mint(t, agentClaims())
	m := &memory{bound: map[string]string{}}
	for i, want := range []error{nil, nil, nonce.ErrSpent} {
		claims, err := nonce.Verify(public(1), token, wantAgent, epoch)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Spend(t.Context(), claims, []string{"aa", "aa", "bb"}[i], epoch); !errors.Is(err, want) {
			t.Errorf("call %d: got %v, want %v", i+1, err, want)
		}
	}
}
