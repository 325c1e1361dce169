//go:build integration

package operator

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestTheChart: what the chart installs is enough for an operator that does its work. It
// runs as the process that the Deployment would start, with the arguments, the variables,
// the file and the token that its pod would have, on an API server that grants nothing
// but what the chart's roles say.
func TestTheChart(t *testing.T) {
	w := bring(t, nil)
	rendered := w.chart("--set=config.cluster_id=example-cluster",
		"--set=config.shards.dev-1.registration_addr=127.0.0.1:8992", "--set=config.shards.dev-1.operator_addr=127.0.0.1:8993",
		"--set=config.shards.dev-2.registration_addr=127.0.0.1:9002", "--set=config.shards.dev-2.operator_addr=127.0.0.1:9003",
		"--set=metrics.enabled=true", "--set=metrics.port=18080",
		"--set=crds.enabled=false") // they are there, and all stories share them
	w.write("chart.yaml", rendered)
	w.kubectl("apply", "--server-side", "-f", filepath.Join(w.temp, "chart.yaml"))
	d := w.deploy()
	w.token(d.Spec.Template.Spec.ServiceAccountName)

	manager := d.Spec.Template.Spec.Containers[0]
	cmd := exec.Command(filepath.Join(w.bin, "nstance-operator"), w.args(manager)...)
	cmd.Env = append(w.variables(manager), "KUBECONFIG="+filepath.Join(w.temp, "operator.kubeconfig"))
	w.operator = w.begun("operator", cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the operator's log:\n%s", w.tail("logs/operator.log", 120))
		}
		w.operator.kill(syscall.SIGTERM)
	})

	w.running("web", 4)
	w.scale("web", 6)
	w.running("web", 6)
	w.firstMachines()
	w.eventually("it is ready, as the chart's test asks it", func(context.Context) error { return w.probe(rendered) })
	answer, err := http.Get("http://127.0.0.1:18080/metrics")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("metrics: %s", answer.Status)
	}
	w.undenied("system:serviceaccount:" + w.namespace + ":" + d.Spec.Template.Spec.ServiceAccountName)
}

// firstMachines does what docs/install.md does after the operator is there.
func (w *world) firstMachines() {
	w.Helper()
	page, err := os.ReadFile(filepath.Join(root(w.T), "docs", "install.md"))
	if err != nil {
		w.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "kubectl apply -f - <<'END'\n")
	objects, _, found := strings.Cut(rest, "END\n")
	if !found {
		w.Fatal("docs/install.md makes no pool")
	}
	there := strings.NewReplacer("namespace: nstance\n", "namespace: "+w.namespace+"\n", "[us-west-2a]", "["+dev1+", "+dev2+"]")
	w.write("pool.yaml", []byte(there.Replace(objects)))
	w.kubectl("apply", "-f", filepath.Join(w.temp, "pool.yaml"))
	w.kubectl("-n", w.namespace, "scale", "machinepool", "workers", "--replicas", "3")
	w.running("workers", 3)
}

// chart is what the chart renders for this story's namespace.
func (w *world) chart(values ...string) []byte {
	w.Helper()
	find := exec.CommandContext(w.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "helm.mod"), "helm")
	find.Dir, find.Env = root(w.T), append(os.Environ(), "CGO_ENABLED=0")
	path, err := find.Output()
	if err != nil {
		w.Fatalf("build helm: %v", err)
	}
	source := filepath.Join(root(w.T), "charts", "nstance-operator")
	args := append([]string{"template", "nstance-operator", source, "--namespace=" + w.namespace}, values...)
	return w.run(strings.TrimSpace(string(path)), args...)
}

// deploy is the Deployment that the API server took.
func (w *world) deploy() (d appsv1.Deployment) {
	w.Helper()
	if err := w.get(w.Context(), "nstance-operator", &d); err != nil {
		w.Fatal(err)
	}
	return d
}

// args are a container's, as kubelet would give them, with the ConfigMap where it is
// mounted.
func (w *world) args(c corev1.Container) (args []string) {
	w.Helper()
	var config corev1.ConfigMap
	if err := w.get(w.Context(), "nstance-operator-config", &config); err != nil {
		w.Fatal(err)
	}
	w.write("etc/config.yaml", []byte(config.Data["config.yaml"]))
	mounted := c.VolumeMounts[0].MountPath + "/"
	for _, arg := range c.Args {
		arg = strings.ReplaceAll(arg, "$(NSTANCE_NAMESPACE)", w.namespace)
		args = append(args, strings.ReplaceAll(arg, mounted, filepath.Join(w.temp, "etc")+"/"))
	}
	return args
}

// variables are a container's.
func (w *world) variables(c corev1.Container) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.temp}
	for _, v := range c.Env {
		if v.ValueFrom != nil { // the namespace is the only one
			v.Value = w.namespace
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// probe runs what the chart's test would, on this machine.
func (w *world) probe(rendered []byte) error {
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		var pod corev1.Pod
		if err := yaml.Unmarshal([]byte(document), &pod); err != nil || pod.Kind != "Pod" {
			continue
		}
		arg := strings.Replace(pod.Spec.Containers[0].Args[0], "nstance-operator."+w.namespace, "127.0.0.1", 1)
		out, err := exec.CommandContext(w.Context(), filepath.Join(w.bin, "nstance-operator"), arg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", arg, err, out)
		}
		return nil
	}
	return fmt.Errorf("the chart has no test among its %d bytes", len(rendered))
}

// undenied: the API server has refused nothing to a user.
func (w *world) undenied(user string) {
	w.Helper()
	calls, err := shared.Calls()
	if err != nil {
		w.Fatal(err)
	}
	asked := 0
	for _, call := range calls {
		if call.User != user {
			continue
		}
		asked++
		if call.Code == http.StatusForbidden {
			w.Errorf("denied to the chart's ServiceAccount: %s", call)
		}
	}
	if asked < 20 {
		w.Errorf("%s has asked only %d times", user, asked)
	}
}
