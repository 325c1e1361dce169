package process_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/process"
)

// spy is an agent that reports its user, and what it can read and change of others.
const spy = `#!/bin/sh
cd "$NSTANCE_KEYS_DIR" || exit 1
root=$(dirname "$(dirname "$NSTANCE_KEYS_DIR")")
{
	echo "user $(id -u) group $(id -g) groups $(id -G)"
	cat ../identity/nonce.jwt > /dev/null && echo "reads its nonce"
	grep NoNewPrivs /proc/self/status 2> /dev/null
	ls "$root" > /dev/null 2>&1 && echo "lists the shard"
	for file in ../state.json ../pid ../agent.log; do
		cat $file > /dev/null 2>&1 && echo "reads $file"
		echo > $file 2> /dev/null && echo "writes $file"
	done
	touch ../more 2> /dev/null && echo "adds files"
	[ -n "$OTHER" ] && cat "$OTHER/identity/nonce.jwt" > /dev/null 2>&1 && echo "reads the other's nonce"
	kill -0 "$SERVER" 2> /dev/null && echo "may end the server"
	ls "/proc/$SERVER/fd" > /dev/null 2>&1 && echo "sees the server's files"
} > said 2> /dev/null
mv said told
exec sleep 60
`

// ownUsers is a provider whose agents are spies with users of their own.
func ownUsers(t *testing.T, users string) (*fixture, process.Config) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("NEEDS_ROOT") == "1" {
			t.Fatal("only root starts processes as other users, and NEEDS_ROOT=1")
		}
		t.Skip("SKIPPED: only root starts processes as other users")
	}
	f := newFixture(t)
	// Folders of tests are private to their user, but other users have to pass through them.
	for dir := f.dir; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm()&0o011 == 0 {
			if err := errors.Join(err, os.Chmod(dir, 0o711)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := f.config(t, scope)
	cfg.Dir, cfg.Agent = filepath.Join(f.dir, "agents"), filepath.Join(f.dir, "spy")
	cfg.UserRange, cfg.StopGrace = users, 100*time.Millisecond
	cfg.Env = map[string]string{"SERVER": fmt.Sprint(os.Getpid())}
	cfg.ArgsEnv = []string{"OTHER"}
	if err := os.WriteFile(cfg.Agent, []byte(spy), 0o755); err != nil {
		t.Fatal(err)
	}
	f.dir = cfg.Dir
	return f, cfg
}

// TestOwnUsers: an agent with its own user can access its files, but nothing of the server or of
// other agents.
func TestOwnUsers(t *testing.T) {
	f, cfg := ownUsers(t, "210000-210009")
	p := open(t, cfg)
	other := create(t, p, spec(1))
	s := spec(2)
	s.Args = map[string]any{"env": map[string]any{"OTHER": f.folder(other)}}
	vm := create(t, p, s)
	for who, vm := range map[string]provider.VM{"210000": other, "210001": vm} {
		file := filepath.Join(f.folder(vm), "keys", "told")
		eventually(t, "the agent tells", func() bool { _, err := os.Stat(file); return err == nil })
		said, err := os.ReadFile(file)
		want := fmt.Sprintf("user %s group %s groups %s\nreads its nonce\n", who, who, who)
		if runtime.GOOS == "linux" {
			want += "NoNewPrivs:\t1\n"
		}
		if err != nil || string(said) != want {
			t.Errorf("it says\n%s, %v; want\n%s", said, err, want)
		}
	}
	for name, mode := range map[string]os.FileMode{"": 0o711, "state.json": 0o600, "pid": 0o600, "agent.log": 0o600} {
		info, err := os.Stat(filepath.Join(f.folder(vm), name))
		if err != nil || info.Mode().Perm() != mode || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
	pid := f.pid(vm)
	if err := provider.DeleteOne(t.Context(), p, vm.Ref()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deleted", func() bool { return state(t, p, vm.Ref()) == provider.StateDeleted })
	if running(pid) {
		t.Error("its process lives")
	}
}

// TestUsersTaken: a user has one instance at a time, also while processes of a deleted one still
// run; without a free user a create waits.
func TestUsersTaken(t *testing.T) {
	_, cfg := ownUsers(t, "210100-210101")
	left := as(t, 210100)
	p := open(t, cfg)
	create(t, p, spec(1))
	full := func(n int) {
		t.Helper()
		_, err := p.Create(t.Context(), spec(n))
		if !errors.Is(err, provider.ErrQuota) || !provider.Definite(err) || !strings.Contains(err.Error(), "options.user_range") {
			t.Errorf("with no user left: %v", err)
		}
		if got := state(t, p, provider.Ref{ID: spec(n).ID}); got != provider.StateDeleted {
			t.Errorf("something %s is left", got)
		}
	}
	full(2)
	_ = syscall.Kill(left, syscall.SIGKILL)
	eventually(t, "it ends", func() bool { return !running(left) })
	create(t, p, spec(2)) // also before it is reaped
	full(3)
	if err := provider.DeleteOne(t.Context(), p, provider.Ref{ID: spec(1).ID}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a user is free", func() bool {
		_, err := p.Create(t.Context(), spec(3))
		return err == nil
	})
}

func TestParseUsers(t *testing.T) {
	for text, want := range map[string]process.Users{
		"": {}, "1000-1000": {First: 1000, Last: 1000}, "200000-200999": {First: 200000, Last: 200999},
		"65535-2147483647": {First: 65535, Last: 2147483647},
	} {
		if got, err := process.ParseUsers(text); err != nil || got != want || got.Shared() != (text == "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"0-10", "999-2000", "2000-1000", "200000", "-", "a-b", "200000-200999-1", "200000-4294967295", "1000-65534",
		"65534-70000", " 2000-3000", "+2000-3000",
	} {
		cfg := newFixture(t).config(t, scope)
		cfg.UserRange = text
		if _, err := process.New(cfg); !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), "options.user_range: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzUsers: a valid range contains no user of the system, and not the overflow id.
func FuzzUsers(f *testing.F) {
	f.Add("200000-200999")
	f.Add("1000-65534")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := process.ParseUsers(text)
		if err == nil && text != "" && (u.First < 1000 || u.Last < u.First || u.First <= 65534 && u.Last >= 65534) {
			t.Errorf("%q is %+v", text, u)
		}
	})
}
