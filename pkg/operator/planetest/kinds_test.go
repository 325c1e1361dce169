package planetest_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/planetest"
)

var shared planetest.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// machines is the project's kind of that name.
func machines(t *testing.T, api client.Client) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	kind := &apiextensionsv1.CustomResourceDefinition{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "nstancemachines.infrastructure.cluster.x-k8s.io"}, kind); err != nil {
		t.Fatal(err)
	}
	return kind
}

// TestKindsOfASharedPlaneStay: a test that would change what all of a package see is told
// so, and what to do.
func TestKindsOfASharedPlaneStay(t *testing.T) {
	api := shared.Plane(t).Client
	patch := func(text string, options ...client.PatchOption) error {
		return api.Patch(t.Context(), machines(t, api), client.RawPatch("application/merge-patch+json", []byte(text)), options...)
	}
	another := machines(t, api)
	another.ResourceVersion, another.Spec.Names.Plural, another.Spec.Names.Singular = "", "others", "other"
	another.Spec.Names.Kind, another.Spec.Names.ListKind, another.Spec.Names.ShortNames = "Other", "OtherList", nil
	another.Name = "others." + another.Spec.Group
	for what, err := range map[string]error{
		"install":                   api.Create(t.Context(), another),
		"remove":                    api.Delete(t.Context(), machines(t, api)),
		"would remove":              api.Delete(t.Context(), machines(t, api), client.DryRunAll),
		"change the short names":    patch(`{"spec":{"names":{"shortNames":["other"]}}}`),
		"change the labels":         patch(`{"metadata":{"labels":{"some":"label"}}}`),
		"remove the labels":         patch(`{"metadata":{"labels":null}}`),
		"change the labels, or so ": patch(`{"metadata":{"labels":{"some":"label"}}}`, client.DryRunAll),
	} {
		if err == nil || !strings.Contains(err.Error(), "planetest.Own") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"nothing":     patch(`{}`),
		"annotations": patch(`{"metadata":{"annotations":{"some":"note"}}}`),
		"as it is":    api.Update(t.Context(), machines(t, api)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKindsOfAnOwnPlaneChange: where a test is alone, it may do anything.
func TestKindsOfAnOwnPlaneChange(t *testing.T) {
	api := planetest.Own(t).Client
	kind := machines(t, api)
	kind.Spec.Names.ShortNames = []string{"other"}
	if err := api.Update(t.Context(), kind); err != nil {
		t.Error(err)
	}
	if err := api.Delete(t.Context(), machines(t, api)); err != nil {
		t.Error(err)
	}
}
