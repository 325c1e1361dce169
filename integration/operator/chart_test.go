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

// TestTheChart: the chart's objects are enough for a working operator. It runs as the process of
// the Deployment, with the arguments, variables, file and token of its pod, on an API server that
// grants only what the chart's roles allow.
func TestTheChart(t *testing.T) {
	f := bring(t, nil)
	rendered := f.chart("--set=config.cluster_id=example-cluster",
		"--set=config.shards.dev-1.registration_addr=127.0.0.1:8992", "--set=config.shards.dev-1.operator_addr=127.0.0.1:8993",
		"--set=config.shards.dev-2.registration_addr=127.0.0.1:9002", "--set=config.shards.dev-2.operator_addr=127.0.0.1:9003",
		"--set=metrics.enabled=true", "--set=metrics.port=18080",
		"--set=crds.enabled=false") // they exist, and all stories share them
	f.write("chart.yaml", rendered)
	f.kubectl("apply", "--server-side", "-f", filepath.Join(f.temp, "chart.yaml"))
	d := f.deploy()
	f.token(d.Spec.Template.Spec.ServiceAccountName)

	manager := d.Spec.Template.Spec.Containers[0]
	cmd := exec.Command(filepath.Join(f.bin, "nstance-operator"), f.args(manager)...)
	cmd.Env = append(f.variables(manager), "KUBECONFIG="+filepath.Join(f.temp, "operator.kubeconfig"))
	f.operator = f.begun("operator", cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the operator's log:\n%s", f.tail("logs/operator.log", 120))
		}
		f.operator.kill(syscall.SIGTERM)
	})

	f.running("web", 4)
	f.scale("web", 6)
	f.running("web", 6)
	f.firstMachines()
	f.eventually("it is ready, as the chart's test asks it", func(context.Context) error { return f.probe(rendered) })
	answer, err := http.Get("http://127.0.0.1:18080/metrics")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("metrics: %s", answer.Status)
	}
	f.undenied("system:serviceaccount:" + f.namespace + ":" + d.Spec.Template.Spec.ServiceAccountName)
}

// firstMachines executes docs/install.md after the operator's installation.
func (f *fixture) firstMachines() {
	f.Helper()
	page, err := os.ReadFile(filepath.Join(root(f.T), "docs", "install.md"))
	if err != nil {
		f.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "kubectl apply -f - <<'END'\n")
	objects, _, found := strings.Cut(rest, "END\n")
	if !found {
		f.Fatal("docs/install.md makes no pool")
	}
	there := strings.NewReplacer("namespace: nstance\n", "namespace: "+f.namespace+"\n", "[us-west-2a]", "["+dev1+", "+dev2+"]")
	f.write("pool.yaml", []byte(there.Replace(objects)))
	f.kubectl("apply", "-f", filepath.Join(f.temp, "pool.yaml"))
	f.kubectl("-n", f.namespace, "scale", "machinepool", "workers", "--replicas", "3")
	f.running("workers", 3)
}

// chart renders the chart for this story's namespace.
func (f *fixture) chart(values ...string) []byte {
	f.Helper()
	find := exec.CommandContext(f.Context(), "go", "tool", "-n", "-modfile="+filepath.Join(".ci", "tools", "helm.mod"), "helm")
	find.Dir, find.Env = root(f.T), append(os.Environ(), "CGO_ENABLED=0")
	var said strings.Builder
	find.Stderr = &said
	path, err := find.Output()
	if err != nil {
		f.Fatalf("build helm: %v: %s", err, said.String())
	}
	source := filepath.Join(root(f.T), "charts", "nstance-operator")
	args := append([]string{"template", "nstance-operator", source, "--namespace=" + f.namespace}, values...)
	return f.run(strings.TrimSpace(string(path)), args...)
}

// deploy returns the Deployment as the API server stored it.
func (f *fixture) deploy() (d appsv1.Deployment) {
	f.Helper()
	if err := f.get(f.Context(), "nstance-operator", &d); err != nil {
		f.Fatal(err)
	}
	return d
}

// args returns a container's arguments as the kubelet would pass them, with the path of the
// ConfigMap.
func (f *fixture) args(c corev1.Container) (args []string) {
	f.Helper()
	var config corev1.ConfigMap
	if err := f.get(f.Context(), "nstance-operator-config", &config); err != nil {
		f.Fatal(err)
	}
	f.write("etc/config.yaml", []byte(config.Data["config.yaml"]))
	mounted := c.VolumeMounts[0].MountPath + "/"
	for _, arg := range c.Args {
		arg = strings.ReplaceAll(arg, "$(NSTANCE_NAMESPACE)", f.namespace)
		args = append(args, strings.ReplaceAll(arg, mounted, filepath.Join(f.temp, "etc")+"/"))
	}
	return args
}

// variables returns a container's environment.
func (f *fixture) variables(c corev1.Container) []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.temp}
	for _, v := range c.Env {
		if v.ValueFrom != nil { // the namespace is the only one
			v.Value = f.namespace
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// probe runs the chart's test on this machine.
func (f *fixture) probe(rendered []byte) error {
	for document := range strings.SplitSeq(string(rendered), "\n---\n") {
		var pod corev1.Pod
		if err := yaml.Unmarshal([]byte(document), &pod); err != nil || pod.Kind != "Pod" {
			continue
		}
		arg := strings.Replace(pod.Spec.Containers[0].Args[0], "nstance-operator."+f.namespace, "127.0.0.1", 1)
		out, err := exec.CommandContext(f.Context(), filepath.Join(f.bin, "nstance-operator"), arg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", arg, err, out)
		}
		return nil
	}
	return fmt.Errorf("the chart has no test among its %d bytes", len(rendered))
}

// undenied: the API server has refused nothing to a user.
func (f *fixture) undenied(user string) {
	f.Helper()
	calls, err := shared.Calls()
	if err != nil {
		f.Fatal(err)
	}
	asked := 0
	for _, call := range calls {
		if call.User != user {
			continue
		}
		asked++
		if call.Code == http.StatusForbidden {
			f.Errorf("denied to the chart's ServiceAccount: %s", call)
		}
	}
	if asked < 20 {
		f.Errorf("%s has asked only %d times", user, asked)
	}
}
