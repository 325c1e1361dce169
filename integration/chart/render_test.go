//go:build integration

package chart_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write what Helm renders into the golden files")

// TestLint: Helm's linter reports nothing.
func TestLint(t *testing.T) {
	for _, module := range majors() {
		out, err := helm(t, module, "lint", "--strict", chart)
		if err != nil {
			t.Errorf("%s: %v\n%s", module, err, out)
		}
	}
}

// TestGoldens: the rendered objects for common values, identical with both majors, without the
// kinds, which TestKinds checks.
func TestGoldens(t *testing.T) {
	values, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(values) < 5 {
		t.Fatalf("found the values %v (%v)", values, err)
	}
	for _, file := range values {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		golden := filepath.Join("testdata", name+".golden.yaml")
		for _, module := range majors() {
			t.Run(name+"/"+module, func(t *testing.T) {
				got, err := render(t, module, "--values="+file, "--set=crds.enabled=false")
				if err != nil {
					t.Fatal(err)
				}
				// One major adds an empty line after each object.
				got = strings.TrimSpace(strings.ReplaceAll(got, "\n\n---", "\n---")) + "\n"
				if *rewrite && module == majors()[0] {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("not %s, which -rewrite would write:\n%s", golden, difference(string(want), got))
				}
			})
		}
	}
}

// difference returns the first line in which two texts differ, with some lines before it.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; i < len(w) && i < len(g); i++ {
		if w[i] != g[i] {
			return strings.Join(w[max(0, i-5):i], "\n") + "\n-" + w[i] + "\n+" + g[i]
		}
	}
	return "one has more lines than the other"
}

// TestKinds: the chart installs the kinds of config/crd, marked so that they outlive the release,
// unless values say otherwise.
func TestKinds(t *testing.T) {
	for _, module := range majors() {
		for _, c := range []struct{ set, policy string }{{"crds.keep=true", "keep"}, {"crds.keep=false", ""}} {
			got := kinds(t, module, "--set="+c.set)
			files, err := filepath.Glob("../../config/crd/bases/*.yaml")
			if err != nil || len(files) != len(got) {
				t.Fatalf("%s: renders %d kinds, want %d (%v)", module, len(got), len(files), err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var want apiextensionsv1.CustomResourceDefinition
				if err := yaml.UnmarshalStrict(text, &want); err != nil {
					t.Fatal(err)
				}
				have, ok := got[want.Name]
				if !ok || !reflect.DeepEqual(have.Spec, want.Spec) {
					t.Errorf("%s: %s is not the one of config/crd: run make manifests", module, want.Name)
				}
				if policy := have.Annotations["helm.sh/resource-policy"]; policy != c.policy {
					t.Errorf("%s, %s: %s has the policy %q, want %q", module, c.set, want.Name, policy, c.policy)
				}
				for label, value := range want.Labels {
					if have.Labels[label] != value {
						t.Errorf("%s: %s has %s=%q, want %q", module, want.Name, label, have.Labels[label], value)
					}
				}
				if strings.Contains(string(text), "caBundle") {
					t.Errorf("%s has a CA bundle", file)
				}
			}
		}
	}
}

// kinds returns the kinds that the chart renders, by name.
func kinds(t *testing.T, module string, args ...string) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := render(t, module, append(args, "--show-only=templates/crds.yaml")...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]apiextensionsv1.CustomResourceDefinition{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var kind apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Name != "" {
			all[kind.Name] = kind
		}
	}
	return all
}

// TestValuesAreJudged: invalid values are refused, with an error that names the place.
func TestValuesAreJudged(t *testing.T) {
	for _, c := range []struct{ args, where string }{
		{"--set=replica=2", "replica"},
		{"--set=replicas=two", "/replicas"},
		{"--set=replicas=-1", "/replicas"},
		{"--set=strategy.type=Rolling", "/strategy/type"},
		{"--set=podSecurityContext=none", "/podSecurityContext"},
		{"--set=securityContext=none", "/securityContext"},
		{"--set=image.digets=sha256:00", "digets"},
		{"--set=image.digest=sha256:00", "/image/digest"},
		{"--set=image.pullPolicy=always", "/image/pullPolicy"},
		{"--set=config.cluster_id=example", "/config/shards"},
		{"--set=config.cluster_id=example,config.shards.a.operator_addr=h:1", "/config/shards/a"},
		{"--set=config.shards.a.operator_addr=h:1,config.shards.a.registration_addr=h:2,config.shards.a.port=1", "/config/shards/a"},
		{"--set=config.clusterId=example", "clusterId"},
		{"--set=ca.certificates=ca.crt", "/ca/certificates"},
		{"--set=workload.endpoint=10.0.0.1:6443", "/workload/endpoint"},
		{"--set=metrics.port=70000", "/metrics/port"},
		{"--set=metrics.serviceMonitor.enabled=true", "requires metrics.enabled"},
		{"--set=log.level=loud", "/log/level"},
		{"--set=metrics.port=8081", "/metrics/port"},
		{"--set=fullnameOverride=9my.operator", "/fullnameOverride"},
		{"--set=config.cluster_id=A_B,config.shards.a.operator_addr=h:1,config.shards.a.registration_addr=h:2", "/config/cluster_id"},
		{"--set=config.tenant=X/Y", "/config/tenant"},
		{"--set=config.shards.a.operator_addr=zzz,config.shards.a.registration_addr=h:2", "/config/shards/a/operator_addr"},
		{"--set=config.shards.A.operator_addr=h:1,config.shards.A.registration_addr=h:2", "/config/shards"},
		{`--set-json=podLabels={"app.kubernetes.io/name":"x"}`, "/podLabels"},
		{`--set-json=extraEnv=[{"name":"X","value":true}]`, "/extraEnv/0/value"},
		{"--set=config=null", "config"},
		{"--set=networkPolicy=null", "networkPolicy"},
		{"--set=serviceAccount.create=false", "serviceAccount.name"},
		{"--set=serviceAccount.name=nstance-capi-workload", "workload.serviceAccount"},
		{"--set=fullnameOverride=nstance-capi-workload", "workload.serviceAccount"},
		{"--set=image.tag=v1,image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "image.digest"},
		{"--set=secrets.nonce=Nonce", "/secrets/nonce"},
	} {
		for _, module := range majors() {
			out, err := render(t, module, c.args)
			if err == nil {
				t.Errorf("%s: takes %s and renders %d bytes", module, c.args, len(out))
			} else if dotted := strings.ReplaceAll(strings.TrimPrefix(c.where, "/"), "/", "."); !strings.Contains(err.Error(), c.where) &&
				!strings.Contains(err.Error(), dotted) {
				t.Errorf("%s: of %s it says %v, which does not name %s", module, c.args, err, c.where)
			}
		}
	}
}

// TestAsADependency: a parent chart passes on values that are not this chart's.
func TestAsADependency(t *testing.T) {
	for _, module := range majors() {
		if _, err := render(t, module, "--set=global.region=north,enabled=true"); err != nil {
			t.Errorf("%s: %v", module, err)
		}
		// The same value may be written in several ways.
		if _, err := render(t, module, "--set-string=log.level=2", "--set=extraArgs={-zap-devel,--zap-time-encoding,iso8601}"); err != nil {
			t.Errorf("%s: %v", module, err)
		}
	}
}
