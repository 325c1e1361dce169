package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/fleet"
	"google.golang.org/protobuf/proto"
)

// FuzzParseOnDemand: an accepted policy is valid, and is parsed again from its JSON.
func FuzzParseOnDemand(f *testing.F) {
	for _, text := range []string{
		`{"namespaces": ["ci"], "namespace_labels": {"a": "b"}, "instance_types": ["large"], "max": 3, "max_per_namespace": 2}`,
		`{"namespaces": ["*"], "max": 10000}`, `{"max": 1}`, `{}`, `null`, `[]`, ``, `{"namespaces": ["ci"], "max": 1} {}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		policy, err := admin.ParseOnDemand(text)
		if err != nil {
			return
		}
		same := &fleet.OnDemand{
			Namespaces: policy.GetNamespaces(), NamespaceLabels: policy.GetNamespaceLabels(), InstanceTypes: policy.GetInstanceTypes(),
			Max: int(policy.GetMax()), MaxPerNamespace: int(policy.GetMaxPerNamespace()),
		}
		same.Check(func(path, message string) { t.Errorf("accepted, but %s: %s", path, message) })
		written, err := json.Marshal(same)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := admin.ParseOnDemand(string(written)); err != nil || !proto.Equal(again, policy) {
			t.Errorf("marshalled as %s and parsed as %+v, %v", written, again, err)
		}
	})
}
