package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

func create(t *testing.T, p *process.Provider, s provider.Spec) provider.VM {
	t.Helper()
	vm, err := p.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if vm.State != provider.StateRunning {
		t.Fatalf("created VM is %s", vm.State)
	}
	return vm
}

func state(t *testing.T, p *process.Provider, ref provider.Ref) provider.State {
	t.Helper()
	vm, err := provider.GetOne(t.Context(), p, ref)
	if errors.Is(err, provider.ErrNotFound) {
		return provider.StateDeleted
	}
	if err != nil {
		t.Fatal(err)
	}
	return vm.State
}

func TestEnvironmentAndFiles(t *testing.T) {
	t.Setenv("NSTANCE_ENCRYPTION_KEY", "the server's secret")
	w := newWorld(t)
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"NSTANCE_DEBUG": "1", "COLOUR": "red"}}
	vm := create(t, open(t, w.config(t, scope)), s)
	dir := w.folder(vm)
	want := []string{
		"COLOUR=red",
		"NSTANCE_DEBUG=1",
		"NSTANCE_IDENTITY_DIR=" + dir + "/identity",
		"NSTANCE_INSTANCE_HOSTNAME=" + s.Hostname,
		"NSTANCE_INSTANCE_ID=" + string(s.ID),
		"NSTANCE_INSTANCE_IPV4=127.0.0.1",
		"NSTANCE_INSTANCE_KIND=knc",
		"NSTANCE_KEYS_DIR=" + dir + "/keys",
		"NSTANCE_RECV_DIR=" + dir + "/recv",
		"NSTANCE_REPORT_INTERVAL=2s",
		"NSTANCE_SERVER_AGENT_ADDR=10.0.0.1:8994",
		"NSTANCE_SERVER_REGISTRATION_ADDR=10.0.0.1:8992,10.0.0.2:8992",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		agentVar + "=" + marker(),
	}
	slices.Sort(want)
	var got []string
	eventually(t, "the agent wrote its environment", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "environment"))
		got = strings.Split(string(data), "\n")
		return len(got) >= len(want)
	})
	got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "PWD=") || strings.HasPrefix(s, "OLDPWD=") }) // the shell's
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the agent's environment:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, content := range map[string]string{"ca.crt": "the ca", "nonce.jwt": "the.nonce.jwt"} {
		file := filepath.Join(dir, "identity", name)
		data, err := os.ReadFile(file)
		if err != nil || string(data) != content {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info.Mode(), err)
		}
	}
	if sid, err := os.ReadFile("/proc/" + strconv.Itoa(w.pid(vm)) + "/stat"); err == nil {
		fields := strings.Fields(string(sid[strings.LastIndexByte(string(sid), ')')+1:]))
		if fields[3] != strconv.Itoa(w.pid(vm)) {
			t.Errorf("session %s is not the agent's own, %d", fields[3], w.pid(vm))
		}
	}
}

