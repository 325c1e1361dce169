package kinds

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

const (
	crds        = "customresourcedefinitions"
	crdGroup    = "apiextensions.k8s.io"
	apiServices = "apiservices"
	apiGroup    = "apiregistration.k8s.io"
)

// clusterScoped are the built-in resources without a namespace. The linked libraries don't
// have that; a test compares the list with a real API server.
const clusterScoped = `
	apiservices certificatesigningrequests clusterrolebindings clusterroles clustertrustbundles csidrivers csinodes
	customresourcedefinitions deviceclasses devicetaintrules flowschemas ingressclasses ipaddresses mutatingadmissionpolicies
	mutatingadmissionpolicybindings mutatingwebhookconfigurations namespaces nodes persistentvolumes
	prioritylevelconfigurations priorityclasses resourcepoolstatusrequests resourceslices runtimeclasses servicecidrs storageclasses
	storageversionmigrations storageversions validatingadmissionpolicies validatingadmissionpolicybindings
	validatingwebhookconfigurations volumeattachments volumeattributesclasses`

// builtin is what is known without CustomResourceDefinitions.
type builtin struct {
	scheme *runtime.Scheme
	kinds  map[string][]schema.GroupVersionKind // by resource
	wide   []string                             // cluster-scoped
}

func newBuiltin() (*builtin, error) {
	b := &builtin{scheme: runtime.NewScheme(), kinds: map[string][]schema.GroupVersionKind{}, wide: strings.Fields(clusterScoped)}
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		apiextensionsv1beta1.AddToScheme, // kube-apiserver still stores old definitions in this version
	} {
		if err := add(b.scheme); err != nil {
			return nil, err
		}
	}
	for gvk := range b.scheme.AllKnownTypes() {
		object, err := b.scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		// kube-apiserver no longer has the group extensions, in which some kinds began.
		if _, ok := object.(metav1.Object); !ok || gvk.Version == runtime.APIVersionInternal || gvk.Group == "extensions" {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		b.kinds[plural.Resource] = append(b.kinds[plural.Resource], gvk)
	}
	return b, nil
}

// group returns the group in the key of a built-in resource.
func (b *builtin) group(resource string) (string, bool) {
	switch resource {
	case crds:
		return crdGroup, true
	case apiServices:
		return apiGroup, true
	}
	return "", b.kinds[resource] != nil || slices.Contains(b.wide, resource)
}
