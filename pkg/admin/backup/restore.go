package backup

import (
	"bytes"
	"context"
	"encoding/json"
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
	Part         string   `json:"part"`
	Added        int      `json:"added"`     // the bucket does not have them
	Replaced     int      `json:"replaced"`  // the bucket has others
	Same         int      `json:"same"`      // the bucket has them already
	Different    int      `json:"different"` // the bucket has others, which stay
	LeftOut      int      `json:"left_out"`  // the bucket does not have them, and they would do harm
	AddedKeys    []string `json:"added_keys,omitempty"`
	ReplacedKeys []string `json:"replaced_keys,omitempty"`
}

// change is one object that a restore writes.
type change struct {
	key  string
	body []byte
	pre  object.Precondition
}

// Restore is what has to be done to put a backup back into a bucket: it adds what the bucket does not have,
// replaces only objects of the named parts, and deletes nothing. It adds no config of a shard that has accepted another one
// since, and no record of an instance that had not registered.
type Restore struct {
	Parts   []Restored
	Empty   bool            // the bucket has nothing of any cluster
	changes []change        // by part, in order
	newer   map[string]bool // shards of which the bucket has another applied/ than the backup
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
	r := &Restore{Empty: empty, newer: map[string]bool{}}
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
	found, err := look(ctx, store, objects, keys)
	if err != nil {
		return err
	}
	p := Restored{Part: part}
	for n, is := range found {
		r.add(&p, is, change{key: keys[n], body: objects[keys[n]]}, replace)
	}
	r.Parts = append(r.Parts, p)
	return nil
}

// look compares objects of a backup with those of a bucket.
func look(ctx context.Context, store object.Store, objects Objects, keys []string) ([]stand, error) {
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
	return found, err
}

// add decides about an object of a part, by how it stands to that of the bucket.
func (r *Restore) add(p *Restored, is stand, c change, replace bool) {
	there := is.etag != "" || is.refused
	switch {
	case is.same:
		p.Same++
		return
	case there && (!replace || is.refused):
		p.Different++
		r.newer[Shard(c.key)] = r.newer[Shard(c.key)] || p.Part == "applied"
		return
	case !there && (unregistered(c) || p.Part == "config" && !replace && r.newer[Shard(c.key)]):
		p.LeftOut++
		return
	case there:
		c.pre = object.IfMatch(is.etag)
		p.Replaced++
		p.ReplacedKeys = append(p.ReplacedKeys, c.key)
	default:
		c.pre = object.IfAbsent()
		p.Added++
		p.AddedKeys = append(p.AddedKeys, c.key)
	}
	r.changes = append(r.changes, c)
}

// unregistered reports whether an object is the record of an instance that had not registered. If it has since, the
// record would have it deleted when its time to register is over; without a record its machine stays while its agent calls.
func unregistered(c change) bool {
	var record struct {
		Phase string `json:"phase"`
	}
	return Part(c.key) == "instance" && json.Unmarshal(c.body, &record) == nil && record.Phase == "pending"
}

// Equal reports whether another comparison found the same, of the same versions of objects.
func (r *Restore) Equal(other *Restore) bool {
	return slices.EqualFunc(r.changes, other.changes, func(a, b change) bool { return a.key == b.key && a.pre == b.pre })
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
			return fmt.Errorf("not all of the backup was put back: repeat the command: %w", err)
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
		if !errors.Is(err, object.ErrConflict) {
			if err != nil {
				err = fmt.Errorf("write %s: %w", c.key, err)
			}
			return err
		}
		if o, seen := store.Get(ctx, c.key); seen == nil && bytes.Equal(o.Body, c.body) {
			return nil // by another restore
		}
		return fmt.Errorf("%s changed meanwhile: stop the servers first", c.key)
	})
}