func TestBadArgs(t *testing.T) {
	p := open(t, newWorld(t).config(t, scope))
	for want, args := range map[string]map[string]any{
		"args.image: no such field (have: env)":                     {"image": "x"},
		"args.env: holds a number: want a string":                   {"env": map[string]any{"A": 1}},
		"args.env.NSTANCE_INSTANCE_ID: the provider sets this":      {"env": map[string]any{"NSTANCE_INSTANCE_ID": "x"}},
		`args.env: "A=B" is not a variable's name`:                  {"env": map[string]any{"A=B": "x"}},
		"args.env.A: the value holds a zero byte":                   {"env": map[string]any{"A": "x\x00y"}},
		"args.env.NSTANCE_REPORT_INTERVAL: the provider sets this ": {"env": map[string]any{"NSTANCE_REPORT_INTERVAL": "1s"}},
	} {
		s := spec(1)
		s.Args = args
		if _, err := p.Create(t.Context(), s); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	if vms, err := p.List(t.Context()); err != nil || len(vms) != 0 {
		t.Errorf("refused creates left %v, %v", vms, err)
	}
}

// TestSpawnedOnceAcrossCrash begins where a server died: the tags are written,
// and nothing was started.
func TestResumeBeforeSpawn(t *testing.T) {
	w := newWorld(t)
	s := spec(1)
	w.plant(t, string(s.ID), s.Tags)
	p := open(t, w.config(t, scope))
	if got := state(t, p, provider.Ref{ID: s.ID}); got != provider.StateFailed {
		t.Errorf("what was never spawned is %s, want failed", got)
	}
	vm := create(t, p, s)
	if got := state(t, p, vm.Ref()); got != provider.StateRunning {
		t.Errorf("after the create was asked again it is %s", got)
	}
}

// TestSpawnUnderWay holds the lock as a child does that has not recorded its pid
// yet while its server died: the instance is pending, and a create waits.
func TestSpawnUnderWay(t *testing.T) {
	w := newWorld(t)
	s := spec(1)
	dir := w.plant(t, string(s.ID), s.Tags)
	ready := filepath.Join(dir, "ready")
	child := exec.CommandContext(t.Context(), "flock", filepath.Join(dir, "lock"), "sh", "-c", "touch "+ready+"; exec sleep 60")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what flock runs goes with it
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
	if err := child.Start(); err != nil {
		t.Skip("no flock(1) here:", err)
	}
	t.Cleanup(func() { _ = child.Cancel(); _ = child.Wait() })
	eventually(t, "the lock is taken", func() bool { _, err := os.Stat(ready); return err == nil })
	p := open(t, w.config(t, scope))
	if got := state(t, p, provider.Ref{ID: s.ID}); got != provider.StatePending {
		t.Errorf("what is being spawned is %s, want pending", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Create(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("create did not wait for the other: %v", err)
	}
}

// sleeper starts a process that has nothing to do with us.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if started(cmd.Process.Pid) == "" {
		t.Skip("no /proc here")
	}
	return cmd
}

// TestPidReuse writes another process's pid with this one's birth into the
// folder: the pid exists, but it is not the instance's.
func TestPidReuse(t *testing.T) {
	w := newWorld(t)
	p := open(t, w.config(t, scope))
	vm := create(t, p, spec(1))
	other := sleeper(t)
	for started(other.Process.Pid)[2:] == started(w.pid(vm))[2:] { // within one tick of the system's clock
		other = sleeper(t)
	}
	file := filepath.Join(w.folder(vm), "pid")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid := w.pid(vm)
	_, rest, _ := strings.Cut(string(data), "\n")
	if err := os.WriteFile(file, []byte(strconv.Itoa(other.Process.Pid)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := state(t, p, vm.Ref()); got != provider.StateStopped {
		t.Errorf("an instance whose pid now is another process's is %s", got)
	}
	if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	if got := state(t, p, vm.Ref()); got != provider.StateDeleted {
		t.Errorf("after delete it is %s", got)
	}
	if !running(other.Process.Pid) {
		t.Error("the delete hit another process")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is reaped", func() bool { return !running(pid) })
}

// TestZombie has a process that ended without anybody reaping it.
func TestZombie(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here:", err)
	}
	w := newWorld(t)
	s := spec(1)
	dir := w.plant(t, string(s.ID), s.Tags)
	script := `read -r stat < /proc/$$/stat; read -r boot < /proc/sys/kernel/random/boot_id
printf '%s\n%s\n%s\n' $$ $boot "$stat" > ` + filepath.Join(dir, "pid")
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	eventually(t, "the child is a zombie", func() bool {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(child.Process.Pid) + "/stat")
		return strings.Contains(string(stat), ") Z ")
	})
	if got := state(t, open(t, w.config(t, scope)), provider.Ref{ID: s.ID}); got != provider.StateStopped {
		t.Errorf("a zombie is %s, want stopped", got)
	}
}

func TestStubbornAgentIsKilled(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(t, scope)
	cfg.StopGrace = 100 * time.Millisecond
	p := open(t, cfg)
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"STUBBORN": "1"}}
	vm := create(t, p, s)
	pid := w.pid(vm)
	eventually(t, "the agent ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(w.folder(vm), "environment"))
		return err == nil
	})
	if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	if got := state(t, p, vm.Ref()); got != provider.StateDeleting {
		t.Errorf("right after delete it is %s", got)
	}
	eventually(t, "the agent is gone", func() bool { return state(t, p, vm.Ref()) == provider.StateDeleted })
	if running(pid) {
		t.Error("the instance went before its process")
	}
	// The instance is gone with its state.json, a moment before its folder is.
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(w.folder(vm))
		return os.IsNotExist(err)
	})
}

