package process_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
)

// begun starts a process like a server that dies before it has recorded the pid.
func begun(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	life, err := os.OpenFile(filepath.Join(dir, "life"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	if err := syscall.Flock(int(life.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{life}, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestUnrecorded: a process whose server died before it recorded the pid belongs to the instance:
// no second one is started, and a deletion ends it.
func TestUnrecorded(t *testing.T) {
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	s := spec(1)
	cmd := begun(t, f.plant(t, string(s.ID), s.Tags))
	if got := state(t, p, provider.Ref{ID: s.ID}); got != provider.StatePending {
		t.Errorf("before anything is asked it is %s, want pending", got)
	}
	vm := create(t, p, s)
	if pid := f.pid(vm); pid != cmd.Process.Pid {
		t.Errorf("the instance is process %d, want %d, which was started", pid, cmd.Process.Pid)
	}
	s = spec(2)
	cmd = begun(t, f.plant(t, string(s.ID), s.Tags))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: s.ID}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("it ended by itself")
	}
	eventually(t, "it is deleted", func() bool { return state(t, p, provider.Ref{ID: s.ID}) == provider.StateDeleted })
}

// TestUnrecordedUser: the children of an agent that ended before it was recorded are killed with
// its folder, although only their user shows that they are the instance's.
func TestUnrecordedUser(t *testing.T) {
	f, cfg := ownUsers(t, "210500-210500")
	p := open(t, cfg)
	dir := f.plant(t, string(spec(1).ID), spec(1).Tags)
	own(t, dir, 210500)
	life, err := os.OpenFile(filepath.Join(dir, "life"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer life.Close()
	if err := syscall.Flock(int(life.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	left := as(t, 210500, life)
	_ = life.Close()
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: spec(1).ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deleted", func() bool { return state(t, p, provider.Ref{ID: spec(1).ID}) == provider.StateDeleted })
	if running(left) {
		t.Error("it lives")
	}
}
