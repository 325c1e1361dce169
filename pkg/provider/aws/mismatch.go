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

// EC2 refuses a client token that was used with other parameters, whether that launch made an
// instance or was refused for lack of capacity. Only a search tells which, and reads are stale
// at times: an instance that no read shows for searchFor was not made.
const searchFor = time.Minute

func searchBackoff() retry.Backoff { return retry.Backoff{First: time.Second, Limit: 30 * time.Second} }

// searches holds the tokens whose instance was not found yet, with the start of the search. A
// search may span several calls. Safe for concurrent use.
type searches struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// missed records an unsuccessful look-up sent at a time, and returns when the first look-up
// since the token was refused was sent.
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

// forget drops abandoned searches: their instances are no longer requested.
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
// parameters. If there is none it returns provider.ErrUsed, at once if ctx ends before the next
// look-up, or provider.ErrSpent once the search has taken long enough.
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

// ofInstance looks up the instance of a spec by its tag, whatever its token, and by its token.
// Of several it returns the best: a live one, else an existing one.
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
			provider.SortLiving(vms)
			return vms[0], true, nil
		}
	}
	return provider.VM{}, false, nil
}

// unknown removes the kind of a read's error: the outcome of the launch is unknown, although
// the read itself definitely made nothing. Context errors stay visible.
func unknown(err error) error {
	if provider.Definite(err) {
		return errors.New(err.Error())
	}
	return err
}