// TestDeleteTakenUp has a server end in the middle of a deletion.
func TestDeleteTakenUp(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(t, scope)
	cfg.StopGrace = time.Hour
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"STUBBORN": "1"}}
	first := open(t, cfg)
	vm := create(t, first, s)
	eventually(t, "the agent ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(w.folder(vm), "environment"))
		return err == nil
	})
	if err := provider.DeleteOne(t.Context(), first, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	first.Close() // once more does no harm
	cfg.StopGrace = 50 * time.Millisecond
	second := open(t, cfg)
	if got := state(t, second, vm.Ref()); got != provider.StateDeleting {
		t.Errorf("a half-done deletion is %s", got)
	}
	if got, err := second.Create(t.Context(), s); err != nil || got.State != provider.StateDeleting {
		t.Errorf("create of what is being deleted: %s, %v", got.State, err)
	}
	if err := provider.DeleteOne(t.Context(), second, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is gone", func() bool { return state(t, second, vm.Ref()) == provider.StateDeleted })
}

// watch returns what p tells from now on. It makes instances, from the second on,
// until the first is heard of.
func watch(t *testing.T, p *process.Provider) <-chan provider.VM {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, done := make(chan provider.VM, 1000), make(chan error, 1)
	go func() { done <- p.Watch(ctx, func(e provider.Event) { heard <- e.VM }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
	for n := 2; len(heard) == 0; n++ {
		create(t, p, spec(n))
	}
	return heard
}

// await waits until it is heard that an instance is in a state.
func await(t *testing.T, heard <-chan provider.VM, id fleet.InstanceID, want provider.State) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is heard to be %s", id, want), func() bool {
		select {
		case vm := <-heard:
			return vm.ID == id && vm.State == want
		default:
			return false
		}
	})
}

// TestDeathIsHeardAtOnce measures; it asserts only that the news comes long
// before a scan would bring it.
func TestDeathIsHeardAtOnce(t *testing.T) {
	w := newWorld(t)
	cfg := w.config(t, scope)
	vm := create(t, open(t, cfg), spec(1))
	cfg.ScanInterval = time.Hour
	adopted := open(t, cfg)
	heard := watch(t, adopted)
	killed := time.Now()
	if err := syscall.Kill(w.pid(vm), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, heard, vm.ID, provider.StateStopped)
	t.Logf("death of an adopted process heard after %v", time.Since(killed))
}

// TestLongListSaysThatItGoesOn, so that nobody takes it for one that hangs.
func TestLongListSaysThatItGoesOn(t *testing.T) {
	w := newWorld(t)
	for n := range 250 {
		s := spec(n)
		w.plant(t, string(s.ID), s.Tags)
	}
	pages := 0
	vms, err := open(t, w.config(t, scope)).List(provider.WithListing(t.Context(), func() { pages++ }))
	if err != nil || len(vms) != 250 || pages != 2 {
		t.Errorf("%d instances, %v, told %d times that it goes on; want 250, and 2 times", len(vms), err, pages)
	}
}
