package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
)

// Certificate is the log entry of an issued certificate.
type Certificate struct {
	Name   string    `json:"name"`   // of the file that contains it
	Serial string    `json:"serial"` // hex
	Expiry time.Time `json:"expiry"`
}

// CertificateBatch is the certificates issued to one instance at a time.
type CertificateBatch struct {
	Tenant       string           `json:"tenant"`
	Instance     fleet.InstanceID `json:"instance"`
	IssuedAt     time.Time        `json:"issued_at"`
	Certificates []Certificate    `json:"certificates"`
}

// timestamp sorts by time and has no dot, which separates the parts of a key.
const timestamp = "20060102T150405"

// key returns "certlog/{shard}/{tenant}.{timestamp}.{id}.json".
func (b CertificateBatch) key(shard string) string {
	at := b.IssuedAt.UTC()
	return fmt.Sprintf("certlog/%s/%s.%s%09dZ.%s%s",
		shard, b.Tenant, at.Format(timestamp), at.Nanosecond(), b.Instance.StorageKey(), suffix)
}

// LogCertificates appends a batch to the log of issued certificates, which is for auditors and
// never read by the server. The batch is durable if the error is nil. If the instance has a
// batch of the same nanosecond, the next nanosecond is used. Until ctx ends, a lost reply is
// resolved by reading back.
func (l *Ledger) LogCertificates(ctx context.Context, b CertificateBatch) error {
	if err := l.logCertificates(ctx, b); err != nil {
		return fmt.Errorf("log the certificates of instance %s: %w", b.Instance, err)
	}
	return nil
}

func (l *Ledger) logCertificates(ctx context.Context, b CertificateBatch) error {
	if _, err := fleet.ParseID(string(b.Instance)); err != nil {
		return err
	}
	if err := fleet.CheckName(b.Tenant); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if len(b.Certificates) == 0 {
		return errors.New("no certificates")
	}
	for range maxSameTime {
		body, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		_, err = object.PutConfirmed(ctx, l.cfg.Store, b.key(l.cfg.Shard), body, object.IfAbsent())
		if !errors.Is(err, ErrConflict) {
			return err
		}
		b.IssuedAt = b.IssuedAt.Add(1)
	}
	return fmt.Errorf("%w: %d batches of one time", ErrConflict, maxSameTime)
}

// maxSameTime bounds the batches of an instance with the same time, as from a clock that stands
// still.
const maxSameTime = 100
