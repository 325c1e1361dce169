package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/object"
	"golang.org/x/sync/errgroup"
)

// atOnce is how many objects are read or written at once.
const atOnce = 16

// Taken says what a backup has.
type Taken struct {
	Objects int            `json:"objects"`
	Bytes   int64          `json:"bytes"`
	Parts   map[string]int `json:"parts"` // how many objects, by the first segment of their keys
	// LeftOut are objects that are not in it: with keys that Nstance can't use, and certificate logs that the
	// store does not return, since they were archived.
	LeftOut []string `json:"left_out,omitempty"`
	trust   bool     // it has the CA certificate
}

// ErrNoCluster means that a bucket has no cluster to back up.
var ErrNoCluster = errors.New("the storage holds no cluster: it has no " + caCertificate)

// Take writes a backup of a bucket. Servers may run meanwhile: every object stands for itself, and one that is
// deleted before it is read is left out. With an error the file is not a backup.
func Take(ctx context.Context, store object.Store, to io.Writer) (Taken, error) {
	taken := Taken{Parts: map[string]int{}}
	parts, err := partsOf(ctx, store)
	if err != nil {
		return taken, err
	}
	w, err := newWriter(to)
	if err != nil {
		return taken, fmt.Errorf("write the backup: %w", err)
	}
	for _, part := range parts {
		if err := taken.copy(ctx, store, part, w); err != nil {
			return taken, err
		}
	}
	if !taken.trust {
		return taken, ErrNoCluster
	}
	if err := w.close(); err != nil {
		return taken, fmt.Errorf("write the backup: %w", err)
	}
	return taken, nil
}

// partsOf returns the parts of a bucket that belong to a backup, in order.
func partsOf(ctx context.Context, store object.Store) ([]string, error) {
	// Groups may be made while the listing already is at the instances.
	parts := map[string]bool{"groups": true}
	for page, err := range object.Pages(ctx, store, "") {
		if err != nil {
			return nil, err
		}
		for _, i := range page {
			if !own(i.Key) {
				parts[Part(i.Key)] = true
			}
		}
	}
	return order(slices.Collect(maps.Keys(parts))), nil
}

// copy writes the objects of one part.
func (t *Taken) copy(ctx context.Context, store object.Store, part string, w *writer) error {
	infos, err := object.All(ctx, store, part)
	if err != nil {
		return err
	}
	infos = slices.DeleteFunc(infos, func(i object.Info) bool { return Part(i.Key) != part || t.leavesOut(i.Key) })
	for some := range slices.Chunk(infos, atOnce) {
		objects, err := t.get(ctx, store, some)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := checkSize(o.Key, int64(len(o.Body)), maxBackup-t.Bytes); err != nil {
				return err
			}
			if err := w.add(o); err != nil {
				return fmt.Errorf("write the backup: %w", err)
			}
			t.Objects++
			t.Bytes += int64(len(o.Body))
			t.Parts[part]++
			t.trust = t.trust || o.Key == caCertificate
		}
	}
	return nil
}

// leavesOut reports whether a key is one that Nstance can't use, such as those of folders that a console of S3 makes, or
// would not be read as an object.
func (t *Taken) leavesOut(key string) bool {
	if object.CheckKey(key) == nil && key != markName {
		return false
	}
	t.LeftOut = append(t.LeftOut, key)
	return true
}

// get reads some objects at once. Those that are not there are left out.
func (t *Taken) get(ctx context.Context, store object.Store, infos []object.Info) ([]object.Object, error) {
	read, refused := make([]object.Object, len(infos)), make([]bool, len(infos))
	err := each(ctx, len(infos), func(ctx context.Context, n int) error {
		if err := checkSize(infos[n].Key, infos[n].Size, maxBackup); err != nil {
			return err
		}
		o, err := store.Get(ctx, infos[n].Key)
		switch {
		case errors.Is(err, object.ErrNotFound):
			return nil
		case errors.Is(err, object.ErrRefused) && expendable(infos[n].Key):
			refused[n] = true
			return nil
		case err != nil:
			return fmt.Errorf("read %s: %w", infos[n].Key, err)
		}
		o.Key = infos[n].Key
		read[n] = o
		return nil
	})
	for n, i := range infos {
		if refused[n] {
			t.LeftOut = append(t.LeftOut, i.Key)
		}
	}
	return slices.DeleteFunc(read, func(o object.Object) bool { return o.Key == "" }), err
}

// each calls f for 0 to n-1, a few at once, until one fails.
func each(ctx context.Context, n int, f func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}
