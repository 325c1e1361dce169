package config_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/planetest"
)

// blocks are those of a language on the operator's page, in their order.
func blocks(t *testing.T, language string) (all []string) {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^[ ]*```" + language + "\n(.*?)^[ ]*```$")
	for _, m := range fence.FindAllStringSubmatch(string(read(t, filepath.Join("..", "docs", "operator.md"))), -1) {
		all = append(all, m[1])
	}
	return all
}

// commandsOfThePage: kubectl and a real API server take every command with which the
// operator's page installs, upgrades and removes it.
func commandsOfThePage(t *testing.T, plane *planetest.Plane) {
	folder := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(here, filepath.Join(folder, "config")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"kubeconfig": string(plane.Kubeconfig()), "ca.crt": "a CA", "nonce.jwt": "a nonce", "config.yaml": "cluster_id: example-cluster",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := 0
	for _, block := range blocks(t, "sh") {
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			// Nothing here runs Deployments or empties namespaces, so nothing is waited for.
			if !strings.HasPrefix(line, "kubectl ") || strings.Contains(line, "rollout status") {
				continue
			}
			if strings.Contains(line, " delete cluster") {
				cluster(t, plane.Client)
			}
			if strings.Contains(line, " scale machinepool ") {
				machinePool(t, plane.Client)
			}
			if strings.Contains(line, " delete ") {
				line += " --dry-run=server"
			}
			run++
			kubectl(t, folder, line)
		}
	}
	if run < 10 {
		t.Errorf("ran %d commands: the search misses them", run)
	}
	var config corev1.ConfigMap
	d, manager := deployment(t, build(t, "default"))
	for _, name := range []string{
		d.Spec.Template.Spec.Volumes[0].ConfigMap.Name, manager.EnvFrom[0].ConfigMapRef.Name, parsed(t).CAConfigMap,
	} {
		if err := plane.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &config); err != nil {
			t.Errorf("the page does not make it: %v", err)
		}
	}
	var nonce corev1.Secret
	if err := plane.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: parsed(t).NonceSecret}, &nonce); err != nil {
		t.Errorf("the page does not make it: %v", err)
	}
}

// cluster makes the one that the page deletes.
func cluster(t *testing.T, api client.Client) {
	t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "example-cluster--default"}}
	c.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceCluster", Name: c.Name}
	if err := api.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// machinePool makes the one that the page scales.
func machinePool(t *testing.T, api client.Client) {
	t.Helper()
	p := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	p.Spec.ClusterName = "example-cluster--default"
	p.Spec.Template.Spec = clusterv1.MachineSpec{
		ClusterName:       p.Spec.ClusterName,
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new("unused")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: v1beta1.Group, Kind: "NstanceMachinePool", Name: p.Name},
	}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func kubectl(t *testing.T, folder, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", line)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(folder, "kubeconfig"), "KUBECACHEDIR="+filepath.Join(folder, "cache"),
		"PATH="+planetest.Folder(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
}
