//go:build integration

package mainjob

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	dev "github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/object/objecttest/quirks"
)

// TestStoreQuirks: a server whose store has a quirk behaves as in the table of docs/storage.md: it
// leads and brings its group to size, or names what the store lacks.
func TestStoreQuirks(t *testing.T) {
	slots := make(chan struct{}, 3)
	for _, mode := range quirks.Modes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			t.Cleanup(func() { <-slots })
			meetsQuirk(t, mode, quirkRow(t, mode)[0])
		})
	}
}

// quirkRow returns the table's entries for a quirk: what happens at a start, and under a leader.
func quirkRow(t *testing.T, mode string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "storage.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, row, found := strings.Cut(string(page), "\n| "+mode+" | ")
	row, _, _ = strings.Cut(row, " |\n")
	cells := strings.Split(row, " | ")
	if !found || len(cells) != 2 {
		t.Fatalf("the table has no row of two cells: %q", row)
	}
	return cells
}

func meetsQuirk(t *testing.T, mode, row string) {
	s := newStack(t, "process")
	bucket := filepath.Join(s.temp, "dev-s3")
	log, health, _ := s.serveQuirk(mode, bucket)
	if strings.HasPrefix(row, "works") {
		s.eventually("the group is at its size", func() (bool, string) {
			code, body := get(health)
			records := s.recordCount(bucket)
			machines := s.machines("dev-1")
			return code == http.StatusOK && strings.Contains(body, "leading") && machines == 2 && records == machines,
				fmt.Sprintf("%d %s: %d machines, %d records", code, body, machines, records)
		})
		dirs, err := filepath.Glob(filepath.Join(s.temp, "agents", "dev-1", "*", "pid"))
		if err != nil || len(dirs) != 2 {
			t.Fatalf("want 2 machines, have %q, %v", dirs, err)
		}
		for _, file := range dirs {
			s.recordFile("dev-1", filepath.Base(filepath.Dir(file)))
		}
		return
	}
	// "refused: PROPERTY. Advice" and "waits, and says why: the store returned STATUS CODE".
	_, property, _ := strings.Cut(row, ": ")
	property, _, _ = strings.Cut(strings.TrimPrefix(property, "the store returned "), ". ")
	s.eventually("the server names "+property, func() (bool, string) {
		code, body := get(health)
		said, _ := os.ReadFile(log)
		named := strings.Contains(body, property) && strings.Contains(string(said), property)
		return code == http.StatusServiceUnavailable && named, fmt.Sprintf("%d %s\n%s", code, body, said)
	})
	if n := s.machines("dev-1") + s.recordCount(bucket); n != 0 {
		t.Errorf("a server that refuses its store made %d machines and records", n)
	}
}

func (s *stack) recordCount(bucket string) int {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(bucket, "instance", "dev-1", "*.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(files)
}

// serveQuirk starts a server whose store has a quirk, and returns its log file, its health URL and
// the store.
func (s *stack) serveQuirk(mode, bucket string) (log, health string, store *quirks.Store) {
	s.t.Helper()
	t := s.t
	s.writeQuirkConfig(bucket)
	inner, err := dev.New(dev.Config{
		Root: bucket, Bucket: "dev", Keys: dev.Key("dev", "dev", ""),
		Wrap: func(inner http.Handler) http.Handler {
			store = quirks.New(mode, inner)
			return store
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(inner)
	t.Cleanup(func() { front.Close(); inner.Close() })
	args := []string{
		"--shard", "dev-1", "--id", "one", "--storage-provider", "s3", "--storage-bucket", "dev",
		"--cache-dir", filepath.Join(s.temp, "cache"), "--advertise-host", "127.0.0.1",
	}
	addrs := freeAddrs(t, 5)
	for i, name := range []string{"health", "election", "registration", "operator", "agent"} {
		args = append(args, "--"+name+"-addr", addrs[i])
	}
	log = filepath.Join(s.temp, "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(s.bin, "nstance-server"), args...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=dev", "AWS_SECRET_ACCESS_KEY=dev", "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL="+front.URL, "AWS_S3_USE_PATH_STYLE=true", "NSTANCE_ENCRYPTION_KEY=thisisa32bytekeyfortheteststory1")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
		s.killMachines()
		if t.Failed() {
			t.Logf("end of the server's log:\n%s", tail(log, 60))
		}
	})
	return log, "http://" + addrs[0] + "/health", store
}

func (s *stack) writeQuirkConfig(bucket string) {
	s.t.Helper()
	body, err := os.ReadFile(filepath.Join(s.examples, "dev-1.jsonc"))
	if err != nil {
		s.t.Fatal(err)
	}
	text := strings.NewReplacer("temp/agents", filepath.Join(s.temp, "agents"),
		"bin/nstance-agent", filepath.Join(s.bin, "nstance-agent")).Replace(string(body))
	file := filepath.Join(bucket, "config", "dev-1.jsonc")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// killMachines kills the machines, which outlive their server.
func (s *stack) killMachines() {
	dirs, _ := filepath.Glob(filepath.Join(s.temp, "agents", "dev-1", "*", "pid"))
	for _, file := range dirs {
		_ = syscall.Kill(s.agentPID("dev-1", filepath.Base(filepath.Dir(file))), syscall.SIGKILL)
	}
	s.eventually("nothing is left", func() (bool, string) { left := s.left(); return left == "", left })
}

// lastPort is the last port that freeAddrs returned. Ports are below Linux's range for connections
// (ip_local_port_range in ip(7)): in it, a free port may be used by a connection before a server
// listens on it.
var lastPort atomic.Uint32

const firstPort = 23_000

// freeAddrs returns loopback addresses on which nothing listens, and which no other test gets.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for len(addrs) < n {
		port := firstPort + lastPort.Add(1)
		if port > firstPort+5_000 {
			t.Fatalf("%d of %d ports are free", len(addrs), n)
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue // the port is in use
		}
		l.Close()
		addrs = append(addrs, addr)
	}
	return addrs
}
