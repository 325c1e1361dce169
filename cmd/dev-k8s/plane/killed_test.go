package plane_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nstance/nstance/cmd/dev-k8s/plane/planetest"
)

// program is a process of the binary.
type program struct {
	*cluster
	cmd  *exec.Cmd
	addr string
}

func launch(t *testing.T, binary, folder, temp, addr string) *program {
	t.Helper()
	kubeconfig := filepath.Join(temp, "kubeconfig")
	cmd := exec.Command(binary, "--addr="+addr, "--root="+filepath.Join(temp, "dev-k8s"), "--kubeconfig="+kubeconfig,
		"--logs="+temp, "--plane="+folder)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{cluster: &cluster{}, cmd: cmd, addr: addr}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the API server is up", func() error {
		if err := p.connect(kubeconfig); err != nil {
			return err
		}
		_, err := p.client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return p
}

// stop sends a signal, and waits until the API server is gone too.
func (p *program) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := p.cmd.Wait()
	if signal == syscall.SIGTERM && err != nil {
		t.Errorf("exit: %v", err)
	}
	eventually(t, "the API server is gone", func() error {
		if c, err := net.Dial("tcp", p.addr); err == nil {
			return errors.Join(errors.New("it accepts connections"), c.Close())
		}
		return nil
	})
}

// killPart kills a child process of that name.
func (p *program) killPart(t *testing.T, name string) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			if line, err := os.ReadFile("/proc/" + field + "/cmdline"); err == nil && strings.Contains(string(line), name) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatalf("%s is not running", name)
}

// TestKilled: after kill -9 and after SIGTERM, no process is left, and all writes are stored.
// An API server that exits is restarted.
func TestKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: only Linux ends the children of a process that was killed")
	}
	t.Parallel()
	folder, temp := planetest.Folder(t), t.TempDir()
	binary := filepath.Join(temp, "dev-k8s.bin")
	if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free, err := planetest.Addresses(1)
	if err != nil {
		t.Fatal(err)
	}
	addr := free[0]
	last := ""
	for round, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		p := launch(t, binary, folder, temp, addr)
		maps := p.client.CoreV1().ConfigMaps("default")
		if last != "" {
			a, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil || a.ResourceVersion != last {
				t.Fatalf("round %d: revision %q, %v, want %s", round, a.ResourceVersion, err, last)
			}
		} else if _, err := maps.Create(t.Context(), configMap("a", "0"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			patch := fmt.Appendf(nil, `{"data":{"v":"%d of %d"}}`, i, round)
			a, err := maps.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			last = a.ResourceVersion
		}
		if info, err := os.Stat(filepath.Join(temp, "kubeconfig")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the kubeconfig: %v, %v", info, err)
		}
		if round == 0 {
			p.killPart(t, "kube-apiserver")
			eventually(t, "the API server is restarted", func() error {
				a, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
				if err == nil && a.ResourceVersion != last {
					err = fmt.Errorf("revision %s, want %s", a.ResourceVersion, last)
				}
				return err
			})
		}
		p.stop(t, signal)
	}
}
