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
	f := newFixture(t)
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"NSTANCE_DEBUG": "1", "COLOUR": "red"}}
	vm := create(t, open(t, f.config(t, scope)), s)
	dir := f.folder(vm)
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
	if sid, err := os.ReadFile("/proc/" + strconv.Itoa(f.pid(vm)) + "/stat"); err == nil {
		fields := strings.Fields(string(sid[strings.LastIndexByte(string(sid), ')')+1:]))
		if fields[3] != strconv.Itoa(f.pid(vm)) {
			t.Errorf("session %s is not the agent's own, %d", fields[3], f.pid(vm))
		}
	}
}

func TestBadArgs(t *testing.T) {
	p := open(t, newFixture(t).config(t, scope))
	for want, args := range map[string]map[string]any{
		"args.image: no such field (have: env)":                     {"image": "x"},
		`args.env: "PATH" is not a variable that args may set`:      {"env": map[string]any{"PATH": "/x"}},
		`args.env: "LD_PRELOAD" is not a variable that args may`:    {"env": map[string]any{"LD_PRELOAD": "/x.so"}},
		"args.env: holds a number: want a string":                   {"env": map[string]any{"A": 1}},
		"args.env.NSTANCE_INSTANCE_ID: the provider sets this":      {"env": map[string]any{"NSTANCE_INSTANCE_ID": "x"}},
		`args.env: "A=B" is not a valid variable name`:              {"env": map[string]any{"A=B": "x"}},
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

// TestSpawnedOnceAcrossCrash: a server died after the tags were written and before anything was
// started.
func TestResumeBeforeSpawn(t *testing.T) {
	f := newFixture(t)
	s := spec(1)
	f.plant(t, string(s.ID), s.Tags)
	p := open(t, f.config(t, scope))
	if got := state(t, p, provider.Ref{ID: s.ID}); got != provider.StateFailed {
		t.Errorf("what was never spawned is %s, want failed", got)
	}
	vm := create(t, p, s)
	if got := state(t, p, vm.Ref()); got != provider.StateRunning {
		t.Errorf("after the create was asked again it is %s", got)
	}
}

// TestSpawnUnderWay holds the lock like a server that is about to start the process: the instance
// is pending, and a create waits.
func TestSpawnUnderWay(t *testing.T) {
	f := newFixture(t)
	s := spec(1)
	dir := f.plant(t, string(s.ID), s.Tags)
	ready := filepath.Join(dir, "ready")
	child := exec.CommandContext(t.Context(), "flock", filepath.Join(dir, "lock"), "sh", "-c", "touch "+ready+"; exec sleep 60")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // flock's child is killed too
	child.Cancel = func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGKILL) }
	if err := child.Start(); err != nil {
		t.Skip("no flock(1) here:", err)
	}
	t.Cleanup(func() { _ = child.Cancel(); _ = child.Wait() })
	eventually(t, "the lock is taken", func() bool { _, err := os.Stat(ready); return err == nil })
	p := open(t, f.config(t, scope))
	if got := state(t, p, provider.Ref{ID: s.ID}); got != provider.StatePending {
		t.Errorf("what is being spawned is %s, want pending", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Create(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("create did not wait for the other: %v", err)
	}
}

// sleeper starts an unrelated process.
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

// TestPidReuse writes another process's pid with this one's start time into the folder: the pid
// exists, but it is not the instance's.
func TestPidReuse(t *testing.T) {
	f := newFixture(t)
	p := open(t, f.config(t, scope))
	vm := create(t, p, spec(1))
	other := sleeper(t)
	for started(other.Process.Pid)[2:] == started(f.pid(vm))[2:] { // within one tick of the system's clock
		other = sleeper(t)
	}
	file := filepath.Join(f.folder(vm), "pid")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid := f.pid(vm)
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

// TestZombie: a process that ended and was not reaped.
func TestZombie(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here:", err)
	}
	f := newFixture(t)
	s := spec(1)
	dir := f.plant(t, string(s.ID), s.Tags)
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
	if got := state(t, open(t, f.config(t, scope)), provider.Ref{ID: s.ID}); got != provider.StateStopped {
		t.Errorf("a zombie is %s, want stopped", got)
	}
}

func TestStubbornAgentIsKilled(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.StopGrace = 100 * time.Millisecond
	p := open(t, cfg)
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"STUBBORN": "1"}}
	vm := create(t, p, s)
	pid := f.pid(vm)
	eventually(t, "the agent ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(f.folder(vm), "environment"))
		return err == nil
	})
	began := time.Now()
	if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	got := state(t, p, vm.Ref())
	if gone := got == provider.StateDeleted; gone && time.Since(began) < cfg.StopGrace || !gone && got != provider.StateDeleting {
		t.Errorf("right after delete it is %s", got)
	}
	eventually(t, "the agent is gone", func() bool { return state(t, p, vm.Ref()) == provider.StateDeleted })
	if running(pid) {
		t.Error("the instance went before its process")
	}
	// The instance is gone with its state.json, a moment before its folder is.
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(f.folder(vm))
		return os.IsNotExist(err)
	})
}

// TestDeleteTakenUp: a server ends in the middle of a deletion.
func TestDeleteTakenUp(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	cfg.StopGrace = time.Hour
	s := spec(1)
	s.Args = map[string]any{"env": map[string]any{"STUBBORN": "1"}}
	first := open(t, cfg)
	vm := create(t, first, s)
	eventually(t, "the agent ignores SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(f.folder(vm), "environment"))
		return err == nil
	})
	if err := provider.DeleteOne(t.Context(), first, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	first.Close() // a repetition is harmless
	second := open(t, cfg)
	if got := state(t, second, vm.Ref()); got != provider.StateDeleting {
		t.Errorf("a half-done deletion is %s", got)
	}
	if got, err := second.Create(t.Context(), s); err != nil || got.State != provider.StateDeleting {
		t.Errorf("create of what is being deleted: %s, %v", got.State, err)
	}
	cfg.StopGrace = 50 * time.Millisecond // only now: it may end as soon as a deletion begins
	third := open(t, cfg)
	if err := provider.DeleteOne(t.Context(), third, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent is gone", func() bool { return state(t, third, vm.Ref()) == provider.StateDeleted })
}

// watch returns p's events from now on. It creates instances, from the second on, until an event of
// the first arrives.
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

// await waits for the event of an instance with a state.
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

// TestDeathIsHeardAtOnce logs the time; it asserts only that the event comes long before a scan.
func TestDeathIsHeardAtOnce(t *testing.T) {
	f := newFixture(t)
	cfg := f.config(t, scope)
	vm := create(t, open(t, cfg), spec(1))
	cfg.ScanInterval = time.Hour
	adopted := open(t, cfg)
	heard := watch(t, adopted)
	killed := time.Now()
	if err := syscall.Kill(f.pid(vm), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, heard, vm.ID, provider.StateStopped)
	t.Logf("death of an adopted process heard after %v", time.Since(killed))
}

// TestLongListSaysThatItGoesOn, so that it does not count as hanging.
func TestLongListSaysThatItGoesOn(t *testing.T) {
	f := newFixture(t)
	for n := range 250 {
		s := spec(n)
		f.plant(t, string(s.ID), s.Tags)
	}
	pages := 0
	vms, err := open(t, f.config(t, scope)).List(provider.WithListing(t.Context(), func() { pages++ }))
	if err != nil || len(vms) != 250 || pages != 2 {
		t.Errorf("%d instances, %v, told %d times that it goes on; want 250, and 2 times", len(vms), err, pages)
	}
}
