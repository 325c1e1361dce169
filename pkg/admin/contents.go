package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/secrets"
)

// checkContents checks what a bucket must always contain: that it is there, and that no rule of the
// bucket deletes it.
func checkContents(ctx context.Context, store object.Store) []object.Finding {
	there := object.Finding{
		Check: "what servers start from", Result: object.ResultOK, Meaning: "a server finds the configs, the CA and its keys",
	}
	e, err := essentialsOf(ctx, store)
	var missing []string
	if err == nil {
		missing, err = e.missing(ctx, store)
	}
	switch {
	case err != nil:
		there.Result, there.Detail, there.Err = object.ResultFailed, err.Error(), err
	case len(missing) > 0:
		there.Err = fmt.Errorf("missing: %s: restore them from a backup; a running leader stores them again within an hour",
			strings.Join(missing, ", "))
		there.Result, there.Detail = object.ResultMissing, there.Err.Error()
	case e.elsewhere:
		there.Detail = "the keys are at AWS, where this did not look"
	}
	return []object.Finding{there, checkLifecycle(ctx, store, e.sealed)}
}

// essentials are the keys of what the servers of a bucket start from.
type essentials struct {
	plain, sealed map[string]bool
	elsewhere     bool // some secrets are not in the bucket
}

// essentialsOf returns what is needed by the shards that have had a leader. A bucket with nothing but
// configs has no cluster yet.
func essentialsOf(ctx context.Context, store object.Store) (e essentials, err error) {
	e = essentials{plain: map[string]bool{}, sealed: map[string]bool{}}
	for _, prefix := range []string{"leader/", "applied/", "cluster/"} {
		infos, err := object.All(ctx, store, prefix)
		if err != nil {
			return e, err
		}
		for _, info := range infos {
			e.plain[secrets.CACertificateObject] = true
			if prefix == "cluster/" {
				break
			}
			shard := strings.TrimSuffix(path.Base(info.Key), path.Ext(info.Key))
			e.plain["config/"+shard+".jsonc"], e.plain["applied/"+shard+".jsonc"] = true, true
		}
	}
	if len(e.plain) == 0 {
		return e, nil
	}
	for _, prefix := range []string{"config/", "applied/"} {
		if err := e.seal(ctx, store, prefix); err != nil {
			return e, err
		}
	}
	return e, nil
}

// seal adds the secrets of the configs below a prefix. A config that can't be read says nothing of
// them.
func (e *essentials) seal(ctx context.Context, store object.Store, prefix string) error {
	infos, err := object.All(ctx, store, prefix)
	if err != nil {
		return err
	}
	for _, info := range infos {
		o, err := store.Get(ctx, info.Key)
		if err != nil {
			return err
		}
		body := o.Body
		if _, rest, err := config.CutHeader(body); err == nil {
			body = rest
		}
		shard, err := config.ParseAccepted(body)
		switch {
		case err != nil:
		case shard.Cluster.Secrets.Provider != secrets.ProviderObjectStorage:
			e.elsewhere = true
		default:
			for _, name := range []string{secrets.CAKeyName, secrets.CABundleName, secrets.NonceKeyName} {
				e.sealed[shard.Cluster.Secrets.Prefix+name] = true
			}
		}
	}
	return nil
}

// missing returns those that are not there, sorted.
func (e *essentials) missing(ctx context.Context, store object.Store) (missing []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(union(e.plain, e.sealed))) {
		switch _, err := store.Get(ctx, key); {
		case errors.Is(err, object.ErrNotFound):
			missing = append(missing, key)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

func union(a, b map[string]bool) map[string]bool {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// expendable is where a rule may delete objects.
func expendable() []string { return []string{"certlog/", "probe/"} }

func checkLifecycle(ctx context.Context, store object.Store, sealed map[string]bool) object.Finding {
	f := object.Finding{
		Check: "lifecycle rules", Result: object.ResultOK, Meaning: "the store itself deletes and archives nothing that the cluster needs",
	}
	bucket, ok := store.(object.Lifecycle)
	if !ok {
		f.Detail = "a store of this kind has none"
		return f
	}
	rules, err := bucket.LifecycleRules(ctx)
	if err != nil { // which is not the cluster's fault: the permission is optional
		f.Result, f.Detail = object.ResultNotChecked, err.Error()
		return f
	}
	var wrong []string
	for _, r := range rules {
		if concerns(r.Prefix, sealed) {
			wrong = append(wrong, fmt.Sprintf("rule %q %s below %q", r.ID, r.Does, r.Prefix))
		}
	}
	if len(wrong) > 0 {
		f.Err = fmt.Errorf("%s: remove such rules, or limit them to certlog/: Nstance deletes what it no longer needs itself",
			strings.Join(wrong, "; "))
		f.Result, f.Detail = object.ResultFailed, f.Err.Error()
	}
	return f
}

// concerns reports whether a rule for a prefix applies to objects of Nstance that have to stay, or to
// these secrets.
func concerns(prefix string, sealed map[string]bool) bool {
	for key := range sealed {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return slices.ContainsFunc(config.ObjectPrefixes(), func(ours string) bool {
		return !slices.Contains(expendable(), ours) && (strings.HasPrefix(ours, prefix) || strings.HasPrefix(prefix, ours))
	})
}
