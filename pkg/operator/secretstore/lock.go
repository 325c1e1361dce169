package secretstore

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lockFor is how long the Lease of a crashed process blocks renewals by others. If a renewal
// takes longer, or clocks differ by more, two may renew at once: then the second write fails,
// since writes are conditional.
const lockFor = 2 * time.Minute

// Lock implements identity.Store, by a Lease with the name of the certificate's Secret.
func (s *Store) Lock(ctx context.Context) (unlock func(), held bool, err error) {
	within, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.CertSecret}}
	err = s.Client.Get(within, client.ObjectKeyFromObject(&lease), &lease)
	missing := apierrors.IsNotFound(err)
	switch {
	case missing:
	case err != nil:
		return nil, false, fmt.Errorf("read Lease %s/%s: %w", s.Namespace, s.CertSecret, err)
	case isHeld(lease.Spec, s.Now()):
		return nil, false, nil
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new(s.Holder), LeaseDurationSeconds: new(int32(lockFor / time.Second)),
		AcquireTime: &metav1.MicroTime{Time: s.Now()}, RenewTime: &metav1.MicroTime{Time: s.Now()},
	}
	if missing {
		err = s.Client.Create(within, &lease)
	} else {
		err = s.Client.Update(within, &lease)
	}
	if err != nil && changed(err) {
		return nil, false, nil // another operator was quicker
	}
	if err != nil {
		return nil, false, fmt.Errorf("take Lease %s/%s: %w", s.Namespace, s.CertSecret, err)
	}
	return func() { s.unlock(ctx, &lease) }, true, nil
}

// isHeld reports whether a Lease is held. A time far in the future comes from a wrong clock
// and is ignored.
func isHeld(l coordinationv1.LeaseSpec, now time.Time) bool {
	if l.HolderIdentity == nil || *l.HolderIdentity == "" || l.RenewTime == nil {
		return false
	}
	return now.Sub(l.RenewTime.Time).Abs() < lockFor
}

// unlock is best effort: a Lease that is not released expires. It ignores the cancellation of
// an interrupted renewal.
func (s *Store) unlock(ctx context.Context, lease *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = nil, nil
	_ = s.Client.Update(ctx, lease)
}
