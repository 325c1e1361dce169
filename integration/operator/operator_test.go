//go:build integration

package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// operator is a running nstance-operator.
type operator struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

const operatorConfig = `cluster_id: example-cluster
tenant: default
shards:
  dev-1: {registration_addr: "127.0.0.1:8992", operator_addr: "127.0.0.1:8993"}
  dev-2: {registration_addr: "127.0.0.1:9002", operator_addr: "127.0.0.1:9003"}
`

// operate starts the operator, as the user that has its role and nothing else.
func (w *world) operate(flags ...string) {
	w.Helper()
	w.write("operator.yaml", []byte(w.config))
	w.operator = w.start("operator", flags...)
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("end of the operator's log:\n%s", w.tail("logs/operator.log", 120))
		}
		w.operator.kill(syscall.SIGTERM)
	})
}

// start starts one operator, whose output goes to a log of that name.
func (w *world) start(name string, flags ...string) *operator {
	w.Helper()
	flags = append(flags,
		"--config", filepath.Join(w.temp, "operator.yaml"), "--namespace", w.namespace, "--health-probe-bind-address", "127.0.0.1:0")
	cmd := exec.Command(filepath.Join(w.bin, "nstance-operator"), flags...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+filepath.Join(w.temp, "operator.kubeconfig")), w.vars...)
	return w.begun(name, cmd)
}

// begun starts a command that is an operator.
func (w *world) begun(name string, cmd *exec.Cmd) *operator {
	w.Helper()
	out, err := os.OpenFile(filepath.Join(w.temp, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	o := &operator{cmd: cmd, ended: make(chan struct{})}
	go func() {
		o.err = cmd.Wait()
		close(o.ended)
	}()
	return o
}

// kill ends the operator and waits until it has ended.
func (o *operator) kill(how syscall.Signal) {
	if o.cmd.Process.Signal(how) != nil {
		return
	}
	select {
	case <-o.ended:
	case <-time.After(time.Minute):
		_ = o.cmd.Process.Kill()
		<-o.ended
	}
}

// again starts the operator that was killed.
func (w *world) again() {
	w.Helper()
	w.operator.kill(syscall.SIGKILL)
	w.operator = w.start("operator")
}
