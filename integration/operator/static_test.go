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

// TestAStaticGroup: what a shard's static config defines can't be changed in Kubernetes, which the
// schema states with the reason; sizes can. Once the group is removed from the config it can be
// changed, and the change takes effect.
func TestAStaticGroup(t *testing.T) {
	const templates = `"templates": {`
	f := newFixture(t, func(_, config string) string {
		return strings.Replace(config, templates, templates+`
    "other": { "kind": "knd", "arch": "amd64", "subnet_pool": "workers", "args": { "env": { "DEV_OTHER": "yes" } } },`, 1)
	})
	f.operate()
	f.running("web", 4)
	f.eventually("the pool says that it is static", func(ctx context.Context) error { return f.static(ctx, true) })
	for field, value := range map[string]string{"template": "other", "subnetPool": "workers"} {
		err := f.edit(field, value)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec."+field) || !strings.Contains(err.Error(), "static config") {
			t.Errorf("%s %q: %v", field, value, err)
		}
	}
	f.scale("web", 6)
	f.running("web", 6)
	before := f.settled("web", 6)

	f.forget("web")
	f.eventually("the pool says that it is not static any more", func(ctx context.Context) error { return f.static(ctx, false) })
	if now := f.settled("web", 6); !slices.Equal(now, before) {
		t.Errorf("the instances are %v, want those from before, %v", now, before)
	}
	if err := f.edit("template", "other"); err != nil {
		t.Fatal(err)
	}
	f.eventually("every instance is another one", func(context.Context) error {
		for _, i := range f.instances("web", "") {
			if slices.Contains(before, i.ID) {
				return fmt.Errorf("%s is there", i.ID)
			}
		}
		return nil
	})
	f.running("web", 6)
	f.settled("web", 6)
	f.eventually("the pool names the template", func(ctx context.Context) error {
		var pool v1beta1.NstanceMachinePool
		err := f.get(ctx, "web", &pool)
		if err == nil && pool.Status.Template != "other" {
			err = fmt.Errorf("%q", pool.Status.Template)
		}
		return err
	})
}

// static returns an error until the pool web reports that it is static.
func (f *fixture) static(ctx context.Context, want bool) error {
	var pool v1beta1.NstanceMachinePool
	if err := f.get(ctx, "web", &pool); err != nil {
		return err
	}
	if is := pool.Status.IsStatic; is == nil || *is != want {
		return fmt.Errorf("status %+v", pool.Status)
	}
	return nil
}

// edit changes a field of the pool web.
func (f *fixture) edit(field, value string) error {
	f.Helper()
	pool := &v1beta1.NstanceMachinePool{}
	pool.Namespace, pool.Name = f.namespace, "web"
	return f.api.Patch(f.Context(), pool, client.RawPatch(clusterMerge, fmt.Appendf(nil, `{"spec":{%q:%q}}`, field, value)))
}

// forget removes a group from the config of both shards, and refreshes it.
func (f *fixture) forget(group string) {
	f.Helper()
	for _, shard := range []string{dev1, dev2} {
		f.reconfigure(shard, func(config string) string {
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

// reconfigure changes the config of a running shard.
func (f *fixture) reconfigure(shard string, change func(config string) string) {
	f.Helper()
	name := filepath.Join("dev-s3", "config", shard+".jsonc")
	text, err := os.ReadFile(filepath.Join(f.temp, name))
	if err != nil {
		f.Fatal(err)
	}
	changed := change(string(text))
	if changed == string(text) {
		f.Fatalf("the config of %s stays as it is:\n%s", shard, text)
	}
	f.write(name, []byte(changed))
	f.admin("config", "refresh", "--yes", "--shard", shard)
}
