package config_test

import (
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/nstance/nstance/pkg/operator/settings"
)

// The labels by which Cluster API and clusterctl find what is a provider's.
const (
	contractLabel   = "cluster.x-k8s.io/v1beta2"
	providerLabel   = "cluster.x-k8s.io/provider"
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
)

func deployment(t *testing.T, all []*unstructured.Unstructured) (appsv1.Deployment, corev1.Container) {
	t.Helper()
	d := one[appsv1.Deployment](t, all, "Deployment", "nstance-operator")
	if containers := d.Spec.Template.Spec.Containers; len(containers) != 1 || containers[0].Name != "manager" {
		t.Fatalf("want one container, named manager, as clusterctl does: %+v", containers)
	}
	return d, d.Spec.Template.Spec.Containers[0]
}

// TestWhatIsGeneratedIsInstalled: a kind, or a file of rights, that is new is not left
// out of what people install.
func TestWhatIsGeneratedIsInstalled(t *testing.T) {
	for _, folder := range []string{"crd", "rbac", "manager", "default"} {
		var listed struct {
			Resources []string `json:"resources"`
		}
		if err := yaml.Unmarshal(read(t, filepath.Join(folder, "kustomization.yaml")), &listed); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		more, _ := filepath.Glob(filepath.Join(folder, "bases", "*.yaml"))
		if err != nil || len(files) < 1 {
			t.Fatalf("%s: %v, %v", folder, files, err)
		}
		for _, file := range append(files, more...) {
			name, _ := filepath.Rel(folder, file)
			if name != "kustomization.yaml" && !slices.Contains(listed.Resources, filepath.ToSlash(name)) {
				t.Errorf("%s is not installed: %s/kustomization.yaml does not list it", file, folder)
			}
		}
	}
}

// TestComponents: what clusterctl installs is what kubectl apply -k does.
func TestComponents(t *testing.T) {
	have := parse(t, read(t, filepath.Join("clusterctl", "infrastructure-components.yaml")))
	want := build(t, "default")
	if len(have) != len(want) {
		t.Fatalf("%d objects, want %d: run make manifests", len(have), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(have[i].Object, want[i].Object) {
			t.Errorf("%s %s is out of date: run make manifests", have[i].GetKind(), have[i].GetName())
		}
	}
}

// TestKindsCanBeMoved: clusterctl moves the kinds that have its label, and those that
// fulfil the contract which the release claims.
func TestKindsCanBeMoved(t *testing.T) {
	var metadata struct {
		APIVersion, Kind string
		ReleaseSeries    []struct {
			Major, Minor int
			Contract     string
		}
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join("clusterctl", "metadata.yaml")), &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.APIVersion != "clusterctl.cluster.x-k8s.io/v1alpha3" || metadata.Kind != "Metadata" || len(metadata.ReleaseSeries) == 0 {
		t.Errorf("metadata %+v", metadata)
	}
	for _, s := range metadata.ReleaseSeries {
		if "cluster.x-k8s.io/"+s.Contract != contractLabel {
			t.Errorf("release %d.%d is of contract %s: no kind has a label for it", s.Major, s.Minor, s.Contract)
		}
	}
	for _, folder := range []string{"crd", "default"} {
		kinds := only[apiextensionsv1.CustomResourceDefinition](t, build(t, folder), "CustomResourceDefinition")
		if len(kinds) != 6 {
			t.Errorf("%s: %d kinds, want 6", folder, len(kinds))
		}
		for _, kind := range kinds {
			label, moves := kind.Labels[clusterctlLabel]
			if kind.Labels[contractLabel] != "v1beta1" || kind.Labels[providerLabel] != "infrastructure-nstance" || !moves || label != "" {
				t.Errorf("%s: %s has the labels %v", folder, kind.Name, kind.Labels)
			}
		}
	}
}

// reference is a variable of the container in one of its arguments.
var reference = regexp.MustCompile(`\$\(([A-Z0-9_]+)\)`)

// TestTheOperatorTakesItsDeployment: the operator starts with the flags, the variables,
// and the file that the Deployment gives it.
func TestTheOperatorTakesItsDeployment(t *testing.T) {
	d, manager := deployment(t, build(t, "default"))
	known := variables(t)
	env := map[string]string{}
	for _, v := range manager.Env {
		if !slices.Contains(known, v.Name) {
			t.Errorf("%s is no variable of the operator: %v", v.Name, known)
		}
		env[v.Name] = v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
			env[v.Name] = d.Namespace
		}
	}
	var args []string
	for _, arg := range manager.Args {
		args = append(args, reference.ReplaceAllStringFunc(arg, func(r string) string { return env[reference.FindStringSubmatch(r)[1]] }))
	}
	var said strings.Builder
	var opened string
	s, err := settings.Parse(args, settings.World{
		Getenv: func(name string) string { return env[name] },
		ReadFile: func(path string) ([]byte, error) {
			opened = path
			return []byte("cluster_id: c\nshards: {one: {registration_addr: \"h:1\", operator_addr: \"h:2\"}}"), nil
		},
		Output: &said,
	})
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, said.String())
	}
	if s.Namespace != namespace || !s.LeaderElect {
		t.Errorf("namespace %q, leader election %v", s.Namespace, s.LeaderElect)
	}
	mounted := manager.VolumeMounts[0].MountPath
	if len(manager.VolumeMounts) != 1 || manager.VolumeMounts[0].SubPath != "" || filepath.Dir(opened) != mounted {
		t.Errorf("the file is %s, mounted is %+v", opened, manager.VolumeMounts)
	}
	if _, port, _ := strings.Cut(s.HealthAddr, ":"); len(manager.Ports) != 1 || port != "8081" || manager.Ports[0].ContainerPort != 8081 {
		t.Errorf("health is at %s, ports are %+v", s.HealthAddr, manager.Ports)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": manager.LivenessProbe, "/readyz": manager.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != manager.Ports[0].Name {
			t.Errorf("want a probe of %s, have %+v", path, probe)
		}
	}
}

