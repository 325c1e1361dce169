package planetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// kept is the name of the policy of keepKinds, and the prefix of its message.
const kept = "shared-kinds"

// unchanged allows updates that leave spec as it is: Cluster API's core annotates the kinds
// that it has migrated.
const unchanged = `request.operation == 'UPDATE' && object.spec == oldObject.spec &&
	has(object.metadata.labels) == has(oldObject.metadata.labels) &&
	(!has(object.metadata.labels) || object.metadata.labels == oldObject.metadata.labels)`

// keepKinds makes the API server refuse to install, change or remove kinds, for any caller,
// and returns once it does. An API server takes up to minutes to drop a kind, and meanwhile
// requests of concurrent tests fail.
func keepKinds(ctx context.Context, api client.Client) error {
	forbidden, fail := metav1.StatusReasonForbidden, admissionv1.Fail
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule: admissionv1.Rule{
			APIGroups: []string{apiextensionsv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"customresourcedefinitions"},
		},
	}
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: kept},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    &fail,
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
				Validations: []admissionv1.Validation{{
					Expression: unchanged, Reason: &forbidden,
					Message: "all tests of the package share this control plane, so its kinds can't change: " +
						"a test that installs, changes or removes kinds needs its own control plane (planetest.Own, Core, Bare)",
				}},
			},
		},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: kept},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: kept, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	} {
		if err := api.Create(ctx, o); err != nil {
			return fmt.Errorf("make the kinds immutable: %w", err)
		}
	}
	// The API server reloads its policies about once a second.
	for {
		err := api.Create(ctx, probe(), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), kept) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the kinds can still be changed: %w", errors.Join(err, ctx.Err()))
		case <-time.After(pause):
		}
	}
}

// probe is an arbitrary kind.
func probe() *apiextensionsv1.CustomResourceDefinition {
	const group = "planetest.nstance.dev"
	schema := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "probes." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "probes", Singular: "probe", Kind: "Probe", ListKind: "ProbeList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: schema}},
		},
	}
}

// clusterctl is the label by which clusterctl finds the kinds whose objects it moves.
const clusterctl = "clusterctl.cluster.x-k8s.io"

// clusterAPIKinds returns the kinds of Cluster API in the control plane's folder, with the
// label that clusterctl sets when it installs them.
func clusterAPIKinds(folder string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return readKinds(filepath.Join(folder, "capi", "crds"), map[string]string{clusterctl: ""})
}

// installKinds installs the project's kinds, with the labels that config/crd sets. They have
// no conversions, which envtest may add to all kinds that it installs itself.
func installKinds(config *rest.Config) error {
	labels := map[string]string{clusterctl: "", "cluster.x-k8s.io/provider": "infrastructure-nstance"}
	all, err := readKinds(filepath.Join(Root(), "config", "crd", "bases"), labels)
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: all, MaxTime: startTimeout})
	return err
}

func readKinds(folder string, labels map[string]string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	options := envtest.CRDInstallOptions{Paths: []string{folder}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return nil, fmt.Errorf("read the kinds in %s: %w", folder, err)
	}
	for _, kind := range options.CRDs {
		if kind.Labels == nil {
			kind.Labels = map[string]string{}
		}
		maps.Copy(kind.Labels, labels)
	}
	return options.CRDs, nil
}
