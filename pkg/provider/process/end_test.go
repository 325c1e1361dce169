package process_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

// heirVar makes the agent start a process that leaves its session; its value is that process's
// command.
const heirVar = "HEIR"

// leaveSession starts a program as the leader of a new session (setsid(2)), which inherits the
// agent's life lock too, as carelessly forked processes do.
func leaveSession(program string) {
	life, err := syscall.Dup(3)
	if err == nil {
		// A fork bomb must not disturb the machine that runs the tests.
		err = unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 200, Max: 200})
	}
	if err == nil {
		cmd := exec.CommandContext(context.Background(), program)
		cmd.Env = append(os.Environ(), heirVar+"=")
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(life), "life")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leave the session:", err)
	}
}

// heirs is a provider whose agents are the test binary, run as users of their own, and leave a
// process in a new session.
func heirs(t *testing.T, users, heir string) (*fixture, process.Config) {
	t.Helper()
	f, cfg := ownUsers(t, users)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Agent = filepath.Join(filepath.Dir(f.dir), "agent")
	if err := copyFile(cfg.Agent, self); err != nil {
		t.Fatal(err)
	}
	if heir == "" {
		heir = cfg.Agent
	}
	cfg.Env = map[string]string{agentVar: marker(), heirVar: heir}
	t.Cleanup(func() {
		all, _ := process.ParseUsers(users)
		eventually(t, "all processes of these users are gone", func() bool {
			left := processesOf(t, all)
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return len(left) == 0
		})
	})
	return f, cfg
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// processesOf returns the running processes of a range of users, with their users.
func processesOf(t *testing.T, users process.Users) map[int]uint32 {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ps", "-A", "-o", "pid=,uid=,state=").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]uint32{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[2][0] == 'Z' {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		if user, err := strconv.ParseUint(fields[1], 10, 32); err == nil && uint32(user) >= users.First && uint32(user) <= users.Last {
			found[pid] = uint32(user)
		}
	}
	return found
}

// TestLeftSession: all processes of an instance end with it, also those that left the session, and
// then its user, the only one there is, is free.
func TestLeftSession(t *testing.T) {
	f, cfg := heirs(t, "210200-210200", "")
	users := process.Users{First: 210200, Last: 210200}
	p := open(t, cfg)
	for n, end := range []func(vm provider.VM){
		func(provider.VM) {},
		func(vm provider.VM) { // it ends by itself, and its child continues
			if err := syscall.Kill(f.pid(vm), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the agent has ended", func() bool { return state(t, p, vm.Ref()) == provider.StateStopped })
			eventually(t, "what left the session lives on", func() bool { return len(processesOf(t, users)) == 1 })
		},
		func(provider.VM) { // the server restarts
			p.Close()
			p = open(t, cfg)
		},
	} {
		vm := create(t, p, spec(n+1))
		eventually(t, "the agent and what it started run", func() bool { return len(processesOf(t, users)) == 2 })
		end(vm)
		if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is deleted", func() bool { return state(t, p, vm.Ref()) == provider.StateDeleted })
		if left := processesOf(t, users); len(left) != 0 {
			t.Errorf("end %d: when the instance is gone the processes %v are left", n, left)
		}
	}
}

// bomb starts itself repeatedly: ten at a time, each of which lives only until the next is started.
const bomb = `#!/bin/sh
[ -e "$FUSE" ] || exit
echo >> "$BEATS"
case $1 in
on) "$0" on & ;;
*) for n in 0 1 2 3 4 5 6 7 8 9; do "$0" on & done ;;
esac
`

// TestForkBomb: an instance that creates processes faster than they can be counted is killed too.
func TestForkBomb(t *testing.T) {
	dir := t.TempDir()
	program, fuse, beats := filepath.Join(dir, "bomb"), filepath.Join(dir, "fuse"), filepath.Join(dir, "beats")
	f, cfg := heirs(t, "210300-210300", program)
	cfg.Env["FUSE"], cfg.Env["BEATS"] = fuse, beats
	for file, mode := range map[string]os.FileMode{program: 0o755, fuse: 0o644, beats: 0o666} {
		if err := errors.Join(os.WriteFile(file, []byte(bomb), mode), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.Truncate(beats, 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(fuse) }) // first of all
	beaten := func() int64 {
		info, err := os.Stat(beats)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	p := open(t, cfg)
	vm := create(t, p, spec(1))
	eventually(t, "the bomb goes off", func() bool { return beaten() > 500 })
	if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deleted", func() bool { return state(t, p, vm.Ref()) == provider.StateDeleted })
	at := beaten()
	for range 20 {
		if left := processesOf(t, process.Users{First: 210300, Last: 210300}); len(left) != 0 || beaten() != at {
			t.Fatalf("when the instance is gone it has %d processes, and started %d more", len(left), beaten()-at)
		}
	}
	if _, err := os.Stat(f.folder(vm)); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
	create(t, p, spec(2))
}

// own changes the owner of a planted folder, as for an instance.
func own(t *testing.T, dir string, user int) {
	t.Helper()
	identity := filepath.Join(dir, "identity")
	if err := errors.Join(os.Mkdir(identity, 0o700), os.Chown(identity, user, user)); err != nil {
		t.Fatal(err)
	}
}

// as starts a process of a user, which is reaped when the test ends.
func as(t *testing.T, user uint32, files ...*os.File) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "60")
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: user, Gid: user}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestWhoseProcesses: a user's processes are killed only if the user is in the range, and only that
// folder's.
func TestWhoseProcesses(t *testing.T) {
	f, cfg := ownUsers(t, "210400-210401")
	p := open(t, cfg)
	folders := map[int]uint32{1: 210400, 2: 210400, 3: 210450}
	for n, user := range folders {
		own(t, f.plant(t, string(spec(n).ID), spec(n).Tags), int(user))
	}
	theirs, others, outside := as(t, 210400), as(t, 210401), as(t, 210450)
	for _, c := range []struct {
		folder int
		after  string
		live   bool
	}{{1, "one of two folders of its user", true}, {3, "a folder of a user that is not of the range", true}, {2, "its folder", false}} {
		if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: spec(c.folder).ID}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is deleted", func() bool { return state(t, p, provider.Ref{ID: spec(c.folder).ID}) == provider.StateDeleted })
		if running(theirs) != c.live || !running(others) || !running(outside) {
			t.Errorf("after %s: lives %t, want %t; another user's %t, that of a user outside the range %t",
				c.after, running(theirs), c.live, running(others), running(outside))
		}
	}
}
