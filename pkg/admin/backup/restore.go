package backup

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

// writePatience is how long one write is repeated.
const writePatience = 2 * time.Minute

// Restored says what a restore does with one part of a backup.
type Restored struct {
	Part      string   `json:"part"`
	Added     int      `json:"added"`             // the bucket does not have them
	Replaced  int      `json:"replaced"`          // the bucket has others
	Same      int      `json:"same"`              // the bucket has them already
	Different int      `json:"different"`         // the bucket has others, which stay
	Written   []string `json:"written,omitempty"` // the keys of those that are added or replaced
}

// change is one object that a restore writes.
type change struct {
	key  string
	body []byte
	pre  object.Precondition
}

// Restore is what has to be done to put a backup back into a bucket: it adds what the bucket does not have,
// replaces only objects of the named parts, and deletes nothing.
type Restore struct {
	Parts   []Restored
	Empty   bool     // the bucket has nothing of any cluster
	changes []change // by part, in order
}

// Selection is what to put back of a backup.
type Selection struct {
	Shards  []string // only objects of these shards; none: all objects
	Replace []string // parts of which objects are replaced that differ; of others they stay
}

// Compare finds out what putting a backup back changes. It changes nothing.
func Compare(ctx context.Context, store object.Store, objects Objects, s Selection) (*Restore, error) {
	if err := sameCluster(ctx, store, objects, len(s.Shards) > 0); err != nil {
		return nil, err
	}
	empty, err := isEmpty(ctx, store)
	if err != nil {
		return nil, err
	}
	r := &Restore{Empty: empty}
	objects = objects.Of(s.Shards)
	for _, part := range objects.Parts() {
		if err := r.compare(ctx, store, objects, part, slices.Contains(s.Replace, part)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

const caCertificate = "cluster/ca.crt"

// ErrAnotherCluster means that a bucket belongs to another cluster than a backup.
var ErrAnotherCluster = errors.New("the storage belongs to another cluster than the backup: they have no CA certificate in common. " +
	"Pass the storage that the backup was made of, or an empty one")

// ErrNoCA means that a bucket has no CA, and that one would be made for what is put back.
var ErrNoCA = errors.New("the storage has no CA, and the objects of a shard alone don't bring it back: " +
	"restore all of the cluster, without --shard")

// sameCluster checks that a bucket has a CA in common with a backup, or has none yet; if only shards are put back, it
// must have one. A CA certificate that can't be read is not another one.
func sameCluster(ctx context.Context, store object.Store, objects Objects, shards bool) error {
	ours := certificates(objects[caCertificate])
	switch o, err := store.Get(ctx, caCertificate); {
	case errors.Is(err, object.ErrNotFound):
		if shards && len(ours) > 0 {
			return ErrNoCA
		}
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", caCertificate, err)
	default:
		theirs := certificates(o.Body)
		common := slices.ContainsFunc(theirs, func(c string) bool { return slices.Contains(ours, c) })
		if len(ours) > 0 && len(theirs) > 0 && !common {
			return ErrAnotherCluster
		}
		return nil
	}
}

// isEmpty reports whether a bucket has nothing that would be in a backup.
func isEmpty(ctx context.Context, store object.Store) (bool, error) {
	for page, err := range object.Pages(ctx, store, "") {
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(page, func(i object.Info) bool { return !own(i.Key) }) {
			return false, nil
		}
	}
	return true, nil
}

// certificates returns the certificates of a PEM text.
func certificates(text []byte) (all []string) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		all = append(all, string(block.Bytes))
	}
}

// stand is how an object of a bucket stands to that of a backup.
type stand struct {
	etag          object.ETag // empty: there is none
	same, refused bool
}

func (r *Restore) compare(ctx context.Context, store object.Store, objects Objects, part string, replace bool) error {
	keys := objects.keys(part)
	found := make([]stand, len(keys))
	err := each(ctx, len(keys), func(ctx context.Context, n int) error {
		o, err := store.Get(ctx, keys[n])
		switch {
		case errors.Is(err, object.ErrNotFound):
		case errors.Is(err, object.ErrRefused) && expendable(keys[n]):
			found[n].refused = true
		case err != nil:
			return fmt.Errorf("read %s: %w", keys[n], err)
		default:
			found[n] = stand{etag: o.ETag, same: bytes.Equal(o.Body, objects[keys[n]])}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p := Restored{Part: part}
	for n, is := range found {
		c := change{key: keys[n], body: objects[keys[n]], pre: object.IfMatch(is.etag)}
		switch {
		case is.same:
			p.Same++
			continue
		case is.refused, is.etag != "" && !replace:
			p.Different++
			continue
		case is.etag == "":
			c.pre = object.IfAbsent()
			p.Added++
		default:
			p.Replaced++
		}
		p.Written = append(p.Written, c.key)
		r.changes = append(r.changes, c)
	}
	r.Parts = append(r.Parts, p)
	return nil
}

// Equal reports whether another comparison found the same.
func (r *Restore) Equal(other *Restore) bool {
	return slices.EqualFunc(r.Parts, other.Parts, func(a, b Restored) bool {
		return a.Part == b.Part && a.Replaced == b.Replaced && slices.Equal(a.Written, b.Written)
	})
}

// Nothing reports whether there is nothing to put back.
func (r *Restore) Nothing() bool { return len(r.changes) == 0 }

// Apply writes the objects, part by part. It can be repeated after an error, with a new comparison.
func (r *Restore) Apply(ctx context.Context, store object.Store) error {
	for rest := r.changes; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(c change) bool { return Part(c.key) != Part(rest[0].key) })
		if n < 0 {
			n = len(rest)
		}
		if err := put(ctx, store, rest[:n]); err != nil {
			return fmt.Errorf("the backup is put back in part only: repeat the command: %w", err)
		}
		rest = rest[n:]
	}
	return nil
}

func put(ctx context.Context, store object.Store, changes []change) error {
	return each(ctx, len(changes), func(ctx context.Context, n int) error {
		ctx, cancel := context.WithTimeout(ctx, writePatience)
		defer cancel()
		c := changes[n]
		_, err := object.PutConfirmed(ctx, store, c.key, c.body, c.pre)
		if errors.Is(err, object.ErrConflict) {
			return fmt.Errorf("%s changed meanwhile: stop the servers first", c.key)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", c.key, err)
		}
		return nil
	})
}
