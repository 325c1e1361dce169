package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// EC2 refuses a client token that came before with other parameters, whether the launch
// before made an instance or was refused for lack of capacity. Which of both it was only a
// search tells, and reads lag: an instance that none of them shows for searchFor was not made.
const searchFor = time.Minute

func searchBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: 30 * time.Second} }

// searches are the tokens whose instance was looked for in vain, each with when that began.
// A search may take several calls. Safe for concurrent use.
type searches struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// missed notes a look-up, sent at a time, that showed no instance, and returns when the first
// one since the token was refused was sent.
func (s *searches) missed(token string, sent time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, ok := s.since[token]; ok {
		return first
	}
	if s.since == nil {
		s.since = map[string]time.Time{}
	}
	s.since[token] = sent
	return sent
}

func (s *searches) end(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, token)
}

// forget drops searches that were given up: their instances are not asked for any more.
func (s *searches) forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, since := range s.since {
		if now.Sub(since) > rememberFor {
			delete(s.since, token)
		}
	}
}

// afterMismatch returns the instance of a spec whose client token EC2 knows with other
// parameters. With none it fails with provider.ErrUsed, at once where ctx ends before the
// next look-up, or with provider.ErrSpent once the search has taken long enough.
func (p *Provider) afterMismatch(ctx context.Context, spec provider.Spec) (provider.VM, error) {
	token, backoff := clientToken(spec), searchBackoff()
	for n := 1; ; n++ {
		sent := time.Now()
		vm, found, err := p.ofInstance(ctx, spec)
		if err != nil {
			return provider.VM{}, err
		}
		if found {
			p.searches.end(token)
			return vm, nil
		}
		left := searchFor - sent.Sub(p.searches.missed(token, sent))
		if left <= 0 {
			p.searches.end(token)
			return provider.VM{}, fmt.Errorf("launch instance %s, attempt %d: %w: EC2 shows no instance for %s", spec.ID, spec.Attempt,
				provider.ErrSpent, searchFor)
		}
		wait := min(left, backoff.Delay(n))
		if end, ok := ctx.Deadline(); ok && time.Until(end) <= wait {
			return provider.VM{}, fmt.Errorf("launch instance %s, attempt %d: %w: EC2 shows no instance yet",
				spec.ID, spec.Attempt, provider.ErrUsed)
		}
		if err := retry.Wait(ctx, wait); err != nil {
			return provider.VM{}, fmt.Errorf("launch instance %s, attempt %d: %w: %w", spec.ID, spec.Attempt, provider.ErrUsed, err)
		}
	}
}

// ofInstance looks for an instance of a spec: by its tag, whatever token it was made with,
// and by its token. Of several the best is returned: one that lives, or else one that is there.
func (p *Provider) ofInstance(ctx context.Context, spec provider.Spec) (vm provider.VM, found bool, err error) {
	for _, filter := range []types.Filter{
		{Name: sdk.String("tag:" + provider.TagInstanceID), Values: []string{string(spec.ID)}},
		{Name: sdk.String("client-token"), Values: []string{clientToken(spec)}},
	} {
		vms, err := p.describe(ctx, p.scoped(filter), func() {})
		if err != nil {
			return provider.VM{}, false, unknown(fmt.Errorf("look for instance %s: %w", spec.ID, err))
		}
		vms = slices.DeleteFunc(vms, func(vm provider.VM) bool { return vm.ID != spec.ID })
		if len(vms) > 0 {
			return slices.MaxFunc(vms, func(a, b provider.VM) int { return worth(a) - worth(b) }), true, nil
		}
	}
	return provider.VM{}, false, nil
}

func worth(vm provider.VM) int {
	switch {
	case vm.State.Alive():
		return 2
	case vm.State.Exists():
		return 1
	default:
		return 0
	}
}

// unknown takes the kind from a read's error: what the launch did is not known, though
// the read is certain to have made nothing. That a caller gave up stays visible.
func unknown(err error) error {
	if provider.Definite(err) {
		return errors.New(err.Error())
	}
	return err
}
