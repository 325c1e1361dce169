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
		Check: "what servers start from", Result: object.ResultOK, Meaning: "a server can start, and knows the last accepted config",
	}
	var missing []string
	if missing, there.Err = missingEssentials(ctx, store); there.Err != nil {
		there.Result, there.Detail = object.ResultFailed, there.Err.Error()
	} else if len(missing) > 0 {
		there.Err = fmt.Errorf("missing: %s: restore them from a backup; a running leader stores them again within an hour",
			strings.Join(missing, ", "))
		there.Result, there.Detail = object.ResultMissing, there.Err.Error()
	}
	return []object.Finding{there, checkLifecycle(ctx, store)}
}

// missingEssentials returns what is missing of what servers start from. A bucket with nothing but
// configs has no cluster yet.
func missingEssentials(ctx context.Context, store object.Store) (missing []string, err error) {
	needed := map[string]bool{}
	for _, prefix := range []string{"leader/", "applied/", "cluster/"} {
		infos, err := object.All(ctx, store, prefix)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			needed[secrets.CACertificateObject] = true
			if prefix == "cluster/" {
				break
			}
			shard := strings.TrimSuffix(path.Base(info.Key), path.Ext(info.Key))
			needed["config/"+shard+".jsonc"], needed["applied/"+shard+".jsonc"] = true, true
		}
	}
	if len(needed) == 0 {
		return nil, nil
	}
	for _, prefix := range []string{"config/", "applied/"} {
		keys, err := sealedKeys(ctx, store, prefix)
		if err != nil {
			return nil, err
		}
		maps.Copy(needed, keys)
	}
	for _, key := range slices.Sorted(maps.Keys(needed)) {
		switch _, err := store.Get(ctx, key); {
		case errors.Is(err, object.ErrNotFound):
			missing = append(missing, key)
		case err != nil:
			return nil, err
		}
	}
	return missing, nil
}

// sealedKeys returns the keys of the secrets that the configs below a prefix keep in the bucket.
func sealedKeys(ctx context.Context, store object.Store, prefix string) (map[string]bool, error) {
	infos, err := object.All(ctx, store, prefix)
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for _, info := range infos {
		o, err := store.Get(ctx, info.Key)
		if err != nil {
			return nil, err
		}
		body := o.Body
		if _, rest, err := config.CutHeader(body); err == nil {
			body = rest
		}
		shard, err := config.ParseAccepted(body)
		if err != nil || shard.Cluster.Secrets.Provider != secrets.ProviderObjectStorage {
			continue // what it says of its secrets is unknown, or they are elsewhere
		}
		for _, name := range []string{secrets.CAKeyName, secrets.CABundleName, secrets.NonceKeyName} {
			keys[shard.Cluster.Secrets.Prefix+name] = true
		}
	}
	return keys, nil
}

// expendable is where a rule may delete objects.
func expendable() []string { return []string{"certlog/", "probe/"} }

func checkLifecycle(ctx context.Context, store object.Store) object.Finding {
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
		if concerns(r.Prefix) {
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

// concerns reports whether a rule for a prefix applies to objects of Nstance that have to stay.
func concerns(prefix string) bool {
	return slices.ContainsFunc(config.ObjectPrefixes(), func(ours string) bool {
		return !slices.Contains(expendable(), ours) && (strings.HasPrefix(ours, prefix) || strings.HasPrefix(prefix, ours))
	})
}
