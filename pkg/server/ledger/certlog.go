package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
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

// issuedAt returns when the batch of an object was issued, by the object's name. ok is false if the
// object is not a batch of the shard.
func issuedAt(shard, key string) (at time.Time, ok bool) {
	name, found := strings.CutPrefix(key, "certlog/"+shard+"/")
	parts := strings.Split(name, ".")
	if !found || len(parts) != 4 || "."+parts[3] != suffix || fleet.CheckName(parts[0]) != nil {
		return time.Time{}, false
	}
	if _, err := fleet.ParseStorageKey(parts[2]); err != nil {
		return time.Time{}, false
	}
	moment, utc := strings.CutSuffix(parts[1], "Z")
	if !utc || len(moment) != len(timestamp)+9 {
		return time.Time{}, false
	}
	at, err := time.Parse(timestamp+".999999999", moment[:len(timestamp)]+"."+moment[len(timestamp):])
	return at, err == nil
}

// OldCertificates yields, page by page, the keys of the batches that were issued before a time, both
// by their names and by the store's clock.
func OldCertificates(ctx context.Context, store object.Lister, shard string, before time.Time) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for page, err := range object.Pages(ctx, store, "certlog/"+shard+"/") {
			if err != nil {
				yield(nil, fmt.Errorf("list the log of certificates: %w", err))
				return
			}
			var old []string
			for _, o := range page {
				if at, ok := issuedAt(shard, o.Key); ok && at.Before(before) && o.ModTime.Before(before) {
					old = append(old, o.Key)
				}
			}
			if !yield(old, nil) {
				return
			}
		}
	}
}

// RemoveCertificates deletes a batch that OldCertificates yielded. Its key never names another one.
func (w *Writer) RemoveCertificates(ctx context.Context, key string) error {
	err := w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, key) })
	if err != nil {
		return fmt.Errorf("remove %s from the log of certificates: %w", key, err)
	}
	return nil
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
