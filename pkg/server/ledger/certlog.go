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

// key returns "certlog/{shard}/{tenant}.{end}.{issued}.{id}.json". The end, that of the last certificate, comes
// first: what is over is listed first, and is known without a read.
func (b CertificateBatch) key(shard string) string {
	end := b.IssuedAt
	for _, c := range b.Certificates {
		if c.Expiry.After(end) {
			end = c.Expiry
		}
	}
	return fmt.Sprintf("certlog/%s/%s.%s.%s.%s%s", shard, b.Tenant, stamp(end), stamp(b.IssuedAt), b.Instance.StorageKey(), suffix)
}

func stamp(at time.Time) string {
	at = at.UTC()
	return fmt.Sprintf("%s%09dZ", at.Format(timestamp), at.Nanosecond())
}

// endOf returns when the last certificate of a batch ends, by the object's name. ok is false if the
// object is not a batch of the shard.
func endOf(shard, key string) (end time.Time, ok bool) {
	name, found := strings.CutPrefix(key, "certlog/"+shard+"/")
	parts := strings.Split(name, ".")
	if !found || len(parts) != 5 || "."+parts[4] != suffix || fleet.CheckName(parts[0]) != nil {
		return time.Time{}, false
	}
	if _, err := fleet.ParseStorageKey(parts[3]); err != nil {
		return time.Time{}, false
	}
	end, isEnd := parseStamp(parts[1])
	_, isIssue := parseStamp(parts[2])
	return end, isEnd && isIssue
}

// parseStamp is the inverse of stamp.
func parseStamp(text string) (time.Time, bool) {
	moment, utc := strings.CutSuffix(text, "Z")
	if !utc || len(moment) != len(timestamp)+9 {
		return time.Time{}, false
	}
	at, err := time.Parse(timestamp+".999999999", moment[:len(timestamp)]+"."+moment[len(timestamp):])
	return at, err == nil
}

// OldCertificates yields, page by page, the keys of a tenant's batches whose certificates all ended before a
// time by their names, and which were written before it by the store's clock. The listing ends at the first
// batch that ends later, so it costs what is old.
func OldCertificates(
	ctx context.Context, store object.Lister, shard, tenant string, before time.Time,
) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for page, err := range object.Pages(ctx, store, "certlog/"+shard+"/"+tenant+".") {
			if err != nil {
				yield(nil, fmt.Errorf("list the log of certificates: %w", err))
				return
			}
			old, last := oldBatches(shard, page, before)
			if !yield(old, nil) || last {
				return
			}
		}
	}
}

// oldBatches returns the keys of a page's old batches, and whether it has one that ends later.
func oldBatches(shard string, page []object.Info, before time.Time) (old []string, last bool) {
	for _, o := range page {
		end, ok := endOf(shard, o.Key)
		switch {
		case !ok: // not a batch
		case !end.Before(before):
			return old, true
		case o.ModTime.Before(before):
			old = append(old, o.Key)
		}
	}
	return old, false
}

// RemoveCertificates deletes a batch that OldCertificates yielded if it still is old by a time, and
// reports whether it did. Its key never names another batch.
func (w *Writer) RemoveCertificates(ctx context.Context, key string, before time.Time) (bool, error) {
	if end, ok := endOf(w.ledger.cfg.Shard, key); !ok || !end.Before(before) {
		return false, nil
	}
	if err := w.fence.Act(ctx, func(ctx context.Context) error { return w.ledger.cfg.Store.Delete(ctx, key) }); err != nil {
		return false, fmt.Errorf("remove %s from the log of certificates: %w", key, err)
	}
	return true, nil
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
