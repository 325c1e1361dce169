//go:build integration

package mainjob

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSupervisor: nothing is left behind, however the stack ends.
func TestSupervisor(t *testing.T) {
	for _, provider := range providers(t) {
		t.Run(provider+" killed with SIGKILL", func(t *testing.T) {
			s := up(t, provider, false)
			pid := s.supervisor()
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s.eventually("the guard has cleaned up", func() (bool, string) {
				left := s.left()
				return left == "", left
			})
			// It starts again from what is in its folder.
			s.dev("up")
			// A machine that is not found counts as gone only a minute after its create.
			s.settle("dev-1", 2)
		})
	}
	t.Run("Ctrl-C", func(t *testing.T) {
		s := newStack(t, "process")
		var out bytes.Buffer
		cmd := exec.Command(filepath.Join(s.bin, "dev"), "run", "--bin", s.bin, "--temp", s.temp,
			"--examples", filepath.Join(root(t), "examples", "dev"), "--provider", "process") // as they are
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.eventually("the stack is up", func() (bool, string) {
			status := exec.Command(filepath.Join(s.bin, "dev"), "status", "--temp", s.temp)
			status.Env = append(os.Environ(), "DEV_OUTPUT=json")
			body, _ := status.Output()
			return bytes.Contains(body, []byte(`"ready":true`)), string(body)
		})
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Ctrl-C: %v\n%s", err, out.String())
		}
		s.nothingLeft()
	})
	t.Run("a second stack is refused", func(t *testing.T) {
		s := up(t, "process", false)
		out, err := exec.Command(filepath.Join(s.bin, "dev"), "up", "--bin", s.bin, "--temp", t.TempDir(),
			"--examples", s.examples, "--provider", "process").CombinedOutput()
		for _, want := range []string{"127.0.0.1:8989 is taken by dev-s3 (pid ", "DEV_PORT_OFFSET"} {
			if err == nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("want %q, have %v\n%s", want, err, out)
			}
		}
		s.settle("dev-1", 2)
	})
}

func (s *stack) supervisor() int {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, "dev"), "status", "--temp", s.temp)
	cmd.Env = append(os.Environ(), "DEV_OUTPUT=json")
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var report struct {
		Supervisor int `json:"supervisor"`
	}
	if err := json.Unmarshal(out, &report); err != nil || report.Supervisor == 0 {
		s.t.Fatalf("no supervisor in %s", out)
	}
	return report.Supervisor
}
