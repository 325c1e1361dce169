package process_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

// hiddenVar tells the test below that it sees only processes in /proc.
const hiddenVar = "TEST_HIDDEN_PROC"

// TestHiddenProc: where the system can't distinguish a process from another one with the same pid,
// nothing is started, and running instances don't count as dead.
func TestHiddenProc(t *testing.T) {
	if dir := os.Getenv(hiddenVar); dir != "" {
		c := (&fixture{dir}).config(t, scope)
		if _, err := process.New(c); err == nil || !strings.Contains(err.Error(), "boot_id") || !strings.Contains(err.Error(), "ProcSubset=all") {
			t.Errorf("opened, or for another reason not: %v", err)
		}
		return
	}
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	vm := create(t, p, spec(1))
	// As systemd does for ProcSubset=pid.
	hide := `mount -t proc -o subset=pid proc /proc && exec "$@"`
	hidden := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", hide, "sh",
		os.Args[0], "-test.run=^TestHiddenProc$", "-test.v")
	hidden.Env = append(os.Environ(), hiddenVar+"="+f.dir)
	out, err := hidden.CombinedOutput()
	if !strings.Contains(string(out), "=== RUN") {
		t.Skipf("/proc can't be hidden here: %v: %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if got := state(t, p, vm.Ref()); got != provider.StateRunning {
		t.Errorf("what ran is %s now", got)
	}
}
