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

// OldCertificates yields, page by page, the keys of a tenant's batches that were issued before a time, both
// by their names and by the store's clock. The listing ends at the first younger name, so it costs what is old.
func OldCertificates(
	ctx context.Context, store object.Lister, shard, tenant string, before time.Time,
) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for page, err := range object.Pages(ctx, store, "certlog/"+shard+"/"+tenant+".") {
			if err != nil {
				yield(nil, fmt.Errorf("list the log of certificates: %w", err))
				return
			}
			old, end := oldBatches(shard, page, before)
			if !yield(old, nil) || end {
				return
			}
		}
	}
}

// oldBatches returns the keys of a page's old batches, and whether it has a younger name.
func oldBatches(shard string, page []object.Info, before time.Time) (old []string, end bool) {
	for _, o := range page {
		at, ok := issuedAt(shard, o.Key)
		switch {
		case !ok: // not a batch
		case !at.Before(before):
			return old, true
		case o.ModTime.Before(before):
			old = append(old, o.Key)
		}
	}
	return old, false
}

// RemoveCertificates deletes a batch that OldCertificates yielded if all its certificates ended before
// a time, and reports whether it did. It keeps one that can't be read. Its key never names another batch.
func (w *Writer) RemoveCertificates(ctx context.Context, key string, before time.Time) (bool, error) {
	store := w.ledger.cfg.Store
	found, err := store.Get(ctx, key)
	switch {
	case errors.Is(err, object.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the log of certificates: %w", err)
	case !endedBefore(found.Body, before):
		return false, nil
	}
	if err := w.fence.Act(ctx, func(ctx context.Context) error { return store.Delete(ctx, key) }); err != nil {
		return false, fmt.Errorf("remove %s from the log of certificates: %w", key, err)
	}
	return true, nil
}

// endedBefore reports whether a batch says that all its certificates ended before a time.
func endedBefore(body []byte, before time.Time) bool {
	var b CertificateBatch
	if err := json.Unmarshal(body, &b); err != nil || len(b.Certificates) == 0 {
		return false
	}
	for _, c := range b.Certificates {
		if c.Expiry.IsZero() || !c.Expiry.Before(before) {
			return false
		}
	}
	return true
}

// LogCertificates appends a batch to the log of issued certificates, which is for auditors: the server
// reads it only to delete what is old. The batch is durable if the error is nil. If the instance has a
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
