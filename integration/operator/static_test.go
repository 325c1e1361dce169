//go:build integration

package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
)

// TestAStaticGroup: what a shard's own config says can't be changed in Kubernetes, which
// the schema says with the reason, and sizes can. Once the group has left the config it
// can be changed, and the change takes effect.
func TestAStaticGroup(t *testing.T) {
	const templates = `"templates": {`
	w := begin(t, func(_, config string) string {
		return strings.Replace(config, templates, templates+`
    "other": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": { "env": { "OTHER": "yes" } } },`, 1)
	})
	w.operate()
	w.running("web", 4)
	w.eventually("the pool says that it is static", func(ctx context.Context) error { return w.static(ctx, true) })
	for field, value := range map[string]string{"template": "other", "subnetPool": "workers"} {
		err := w.edit(field, value)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec."+field) || !strings.Contains(err.Error(), "static config") {
			t.Errorf("%s %q: %v", field, value, err)
		}
	}
	w.scale("web", 6)
	w.running("web", 6)
	before := w.settled("web", 6)

	w.forget("web")
	w.eventually("the pool says that it is not static any more", func(ctx context.Context) error { return w.static(ctx, false) })
	if now := w.settled("web", 6); !slices.Equal(now, before) {
		t.Errorf("the instances are %v, want those from before, %v", now, before)
	}
	if err := w.edit("template", "other"); err != nil {
		t.Fatal(err)
	}
	w.eventually("every instance is another one", func(context.Context) error {
		for _, i := range w.instances("web", "") {
			if slices.Contains(before, i.ID) {
				return fmt.Errorf("%s is there", i.ID)
			}
		}
		return nil
	})
	w.running("web", 6)
	w.settled("web", 6)
	w.eventually("the pool names the template", func(ctx context.Context) error {
		var pool v1beta1.NstanceMachinePool
		err := w.get(ctx, "web", &pool)
		if err == nil && pool.Status.Template != "other" {
			err = fmt.Errorf("%q", pool.Status.Template)
		}
		return err
	})
}

// static is an error while the pool web does not say that it is so.
func (w *world) static(ctx context.Context, want bool) error {
	var pool v1beta1.NstanceMachinePool
	if err := w.get(ctx, "web", &pool); err != nil {
		return err
	}
	if is := pool.Status.IsStatic; is == nil || *is != want {
		return fmt.Errorf("status %+v", pool.Status)
	}
	return nil
}

// edit changes a field of the pool web.
func (w *world) edit(field, value string) error {
	w.Helper()
	pool := &v1beta1.NstanceMachinePool{}
	pool.Namespace, pool.Name = w.namespace, "web"
	return w.api.Patch(w.Context(), pool, client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{%q:%q}}`, field, value)))
}

// forget takes a group out of the config of both shards, and has them read it.
func (w *world) forget(group string) {
	w.Helper()
	for _, shard := range []string{dev1, dev2} {
		w.reconfigure(shard, func(config string) string {
			var kept []string
			for line := range strings.Lines(config) {
				if !strings.HasPrefix(strings.TrimSpace(line), `"`+group+`": {`) {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "")
		})
	}
}

// reconfigure changes the config of a shard that runs.
func (w *world) reconfigure(shard string, change func(config string) string) {
	w.Helper()
	name := filepath.Join("dev-s3", "config", shard+".jsonc")
	text, err := os.ReadFile(filepath.Join(w.temp, name))
	if err != nil {
		w.Fatal(err)
	}
	changed := change(string(text))
	if changed == string(text) {
		w.Fatalf("the config of %s stays as it is:\n%s", shard, text)
	}
	w.write(name, []byte(changed))
	w.admin("config", "refresh", "--yes", "--shard", shard)
}
