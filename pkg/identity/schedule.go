package identity

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// maxCheck is the longest pause between checks of a certificate: the machine may be
	// suspended, or its clock set.
	maxCheck = time.Hour
	minCheck = 100 * time.Millisecond
	// firstRetry is RunRenewal's wait after its first attempt, and onUseRetry that of a client
	// that renews on use. Short-lived certificates have shorter waits.
	firstRetry = time.Minute
	onUseRetry = 10 * time.Minute
)

// Due reports whether two thirds of the certificate's life have passed.
func (i *Identity) Due() bool { return i.left(0) <= 0 }

// RetryOnUse is how long a client that renews on use waits after an attempt.
func (i *Identity) RetryOnUse() time.Duration { return min(onUseRetry, pki.Life(i.Certificate())/20) }

// NextCheck is how long such a client, while in use, waits before it checks Due again.
func (i *Identity) NextCheck() time.Duration {
	return min(max(i.left(0), i.RetryOnUse(), minCheck), maxCheck)
}

// left returns the time until renewal: at two thirds of the certificate's life, or up to a
// twentieth of its life sooner. spread, in [0, 1), selects that part, so that machines created
// at the same time do not renew at the same time.
func (i *Identity) left(spread float64) time.Duration {
	cert := i.Certificate()
	early := time.Duration(spread * float64(pki.Life(cert)/20))
	return pki.RenewAt(cert).Add(-early).Sub(i.config.Now())
}

// retryAfter is RunRenewal's wait after its n-th consecutive attempt: at least half of a limit
// that doubles.
func retryAfter(cert *x509.Certificate, n int, spread float64) time.Duration {
	first := min(max(pki.Life(cert)/300, minCheck), firstRetry)
	half := retry.Backoff{First: first, Limit: min(first<<10, maxCheck)}.Delay(n) / 2
	return half + time.Duration(spread*float64(half))
}

// RenewalConfig is the input of RunRenewal.
type RenewalConfig struct {
	Ask    Ask
	Random func() float64 // returns numbers in [0, 1)
	// Done is called after each attempt with its error, and after a failed one with the wait
	// before the next.
	Done func(ctx context.Context, err error, wait time.Duration)
}

// RunRenewal renews the certificate, which must exist, before it expires, until ctx ends.
//
// Every attempt is followed by a growing wait, successful ones included: if the clock is so
// wrong that each new certificate seems due, that is the only rate limit.
func (i *Identity) RunRenewal(ctx context.Context, c RenewalConfig) {
	spread := c.Random()
	for attempts := 0; ctx.Err() == nil; {
		if left := i.left(spread); left > 0 {
			attempts = 0
			_ = retry.Wait(ctx, min(left, maxCheck)) // an error means that ctx has ended, which ends the loop
			continue
		}
		attempts++
		wait := retryAfter(i.Certificate(), attempts, c.Random())
		err := i.Renew(ctx, c.Ask)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			spread = c.Random()
		}
		c.Done(ctx, err, wait)
		_ = retry.Wait(ctx, wait)
	}
}
