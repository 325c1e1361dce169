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

// operate starts the operator, as a user with only its roles.
func (f *fixture) operate(flags ...string) {
	f.Helper()
	f.write("operator.yaml", []byte(f.config))
	f.operator = f.start("operator", flags...)
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("end of the operator's log:\n%s", f.tail("logs/operator.log", 120))
		}
		f.operator.kill(syscall.SIGTERM)
	})
}

// start starts one operator, whose output is written to a log of that name.
func (f *fixture) start(name string, flags ...string) *operator {
	f.Helper()
	flags = append(flags,
		"--config", filepath.Join(f.temp, "operator.yaml"), "--namespace", f.namespace, "--health-probe-bind-address", "127.0.0.1:0")
	cmd := exec.Command(filepath.Join(f.bin, "nstance-operator"), flags...)
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+filepath.Join(f.temp, "operator.kubeconfig")), f.vars...)
	return f.begun(name, cmd)
}

// begun starts a command that is an operator.
func (f *fixture) begun(name string, cmd *exec.Cmd) *operator {
	f.Helper()
	out, err := os.OpenFile(filepath.Join(f.temp, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	o := &operator{cmd: cmd, ended: make(chan struct{})}
	go func() {
		o.err = cmd.Wait()
		close(o.ended)
	}()
	return o
}

// kill kills the operator and waits for its end.
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

// again restarts the killed operator.
func (f *fixture) again() {
	f.Helper()
	f.operator.kill(syscall.SIGKILL)
	f.operator = f.start("operator")
}