// variables are those that the operator reads, as its page lists them; a test of docs
// holds that list against the code.
func variables(t *testing.T) (names []string) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `(NSTANCE_[A-Z0-9_]+)` \\|")
	for _, m := range row.FindAllStringSubmatch(string(read(t, filepath.Join("..", "docs", "operator.md"))), -1) {
		names = append(names, m[1])
	}
	if len(names) < 8 {
		t.Fatalf("found only %v", names)
	}
	return names
}

// TestRightsAreTheOperators: each role is bound, to the ServiceAccount that the operator
// runs as, or that it makes tokens of; also for a second tenant, which shares no binding
// with the first.
func TestRightsAreTheOperators(t *testing.T) {
	bindings := map[string]bool{}
	for to, all := range map[string][]*unstructured.Unstructured{namespace: build(t, "default"), second: another(t)} {
		d, _ := deployment(t, all)
		roles := map[string]bool{}
		for _, o := range all {
			if o.GetNamespace() != "" && o.GetNamespace() != to || o.GetKind() == "Namespace" && o.GetName() != to {
				t.Errorf("%s %s is of namespace %s, want %s", o.GetKind(), o.GetName(), o.GetNamespace(), to)
			}
			if o.GetKind() == "Role" || o.GetKind() == "ClusterRole" {
				roles[o.GetKind()+" "+o.GetName()] = false
			}
		}
		bind := func(role rbacv1.RoleRef, subjects []rbacv1.Subject, want string) {
			if _, there := roles[role.Kind+" "+role.Name]; !there {
				t.Errorf("there is no %s %s", role.Kind, role.Name)
			}
			roles[role.Kind+" "+role.Name] = true
			if len(subjects) != 1 || subjects[0].Kind != "ServiceAccount" || subjects[0].Name != want || subjects[0].Namespace != to {
				t.Errorf("%s is of %+v, want %s of %s", role.Name, subjects, want, to)
			}
			one[corev1.ServiceAccount](t, all, "ServiceAccount", want)
		}
		tokens := parsed(t).CAPIServiceAccount
		operator := d.Spec.Template.Spec.ServiceAccountName
		holders := map[string]string{"nstance-operator": operator, "nstance-operator-kubeconfig": operator, tokens: tokens}
		for _, b := range only[rbacv1.RoleBinding](t, all, "RoleBinding") {
			bind(b.RoleRef, b.Subjects, holders[b.RoleRef.Name])
		}
		for _, b := range only[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding") {
			if bindings[b.Name] {
				t.Errorf("both have a ClusterRoleBinding %s", b.Name)
			}
			bindings[b.Name] = true
			bind(b.RoleRef, b.Subjects, holders[b.RoleRef.Name])
		}
		for _, role := range slices.Sorted(maps.Keys(roles)) {
			if !roles[role] {
				t.Errorf("the %s has no binding", role)
			}
		}
	}
}

// TestRightsFollowTheCluster: another tenant's operator may read and write the kubeconfig of
// its own cluster, and no other.
func TestRightsFollowTheCluster(t *testing.T) {
	for name, all := range map[string][]*unstructured.Unstructured{
		"example-cluster--default-kubeconfig": build(t, "default"), "example-cluster--blue-kubeconfig": another(t),
	} {
		role := one[rbacv1.Role](t, all, "Role", "nstance-operator-kubeconfig")
		if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].ResourceNames, []string{name}) {
			t.Errorf("the rights are %+v, want those on %s", role.Rules, name)
		}
	}
}

// TestAnotherImage: the page's kustomization sets it.
func TestAnotherImage(t *testing.T) {
	if _, manager := deployment(t, another(t)); manager.Image != "registry.example.com/nstance-operator:v0.1.0" {
		t.Errorf("the image is %s", manager.Image)
	}
}

// parsed are the operator's defaults.
func parsed(t *testing.T) settings.Settings {
	t.Helper()
	s, err := settings.Parse([]string{"--namespace", namespace}, settings.World{
		Getenv: func(string) string { return "" },
		ReadFile: func(string) ([]byte, error) {
			return []byte("cluster_id: c\nshards: {one: {registration_addr: \"h:1\", operator_addr: \"h:2\"}}"), nil
		},
		Output: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
