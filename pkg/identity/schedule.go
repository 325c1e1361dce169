package identity

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// maxCheck is the longest that a certificate is left alone: a machine may be
	// suspended, and its clock be set.
	maxCheck = time.Hour
	minCheck = 100 * time.Millisecond
	// firstRetry is the wait of Keep after its first attempt, and onUseRetry that of a
	// client which renews when it is used. Certificates of a short life have shorter
	// ones.
	firstRetry = time.Minute
	onUseRetry = 10 * time.Minute
)

// Due reports whether two thirds of the certificate's life are over.
func (i *Identity) Due() bool { return i.left(0) <= 0 }

// RetryOnUse is how long a client that renews when it is used waits after an
// attempt.
func (i *Identity) RetryOnUse() time.Duration { return min(onUseRetry, pki.Life(i.Certificate())/20) }

// NextCheck is how long such a client, while it is in use, waits before it checks
// again whether the certificate is due.
func (i *Identity) NextCheck() time.Duration {
	return min(max(i.left(0), i.RetryOnUse(), minCheck), maxCheck)
}

// left is how long until the certificate is renewed: at two thirds of its life, or
// up to a twentieth of it sooner. spread, from [0, 1), is the client's own share of
// that, so that machines made in one minute do not all come in one minute.
func (i *Identity) left(spread float64) time.Duration {
	cert := i.Certificate()
	early := time.Duration(spread * float64(pki.Life(cert)/20))
	return pki.RenewAt(cert).Add(-early).Sub(i.config.Now())
}

// retryAfter is the wait of Keep after its n-th attempt in a row: at least half of
// a bound that doubles.
func retryAfter(cert *x509.Certificate, n int, spread float64) time.Duration {
	first := min(max(pki.Life(cert)/300, minCheck), firstRetry)
	half := retry.Backoff{First: first, Limit: min(first<<10, maxCheck)}.Delay(n) / 2
	return half + time.Duration(spread*float64(half))
}

// KeepConfig is what Keep needs.
type KeepConfig struct {
	Ask    Ask
	Random func() float64 // yields numbers from [0, 1)
	// Done is told how each attempt ended and, when it failed, after which time the
	// next one is made.
	Done func(ctx context.Context, err error, wait time.Duration)
}

// Keep renews the certificate, which must be there, before it ends, for as long as
// ctx lasts.
//
// Every attempt is followed by a wait that grows, a successful one too: where the
// clock is so wrong that each new certificate seems due, that is all that stands
// between the client and the server.
func (i *Identity) Keep(ctx context.Context, c KeepConfig) {
	spread := c.Random()
	for attempts := 0; ctx.Err() == nil; {
		if left := i.left(spread); left > 0 {
			attempts = 0
			_ = retry.Wait(ctx, min(left, maxCheck)) // fails when ctx ends, which ends the loop
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
